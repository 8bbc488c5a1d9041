//! The program message as data: every function, operation and value, of any package.

use super::Element;
use super::error::{WireError, WireFault};
use super::wire::{Field, Message};
use crate::tensor::{DType, Fact};
use std::collections::BTreeMap;
use std::fmt;

/// One function.
#[derive(Clone, Debug, PartialEq)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// The opset of the block that was read.
    pub opset: String,
    /// Inputs and states.
    pub inputs: Vec<Named>,
    /// Names of the values given out.
    pub outputs: Vec<String>,
    /// Operations in order.
    pub operations: Vec<Operation>,
}

/// A value's name and type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// Its name.
    pub name: String,
    /// Its type.
    pub kind: ValueKind,
}

/// The type of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValueKind {
    /// A tensor.
    Tensor(TensorKind),
    /// A state that holds a tensor.
    State(TensorKind),
    /// A list, tuple or dictionary.
    Other,
}

/// Element type and extents of a tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorKind {
    /// Element type.
    pub element: Element,
    /// Extents; `None` where one is not fixed.
    pub dims: Vec<Option<u64>>,
}

/// One operation.
#[derive(Clone, Debug, PartialEq)]
pub struct Operation {
    /// Its type, `conv` for one.
    pub kind: String,
    /// What each input is bound to.
    pub inputs: BTreeMap<String, Vec<Binding>>,
    /// Its results.
    pub outputs: Vec<Named>,
    /// Its attributes; the value of a constant is `val`.
    pub attributes: BTreeMap<String, Value>,
    /// Nested blocks, of control flow.
    pub blocks: usize,
}

/// What an input is bound to.
#[derive(Clone, Debug, PartialEq)]
pub enum Binding {
    /// A value of the function.
    Name(String),
    /// A value that stands right there.
    Value(Value),
}

/// A constant value.
#[derive(Clone, Debug, PartialEq)]
pub struct Value {
    /// Its declared type.
    pub kind: ValueKind,
    /// Its content.
    pub data: Data,
}

/// The content of a constant value.
#[derive(Clone, Debug, PartialEq)]
pub enum Data {
    /// Numbers that stand in the message, little endian; `of` is what the field holds, or `None` for raw bytes.
    Numbers {
        /// Dtype of the field they stand in.
        of: Option<DType>,
        /// The numbers.
        bytes: Vec<u8>,
    },
    /// Texts.
    Strings(Vec<String>),
    /// Offset of a record of the weight file.
    Blob(u64),
    /// A list, tuple or dictionary, or nothing.
    Other,
}

impl ValueKind {
    /// The tensor type, also of a state.
    pub fn tensor(&self) -> Option<&TensorKind> {
        match self {
            ValueKind::Tensor(tensor) | ValueKind::State(tensor) => Some(tensor),
            ValueKind::Other => None,
        }
    }
}

impl TensorKind {
    /// As a fact, where the dtype is known and every extent fixed.
    pub fn fact(&self) -> Option<Fact> {
        let dims = self.dims.iter().map(|d| usize::try_from((*d)?).ok()).collect::<Option<Vec<_>>>()?;
        Some(Fact::new(self.element.dtype()?, dims))
    }

    /// Number of elements, where every extent is fixed and the product fits.
    pub fn elements(&self) -> Option<u64> {
        self.dims.iter().try_fold(1u64, |n, d| n.checked_mul((*d)?))
    }
}

impl fmt::Display for TensorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dims: Vec<String> = self.dims.iter().map(|d| d.map_or("?".into(), |n| n.to_string())).collect();
        write!(f, "{}[{}]", self.element, dims.join(","))
    }
}

impl Operation {
    /// Name of its first result, or its type where it has none.
    pub fn label(&self) -> &str {
        self.outputs.first().map_or(&self.kind, |o| &o.name)
    }
}

type Parsed<T> = Result<T, WireError>;

/// Reads the map of functions of a program.
pub(super) fn functions(mut program: Message<'_>) -> Parsed<Vec<Function>> {
    let mut functions = BTreeMap::new();
    while let Some(field) = program.next()? {
        if field.number == 2 {
            entry(field, "function", &mut functions, function)?;
        }
    }
    let named = |(name, function): (String, Function)| Function { name, ..function };
    Ok(functions.into_iter().map(named).collect())
}

/// Reads one entry of a map: key 1, value 2.
fn entry<'a, T>(
    field: Field<'a>,
    what: &'static str,
    into: &mut BTreeMap<String, T>,
    read: impl FnOnce(Message<'a>) -> Parsed<T>,
) -> Parsed<()> {
    let mut message = field.message()?;
    let (mut key, mut value) = (String::new(), None);
    while let Some(field) = message.next()? {
        match field.number {
            1 => key = field.text()?,
            2 => value = Some(field),
            _ => {}
        }
    }
    let value = read(value.map_or(Ok(Message::file(&[])), |v| v.message())?)?;
    match into.entry(key) {
        std::collections::btree_map::Entry::Vacant(place) => {
            place.insert(value);
            Ok(())
        }
        std::collections::btree_map::Entry::Occupied(place) => {
            Err(field.fault(WireFault::Twice { what, key: place.key().clone() }))
        }
    }
}

fn function(mut message: Message<'_>) -> Parsed<Function> {
    let (mut inputs, mut opset, mut blocks) = (Vec::new(), String::new(), BTreeMap::new());
    while let Some(field) = message.next()? {
        match field.number {
            1 => inputs.push(named(field.message()?)?),
            2 => opset = field.text()?,
            3 => entry(field, "block", &mut blocks, block)?,
            _ => {}
        }
    }
    let (outputs, operations) = blocks.remove(&opset).unwrap_or_default();
    Ok(Function { name: String::new(), opset, inputs, outputs, operations })
}

