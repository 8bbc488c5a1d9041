//! From a function back to a graph. Facts are inferred anew and compared with what each operation declares.

use super::constant::{Constant, Content};
use super::error::ReadError;
use super::package::Package;
use super::program::{Binding, Data, Function, Named, Operation, TensorKind, Value, ValueKind};
use super::spell;
use crate::ir::{Builder, Edit, FactError, Graph, LITERAL_MAX, Op, ValueId, Weight};
use crate::tensor::{DType, Fact, Shape, WeightSource, widen};
use std::collections::BTreeMap;

/// Why an operation is none of ours; where it stands is added once.
pub(super) enum Refusal {
    Form(String),
    Unbound(String),
    Wiring(ReadError),
}

impl From<String> for Refusal {
    fn from(reason: String) -> Refusal {
        Refusal::Form(reason)
    }
}

/// Lifts `function` of `package`.
pub(super) fn lift(package: &Package, function: &Function) -> Result<Graph, ReadError> {
    let mut lifter = Lifter {
        package,
        function,
        builder: Builder::new(&function.name),
        values: BTreeMap::new(),
        constants: BTreeMap::new(),
    };
    for input in &function.inputs {
        lifter.input(input).map_err(|refusal| lifter.placed(&input.name, "input", refusal))?;
    }
    for op in &function.operations {
        lifter.operation(op).map_err(|refusal| lifter.placed(op.label(), &op.kind, refusal))?;
    }
    for name in &function.outputs {
        let value = lifter.value(name).map_err(|refusal| lifter.placed(name, "output", refusal))?;
        lifter.builder.output(name, value);
    }
    Ok(lifter.builder.finish())
}

pub(super) struct Lifter<'p> {
    package: &'p Package,
    function: &'p Function,
    builder: Builder,
    values: BTreeMap<&'p str, ValueId>,
    /// Constants seen so far; each becomes a value when one is needed, so that parameters never do.
    constants: BTreeMap<&'p str, &'p Constant>,
}

type Lifted<T> = Result<T, Refusal>;

impl<'p> Lifter<'p> {
    fn placed(&self, value: &str, kind: &str, refusal: Refusal) -> ReadError {
        let (function, value, kind) = (self.function.name.clone(), value.to_owned(), kind.to_owned());
        match refusal {
            Refusal::Form(reason) => ReadError::Unsupported { function, value, kind, reason },
            Refusal::Unbound(missing) => ReadError::Unbound { function, value, missing },
            Refusal::Wiring(error) => error,
        }
    }

    fn input(&mut self, input: &'p Named) -> Lifted<()> {
        let ValueKind::Tensor(kind) = &input.kind else { return Err(Refusal::Form("it is no tensor".into())) };
        let fact = kind.fact().ok_or_else(|| format!("it is {kind}"))?;
        let value = self.builder.input(&input.name, fact).map_err(|source| self.build(source))?;
        self.values.insert(&input.name, value);
        Ok(())
    }

    fn operation(&mut self, op: &'p Operation) -> Lifted<()> {
        if op.kind == "const" {
            let name = self.package.weight_name(&self.function.name, op.label());
            let constant = self.package.constants.get(&name).ok_or_else(|| "it has no value".to_owned())?;
            self.constants.insert(op.label(), constant);
            return Ok(());
        }
        let [output] = op.outputs.as_slice() else {
            return Err(Refusal::Form(format!("it has {} results", op.outputs.len())));
        };
        let value = spell::operation(self, op)?;
        let declared = output.kind.tensor().and_then(TensorKind::fact);
        let declared = declared.ok_or_else(|| "it declares no tensor of a dtype and shape of ours".to_owned())?;
        let inferred = self.builder.fact(value);
        if declared != *inferred {
            let (function, value) = (self.function.name.clone(), output.name.clone());
            return Err(Refusal::Wiring(ReadError::Disagrees {
                function,
                value,
                declared,
                inferred: inferred.clone(),
            }));
        }
        self.values.insert(&output.name, value);
        Ok(())
    }

