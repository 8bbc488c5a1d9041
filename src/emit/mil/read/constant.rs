//! The constants of a package: what an operation declares, and where the values are.

use super::program::{Binding, Data, Function, Operation, TensorKind, Value, ValueKind};
use crate::tensor::{DType, Fact};

/// A constant, or a stored operand of a compressed one.
#[derive(Clone, Debug, PartialEq)]
pub struct Constant {
    /// Name of the function it stands in.
    pub function: String,
    /// Its name there; `value.input` for an operand of a compressed constant.
    pub name: String,
    /// Declared type.
    pub kind: TensorKind,
    /// Its values.
    pub content: Content,
    /// The declared type as a fact, where the crate knows the dtype.
    pub fact: Option<Fact>,
}

/// Where a constant's values are.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    /// In the model, little endian, in the declared dtype.
    Immediate(Vec<u8>),
    /// In the model, as texts.
    Strings(Vec<String>),
    /// In the weight file, at the record of that offset.
    Blob(u64),
    /// In the model, but not in the form that the declared type asks for.
    Misfit(String),
}

impl Constant {
    /// Bytes of its values as stored, as far as the declared type says.
    pub fn bytes(&self) -> Option<u64> {
        let bits = self.kind.elements()?.checked_mul(self.kind.element.bits()?)?;
        Some(bits.div_ceil(8))
    }
}

/// All constants of a function, in order.
pub(super) fn constants(function: &Function) -> Vec<Constant> {
    let mut found = Vec::new();
    let place = || function.name.clone();
    for op in &function.operations {
        if op.kind == "const" {
            let value = op.attributes.get("val");
            found.extend(value.and_then(|v| constant(place(), op.label().into(), declared(op, v), v)));
        } else if op.kind.starts_with("constexpr_") {
            let inputs = op.inputs.iter().flat_map(|(input, bindings)| bindings.iter().map(move |b| (input, b)));
            let bound = inputs.filter_map(|(input, binding)| match binding {
                Binding::Value(value) => Some((input, value)),
                Binding::Name(_) => None,
            });
            // Earlier opsets keep the operands in attributes.
            let attributes = op.attributes.iter().filter(|(name, _)| *name != "name");
            for (input, value) in bound.chain(attributes) {
                found.extend(constant_of(place(), format!("{}.{input}", op.label()), value));
            }
        }
    }
    found
}

/// A value that stands at an input, as a constant of its own type.
pub(super) fn constant_of(function: String, name: String, value: &Value) -> Option<Constant> {
    let ValueKind::Tensor(kind) = &value.kind else { return None };
    constant(function, name, kind.clone(), value)
}

/// A constant is what its operation declares; the value's own type is compared with that by `check`.
fn declared(op: &Operation, value: &Value) -> TensorKind {
    let declared = op.outputs.first().and_then(|o| o.kind.tensor()).or(value.kind.tensor());
    declared.cloned().unwrap_or(TensorKind { element: super::Element::Other(0), dims: Vec::new() })
}

fn constant(function: String, name: String, kind: TensorKind, value: &Value) -> Option<Constant> {
    let fact = kind.fact();
    let content = match &value.data {
        Data::Blob(offset) => Content::Blob(*offset),
        Data::Strings(texts) => Content::Strings(texts.clone()),
        Data::Numbers { of, bytes } => numbers(&kind, *of, bytes),
        Data::Other if kind.elements() == Some(0) => Content::Immediate(Vec::new()),
        Data::Other => return None,
    };
    Some(Constant { function, name, kind, content, fact })
}

/// The values in the declared dtype. 16-bit integers are kept as 32-bit ones, 8-bit ones, halves and packed values as
/// raw bytes.
fn numbers(kind: &TensorKind, of: Option<DType>, bytes: &[u8]) -> Content {
    let bits = kind.elements().and_then(|n| n.checked_mul(kind.element.bits()?));
    let size = bits.map(|b| b.div_ceil(8));
    let narrowed;
    let values = match (of, kind.element.dtype()) {
        (None, None) => bytes,
        (None, Some(DType::F16 | DType::I8 | DType::U8 | DType::U32)) => bytes,
        (Some(DType::I32), Some(DType::I16 | DType::U16)) => {
            narrowed = bytes.as_chunks::<4>().0.iter().flat_map(|[a, b, _, _]| [*a, *b]).collect::<Vec<u8>>();
            &narrowed
        }
        (Some(stored), Some(declared)) if stored == declared => bytes,
        (stored, _) => return Content::Misfit(stored.map_or("raw bytes".into(), |d| d.to_string())),
    };
    if size == Some(values.len() as u64) {
        Content::Immediate(values.to_vec())
    } else {
        Content::Misfit(format!("{} bytes", values.len()))
    }
}