fn block(mut message: Message<'_>) -> Parsed<(Vec<String>, Vec<Operation>)> {
    let (mut outputs, mut operations) = (Vec::new(), Vec::new());
    while let Some(field) = message.next()? {
        match field.number {
            2 => outputs.push(field.text()?),
            3 => operations.push(operation(field.message()?)?),
            _ => {}
        }
    }
    Ok((outputs, operations))
}

fn operation(mut message: Message<'_>) -> Parsed<Operation> {
    let mut op = Operation {
        kind: String::new(),
        inputs: BTreeMap::new(),
        outputs: Vec::new(),
        attributes: BTreeMap::new(),
        blocks: 0,
    };
    while let Some(field) = message.next()? {
        match field.number {
            1 => op.kind = field.text()?,
            2 => entry(field, "input", &mut op.inputs, bindings)?,
            3 => op.outputs.push(named(field.message()?)?),
            4 => op.blocks += 1,
            5 => entry(field, "attribute", &mut op.attributes, value)?,
            _ => {}
        }
    }
    Ok(op)
}

fn bindings(mut message: Message<'_>) -> Parsed<Vec<Binding>> {
    let mut bindings = Vec::new();
    while let Some(field) = message.next()? {
        if field.number == 1 {
            let mut binding = field.message()?;
            while let Some(field) = binding.next()? {
                match field.number {
                    1 => bindings.push(Binding::Name(field.text()?)),
                    2 => bindings.push(Binding::Value(value(field.message()?)?)),
                    _ => {}
                }
            }
        }
    }
    Ok(bindings)
}

fn named(mut message: Message<'_>) -> Parsed<Named> {
    let mut named = Named { name: String::new(), kind: ValueKind::Other };
    while let Some(field) = message.next()? {
        match field.number {
            1 => named.name = field.text()?,
            2 => named.kind = value_kind(field.message()?)?,
            _ => {}
        }
    }
    Ok(named)
}

fn value_kind(mut message: Message<'_>) -> Parsed<ValueKind> {
    let mut kind = ValueKind::Other;
    while let Some(field) = message.next()? {
        match field.number {
            1 => kind = ValueKind::Tensor(tensor_kind(field.message()?)?),
            5 => {
                let mut state = field.message()?;
                while let Some(field) = state.next()? {
                    if let (1, ValueKind::Tensor(tensor)) = (field.number, value_kind(field.message()?)?) {
                        kind = ValueKind::State(tensor);
                    }
                }
            }
            _ => {}
        }
    }
    Ok(kind)
}

fn tensor_kind(mut message: Message<'_>) -> Parsed<TensorKind> {
    let mut tensor = TensorKind { element: Element::Other(0), dims: Vec::new() };
    while let Some(field) = message.next()? {
        match field.number {
            1 => tensor.element = Element::of_data_type(field.number()?),
            3 => tensor.dims.push(dimension(field.message()?)?),
            _ => {}
        }
    }
    Ok(tensor)
}

fn dimension(mut message: Message<'_>) -> Parsed<Option<u64>> {
    let mut extent = None;
    while let Some(field) = message.next()? {
        if field.number == 1 {
            let mut constant = field.message()?;
            extent = Some(0);
            while let Some(field) = constant.next()? {
                if field.number == 1 {
                    extent = Some(field.number()?);
                }
            }
        }
    }
    Ok(extent)
}

fn value(mut message: Message<'_>) -> Parsed<Value> {
    let mut value = Value { kind: ValueKind::Other, data: Data::Other };
    while let Some(field) = message.next()? {
        match field.number {
            2 => value.kind = value_kind(field.message()?)?,
            3 => {
                let mut immediate = field.message()?;
                while let Some(field) = immediate.next()? {
                    if field.number == 1 {
                        value.data = tensor_value(field.message()?)?;
                    }
                }
            }
            5 => value.data = blob(field.message()?)?,
            _ => {}
        }
    }
    Ok(value)
}

fn blob(mut message: Message<'_>) -> Parsed<Data> {
    let mut offset = 0;
    while let Some(field) = message.next()? {
        if field.number == 2 {
            offset = field.number()?;
        }
    }
    Ok(Data::Blob(offset))
}

fn tensor_value(mut message: Message<'_>) -> Parsed<Data> {
    let mut data = Data::Other;
    while let Some(field) = message.next()? {
        let kind = field.number;
        let mut values = field.message()?;
        let (mut bytes, mut strings) = (Vec::new(), Vec::new());
        while let Some(field) = values.next()? {
            match (kind, field.number) {
                (1, 1) => field.words::<4>(&mut bytes)?,
                (2, 1) => field.numbers(|n| bytes.extend_from_slice(&(n as i32).to_le_bytes()))?,
                (3, 1) => field.numbers(|n| bytes.push(u8::from(n != 0)))?,
                (4, 1) => strings.push(field.text()?),
                (5, 1) => field.numbers(|n| bytes.extend_from_slice(&n.to_le_bytes()))?,
                (6, 1) => field.words::<8>(&mut bytes)?,
                (7, 1) => bytes.extend_from_slice(field.bytes()?),
                _ => {}
            }
        }
        let of = match kind {
            1 => Some(DType::F32),
            2 => Some(DType::I32),
            3 => Some(DType::Bool),
            5 => Some(DType::I64),
            6 => Some(DType::F64),
            7 => None,
            4 => {
                data = Data::Strings(strings);
                continue;
            }
            _ => continue,
        };
        data = Data::Numbers { of, bytes };
    }
    Ok(data)
}
