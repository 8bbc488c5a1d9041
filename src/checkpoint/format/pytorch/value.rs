//! What a pickle of `torch.save` can hold.
//!
//! Values lie in one list and refer to each other by index, so that an object used a thousand times is there once, and
//! an object may hold itself.

use super::types::{Element, Global};

/// The index of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Id(pub(super) u32);

/// What a storage is, as the pickle describes it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Storage<'p> {
    /// Its key in the archive.
    pub key: &'p str,
    /// What it holds; none where it holds bytes.
    pub element: Option<Element>,
}

/// A view of a storage.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor<'p> {
    /// What it views.
    pub storage: Storage<'p>,
    /// What it holds.
    pub element: Element,
    /// Its first element, counted from the storage's start.
    pub offset: u64,
    /// A tuple: its extents.
    pub size: Id,
    /// A tuple: elements between neighbours of each axis.
    pub stride: Id,
    /// What the bytes do not say, where there is such an argument: a view that torch negates or conjugates as it reads.
    pub metadata: Option<Id>,
}

/// A value of the pickle.
#[derive(Clone, Debug, PartialEq)]
pub enum Value<'p> {
    /// None, floats, integers beyond 64 bits, devices: of no matter here.
    Other,
    Bool(bool),
    Int(i64),
    Text(&'p str),
    Tuple(Vec<Id>),
    List(Vec<Id>),
    Dict(Vec<(Id, Id)>),
    Global(Global),
    Storage(Storage<'p>),
    Tensor(Box<Tensor<'p>>),
}

impl Value<'_> {
    /// What it is, for messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Value::Other => "None or a float",
            Value::Bool(_) => "a boolean",
            Value::Int(_) => "an integer",
            Value::Text(_) => "a text",
            Value::Tuple(_) => "a tuple",
            Value::List(_) => "a list",
            Value::Dict(_) => "a dict",
            Value::Global(_) => "a name",
            Value::Storage(_) => "a storage",
            Value::Tensor(_) => "a tensor",
        }
    }
}

/// All values of a pickle, and which of them it is about.
#[derive(Debug)]
pub struct Pickle<'p> {
    pub(super) values: Vec<Value<'p>>,
    /// The value the pickle ends with.
    pub root: Id,
}

impl<'p> Pickle<'p> {
    /// The value of that index.
    pub fn get(&self, id: Id) -> &Value<'p> {
        &self.values[id.0 as usize]
    }
}