    /// Wires an op under the name that `op`'s result has.
    pub fn push(&mut self, op: &Operation, wired: Op, args: &[ValueId]) -> Lifted<ValueId> {
        self.builder.push(op.label(), wired, args).map_err(|source| self.build(source))
    }

    fn build(&self, source: crate::ir::BuildError) -> Refusal {
        Refusal::Wiring(ReadError::Build { function: self.function.name.clone(), source: Box::new(source) })
    }

    /// Dtype and shape of a value.
    pub fn fact(&self, value: ValueId) -> &Fact {
        self.builder.fact(value)
    }

    /// The extents that `op` declares for its result.
    pub fn declared(&self, op: &Operation) -> Lifted<Shape> {
        let fact = op.outputs.first().and_then(|o| o.kind.tensor()?.fact());
        Ok(fact.ok_or_else(|| "it declares no shape".to_owned())?.shape)
    }

    /// What an optional input is bound to.
    fn binding<'o>(&self, op: &'o Operation, input: &str) -> Lifted<Option<&'o Binding>> {
        match op.inputs.get(input).map(Vec::as_slice) {
            None | Some([]) => Ok(None),
            Some([one]) => Ok(Some(one)),
            Some(several) => Err(Refusal::Form(format!("input {input} has {} values", several.len()))),
        }
    }

    /// The operand bound to a required input.
    pub fn operand(&mut self, op: &'p Operation, input: &str) -> Lifted<ValueId> {
        self.optional(op, input)?.ok_or_else(|| Refusal::Form(format!("input {input} is missing")))
    }

    /// The operand bound to an optional input.
    pub fn optional(&mut self, op: &'p Operation, input: &str) -> Lifted<Option<ValueId>> {
        match self.binding(op, input)? {
            None => Ok(None),
            Some(Binding::Name(name)) => self.value(name).map(Some),
            Some(Binding::Value(value)) => {
                let (fact, bytes) = at_hand(value).ok_or_else(|| format!("input {input} holds no numbers"))?;
                self.literal(&format!("{}_{input}", op.label()), &fact, &bytes).map(Some)
            }
        }
    }

    /// All operands bound to an input.
    pub fn operands(&mut self, op: &'p Operation, input: &str) -> Lifted<Vec<ValueId>> {
        let bindings = op.inputs.get(input).map_or(&[][..], Vec::as_slice);
        bindings
            .iter()
            .map(|binding| match binding {
                Binding::Name(name) => self.value(name),
                Binding::Value(_) => Err(Refusal::Form(format!("input {input} holds a value of its own"))),
            })
            .collect()
    }

    /// The value of that name; a constant becomes one here.
    fn value(&mut self, name: &'p str) -> Lifted<ValueId> {
        if let Some(value) = self.values.get(name) {
            return Ok(*value);
        }
        let constant = *self.constants.get(name).ok_or_else(|| Refusal::Unbound(name.into()))?;
        let value = self.constant(name, constant)?;
        self.values.insert(name, value);
        Ok(value)
    }

    fn constant(&mut self, name: &str, constant: &Constant) -> Lifted<ValueId> {
        let fact = constant.fact.as_ref().ok_or_else(|| format!("constant {name} is {}", constant.kind))?;
        match &constant.content {
            Content::Immediate(bytes) if fact.shape.elements() <= LITERAL_MAX => self.literal(name, fact, bytes),
            Content::Immediate(_) | Content::Blob(_) => {
                let weight = self.package.weight_name(&self.function.name, name);
                self.tensor(name, &weight, fact)
            }
            Content::Strings(_) | Content::Misfit(_) => Err(Refusal::Form(format!("constant {name} holds no numbers"))),
        }
    }

    /// The stored operand of a compressed constant: at an input, bound by name or standing there, or an attribute.
    pub fn stored(&mut self, op: &'p Operation, input: &str) -> Lifted<Option<ValueId>> {
        if let Some(Binding::Name(name)) = self.binding(op, input)? {
            return self.value(name).map(Some);
        }
        if !op.inputs.contains_key(input) && !op.attributes.contains_key(input) {
            return Ok(None);
        }
        let name = format!("{}.{input}", op.label());
        let constant = self.package.constants.get(&self.package.weight_name(&self.function.name, &name));
        let constant = constant.ok_or_else(|| format!("operand {input} has no value"))?;
        self.constant(&name, constant).map(Some)
    }

    fn tensor(&mut self, name: &str, weight: &str, fact: &Fact) -> Lifted<ValueId> {
        let made = Weight::tensor(weight, fact);
        let made = if fact.dtype == DType::F16 { made.and_then(|w| w.edit(Edit::Cast(DType::F16))) } else { made };
        Ok(self.builder.constant(name, made.map_err(|error| unfit(name, &error))?))
    }

    fn literal(&mut self, name: &str, fact: &Fact, bytes: &[u8]) -> Lifted<ValueId> {
        let values = numbers(fact.dtype, bytes).ok_or_else(|| format!("constant {name} is {fact}"))?;
        if values.iter().any(|value| !value.is_finite()) {
            return Err(Refusal::Form(format!("constant {name} is not finite")));
        }
        let weight = Weight::literal(values, fact.clone()).map_err(|error| unfit(name, &error))?;
        Ok(self.builder.constant(name, weight))
    }

    /// A number as a scalar constant of `dtype`, which is none of the package's.
    pub fn scalar(&mut self, label: &str, value: f64, dtype: DType) -> Lifted<ValueId> {
        let weight = Weight::literal(vec![value], Fact::new(dtype, []));
        Ok(self.builder.constant(label, weight.map_err(|error| unfit(label, &error))?))
    }

    /// The fact and bytes of a parameter.
    fn parameter(&self, op: &Operation, input: &str) -> Lifted<Option<(Fact, Vec<u8>)>> {
        match self.binding(op, input)? {
            None => Ok(None),
            Some(Binding::Value(value)) => {
                at_hand(value).map(Some).ok_or_else(|| Refusal::Form(format!("parameter {input} holds no numbers")))
            }
            Some(Binding::Name(name)) => {
                let constant = self.constants.get(name.as_str());
                let constant = constant.ok_or_else(|| format!("parameter {input} is no constant"))?;
                let fact = constant.fact.clone().ok_or_else(|| format!("parameter {input} is {}", constant.kind))?;
                let mut bytes = match &constant.content {
                    Content::Immediate(bytes) => return Ok(Some((fact, bytes.clone()))),
                    // A parameter is short; a longer constant is no parameter.
                    Content::Blob(_) if fact.shape.elements() <= 64 => vec![0; fact.bytes()],
                    Content::Blob(_) | Content::Strings(_) | Content::Misfit(_) => {
                        return Err(Refusal::Form(format!("parameter {input} is {}", constant.kind)));
                    }
                };
                let weight = self.package.weight_name(&self.function.name, name);
                self.package.read(&weight, 0, &mut bytes).map_err(|e| format!("parameter {input}: {e}"))?;
                Ok(Some((fact, bytes)))
            }
        }
    }

    /// The integers of an optional parameter, a scalar being a list of one.
    pub fn ints(&self, op: &Operation, input: &str) -> Lifted<Option<Vec<i64>>> {
        let Some((fact, bytes)) = self.parameter(op, input)? else { return Ok(None) };
        if fact.dtype != DType::I32 {
            return Err(Refusal::Form(format!("parameter {input} is {fact}, expected i32")));
        }
        Ok(Some(bytes.as_chunks::<4>().0.iter().map(|b| i32::from_le_bytes(*b).into()).collect()))
    }

    /// The booleans of an optional parameter, a scalar being a list of one.
    pub fn bools(&self, op: &Operation, input: &str) -> Lifted<Option<Vec<bool>>> {
        let Some((fact, bytes)) = self.parameter(op, input)? else { return Ok(None) };
        if fact.dtype != DType::Bool {
            return Err(Refusal::Form(format!("parameter {input} is {fact}, expected bool")));
        }
        Ok(Some(bytes.iter().map(|b| *b != 0).collect()))
    }

    /// The number that an optional parameter is.
    pub fn float(&self, op: &Operation, input: &str) -> Lifted<Option<f64>> {
        let Some((fact, bytes)) = self.parameter(op, input)? else { return Ok(None) };
        match numbers(fact.dtype, &bytes).as_deref() {
            Some([value]) if fact.dtype.is_float() && value.is_finite() => Ok(Some(*value)),
            _ => Err(Refusal::Form(format!("parameter {input} is {fact}, expected a finite float"))),
        }
    }

    /// The text that an optional parameter is, also of an operation that has it among its attributes.
    pub fn text(&self, op: &'p Operation, input: &str) -> Lifted<Option<&'p str>> {
        let texts = match self.binding(op, input)? {
            None => match op.attributes.get(input) {
                None => return Ok(None),
                Some(Value { data: Data::Strings(texts), .. }) => Some(texts),
                Some(_) => None,
            },
            Some(Binding::Value(Value { data: Data::Strings(texts), .. })) => Some(texts),
            Some(Binding::Name(name)) => match self.constants.get(name.as_str()) {
                Some(Constant { content: Content::Strings(texts), .. }) => Some(texts),
                _ => None,
            },
            Some(Binding::Value(_)) => None,
        };
        match texts.map(Vec::as_slice) {
            Some([text]) => Ok(Some(text)),
            _ => Err(Refusal::Form(format!("parameter {input} is no text"))),
        }
    }

    /// Whether the values of an operand are known to be zeros, without a minus sign.
    pub fn is_zero(&self, op: &Operation, input: &str) -> Lifted<bool> {
        let Some(Binding::Name(name)) = self.binding(op, input)? else { return Ok(false) };
        let Some(constant) = self.constants.get(name.as_str()) else { return Ok(false) };
        match (&constant.content, &constant.fact) {
            (Content::Immediate(bytes), _) => Ok(bytes.iter().all(|b| *b == 0)),
            (Content::Blob(_), Some(fact)) => {
                let weight = self.package.weight_name(&self.function.name, name);
                let mut block = [0; 4096];
                let total = fact.bytes();
                for start in (0..total).step_by(block.len()) {
                    let part = block.len().min(total - start);
                    let read = self.package.read(&weight, start as u64, &mut block[..part]);
                    read.map_err(|e| format!("input {input}: {e}"))?;
                    if block[..part].iter().any(|b| *b != 0) {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            (Content::Blob(_) | Content::Strings(_) | Content::Misfit(_), _) => Ok(false),
        }
    }
}

fn unfit(name: &str, error: &FactError) -> Refusal {
    Refusal::Form(format!("constant {name}: {error}"))
}

/// The fact and bytes of a value that stands at an input itself.
fn at_hand(value: &Value) -> Option<(Fact, Vec<u8>)> {
    match super::constant::constant_of(String::new(), String::new(), value)? {
        Constant { fact: Some(fact), content: Content::Immediate(bytes), .. } => Some((fact, bytes)),
        _ => None,
    }
}

/// Little-endian bytes as numbers.
fn numbers(dtype: DType, bytes: &[u8]) -> Option<Vec<f64>> {
    Some(match dtype {
        DType::F16 | DType::F32 => {
            let mut values = vec![0f32; bytes.len() / dtype.size()];
            widen(dtype, bytes, &mut values);
            values.into_iter().map(f64::from).collect()
        }
        DType::I32 => bytes.as_chunks::<4>().0.iter().map(|b| i32::from_le_bytes(*b).into()).collect(),
        DType::I16 => bytes.as_chunks::<2>().0.iter().map(|b| i16::from_le_bytes(*b).into()).collect(),
        DType::U16 => bytes.as_chunks::<2>().0.iter().map(|b| u16::from_le_bytes(*b).into()).collect(),
        DType::I8 => bytes.iter().map(|b| f64::from(b.cast_signed())).collect(),
        DType::U8 | DType::Bool => bytes.iter().map(|b| f64::from(*b)).collect(),
        DType::F64 | DType::BF16 | DType::I64 | DType::U64 | DType::U32 => return None,
    })
}
