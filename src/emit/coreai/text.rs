//! Dialect text of checked graphs, one `coreai.graph` for each, and the list of what stands in it.

use super::legalize::{Operand, Param, Step, legalize};
use super::weights::WeightFile;
use super::{CoreAiError, FunctionFacts, Line};
use crate::ir::{Graph, MaterializeError, Materializer, Node, Op, ValueId, Weight};
use crate::target::WEIGHT_FILE_FROM;
use crate::tensor::{DType, Fact, bytes_of_f32, widen};
use blake3::Hash;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::io::{self, Seek, Write};

/// Most elements of a constant whose cast the serializer computes when it saves a program. The result is an f32 constant
/// under a name made of random letters, so such a one is written as what it would become. Found by trying sizes on
/// coreai-core 1.0.0b3; with another number the bundle read back is not what was written, which stops the job.
const FOLDED_MAX: usize = 250_000;

/// What the dialect calls a constant.
pub(super) const CONSTANT: &str = "constant";

/// The full name of an operation.
pub(super) fn named(kind: &str) -> String {
    format!("coreai.{kind}")
}

/// The text as it grows. Locations are unknown from the start: anything else stores line and column of each op.
#[derive(Default)]
pub(super) struct Text {
    pub text: String,
    /// For each line of the text, the path of the node it belongs to.
    pub paths: Vec<String>,
}

impl Text {
    /// Adds a line; `path` names the node it is of.
    pub fn line(&mut self, path: &str, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
        self.paths.push(path.to_owned());
    }
}

/// What all functions share.
pub(super) struct Shared<'a, W> {
    pub text: Text,
    pub weights: Materializer<'a>,
    pub file: WeightFile<W>,
}

/// Writes `graph` as the function `name`.
pub(super) fn write_function<W: Write + Seek>(
    name: &str,
    graph: &Graph,
    shared: &mut Shared<'_, W>,
) -> Result<FunctionFacts, CoreAiError> {
    let mut writer = FunctionWriter {
        name,
        graph,
        shared,
        values: HashMap::new(),
        params: BTreeMap::new(),
        lines: Vec::new(),
        folded: graph.read_only_by(|node| folded(graph, node).is_some()),
    };
    let (inputs, outputs) = writer.features()?;
    let mut operands = Vec::new();
    for (value, (name, fact)) in graph.inputs().iter().zip(&inputs) {
        let r#type = writer.r#type(graph.node(*value), fact)?;
        writer.values.insert(*value, Slot { id: operands.len(), r#type: r#type.clone() });
        operands.push(format!("%{}: {type} {{coreai.name = \"{name}\"}} loc(unknown)", operands.len()));
    }
    let results = outputs.iter().map(|(name, fact)| match element(fact.dtype) {
        Some(element) => Ok(format!("{} {{coreai.name = \"{name}\"}}", tensor(element, fact))),
        None => Err(CoreAiError::Feature { function: writer.name.into(), name: name.clone(), found: fact.clone() }),
    });
    let results = results.collect::<Result<Vec<_>, _>>()?.join(", ");
    let head = format!("  coreai.graph @{name}({}) -> ({results}) {{", operands.join(", "));
    writer.shared.text.line(name, &head);
    for (value, node) in graph.nodes() {
        writer.node(value, node)?;
    }
    writer.outputs();
    Ok(FunctionFacts { name: name.into(), inputs, outputs, lines: writer.lines })
}

/// A value of the text: `%id` of that type. Operands come first, then results in the order of the lines.
#[derive(Clone)]
struct Slot {
    id: usize,
    r#type: String,
}

struct FunctionWriter<'w, 'a, W> {
    name: &'w str,
    graph: &'w Graph,
    shared: &'w mut Shared<'a, W>,
    values: HashMap<ValueId, Slot>,
    /// Parameters written so far.
    params: BTreeMap<Param, Slot>,
    lines: Vec<Line>,
    /// Constants that stand in the text as their casts alone.
    folded: Vec<bool>,
}

type Features = Vec<(String, Fact)>;

impl<W: Write + Seek> FunctionWriter<'_, '_, W> {
    /// Inputs and outputs, each with a name of its own: neither the parser nor the verifier asks for one.
    fn features(&self) -> Result<(Features, Features), CoreAiError> {
        let graph = self.graph;
        let inputs = graph.inputs().iter().filter_map(|value| {
            let node = graph.node(*value);
            if let Op::Input(name) = &node.op { Some((name.clone(), node.fact.clone())) } else { None }
        });
        let outputs = graph.outputs().iter().map(|o| (o.name.clone(), graph.fact(o.value).clone()));
        let (inputs, outputs): (Features, Features) = (inputs.collect(), outputs.collect());
        let mut seen = std::collections::BTreeSet::new();
        for (name, _) in inputs.iter().chain(&outputs) {
            if !super::is_legal(name) {
                return Err(CoreAiError::IllegalName { what: "feature", name: name.clone() });
            }
            if !seen.insert(name) {
                return Err(CoreAiError::SameFeature { function: self.name.into(), name: name.clone() });
            }
        }
        Ok((inputs, outputs))
    }

    fn node(&mut self, value: ValueId, node: &Node) -> Result<(), CoreAiError> {
        match &node.op {
            Op::Input(_) => Ok(()),
            Op::Const(_) if self.folded.get(value.index()) == Some(&true) => Ok(()),
            Op::Const(id) => {
                let slot = self.weight(node, self.graph.weight(*id), &node.fact)?;
                self.values.insert(value, slot);
                Ok(())
            }
            Op::Conv(_)
            | Op::Linear
            | Op::MatMul
            | Op::Einsum
            | Op::Unary(_)
            | Op::Binary(_)
            | Op::Reduce { .. }
            | Op::ArgMax { .. }
            | Op::Softmax { .. }
            | Op::Transpose { .. }
            | Op::Reshape { .. }
            | Op::Slice { .. }
            | Op::Concat { .. }
            | Op::Pad { .. }
            | Op::Cast(_)
            | Op::Dequantize => match folded(self.graph, node) {
                Some(weight) => {
                    let slot = self.weight(node, weight, &node.fact)?;
                    self.values.insert(value, slot);
                    Ok(())
                }
                None => self.computed(value, node),
            },
        }
    }

    fn computed(&mut self, value: ValueId, node: &Node) -> Result<(), CoreAiError> {
        let graph = self.graph;
        let args: Vec<(ValueId, &Fact)> = node.args.iter().map(|a| (*a, graph.fact(*a))).collect();
        let steps = legalize(&node.op, &args, &node.fact).map_err(|reason| self.unsupported(node, reason))?;
        let mut results: Vec<Slot> = Vec::new();
        for step in steps {
            if let Some(slot) = self.reshaped(node, &step)? {
                results.push(slot);
                continue;
            }
            let mut operands = Vec::new();
            for operand in &step.inputs {
                let slot = match operand {
                    Operand::Value(value) => self.values.get(value).cloned(),
                    Operand::Step(at) => results.get(*at).cloned(),
                    Operand::Param(param) => Some(self.param(node, param)?),
                };
                operands.push(slot.ok_or_else(|| self.unsupported(node, "an operand comes after it"))?);
            }
            results.push(self.step(node, &step, &operands)?);
        }
        let last = results.pop().ok_or_else(|| self.unsupported(node, "nothing computes it"))?;
        self.values.insert(value, last);
        Ok(())
    }

    /// A reshaped constant is written as a constant of the new shape: the serializer would fold the two, and give the
    /// result a name made of random letters.
    fn reshaped(&mut self, node: &Node, step: &Step) -> Result<Option<Slot>, CoreAiError> {
        match (step.kind, step.inputs.first()) {
            ("reshape", Some(Operand::Value(value))) => match constant(self.graph, *value) {
                Some(weight) => self.weight(node, weight, &step.fact).map(Some),
                None => Ok(None),
            },
            _ => Ok(None),
        }
    }

    fn step(&mut self, node: &Node, step: &Step, operands: &[Slot]) -> Result<Slot, CoreAiError> {
        let r#type = self.r#type(node, &step.fact)?;
        let ids: Vec<String> = operands.iter().map(|o| format!("%{}", o.id)).collect();
        let types: Vec<&str> = operands.iter().map(|o| o.r#type.as_str()).collect();
        let types = types.join(", ");
        let signature = match form(step.kind) {
            Form::Bare => format!("{types} -> {type}"),
            Form::Parentheses => format!("({types}) -> {type}"),
            Form::To => format!("{types} to {type}"),
        };
        let body = format!("coreai.{} {}{} : {signature}", step.kind, ids.join(", "), step.attribute);
        Ok(self.push(&node.path, &body, step.kind, operands.iter().map(|o| o.id).collect(), r#type, None))
    }

    fn push(
        &mut self,
        path: &str,
        body: &str,
        kind: &str,
        operands: Vec<usize>,
        r#type: String,
        value: Option<Hash>,
    ) -> Slot {
        let id = self.graph.inputs().len() + self.lines.len();
        self.shared.text.line(path, &format!("    %{id} = {body} loc(unknown)"));
        self.lines.push(Line { kind: named(kind), operands, results: vec![r#type.clone()], value });
        Slot { id, r#type }
    }

    /// The parameter as a constant of this function, which is written where it is first needed.
    fn param(&mut self, node: &Node, param: &Param) -> Result<Slot, CoreAiError> {
        if let Some(slot) = self.params.get(param) {
            return Ok(slot.clone());
        }
        let (fact, bytes) = param.tensor();
        let r#type = self.r#type(node, &fact)?;
        let body = format!("coreai.{CONSTANT} dense<{}> : {type}", param.literal());
        let slot = self.push(&node.path, &body, CONSTANT, Vec::new(), r#type, Some(blake3::hash(&bytes)));
        self.params.insert(param.clone(), slot.clone());
        Ok(slot)
    }

    /// `fact` is the weight's, or has another shape of as many elements, or is f32 where the weight is f16.
    fn weight(&mut self, node: &Node, weight: &Weight, fact: &Fact) -> Result<Slot, CoreAiError> {
        let r#type = self.r#type(node, fact)?;
        let failed = |source| match source {
            MaterializeError::Sink(source) => CoreAiError::WeightFile(source),
            source @ (MaterializeError::Source(_) | MaterializeError::Value { .. }) => {
                CoreAiError::Weight { function: self.name.into(), node: node.path.clone(), source: Box::new(source) }
            }
        };
        let Shared { weights, file, .. } = &mut *self.shared;
        let (values, digest) = if fact.shape.elements() >= WEIGHT_FILE_FROM {
            let (placeholder, digest) = resource(weights, file, weight, fact.dtype).map_err(failed)?;
            (format!("dense_resource<{placeholder}>"), digest)
        } else {
            let mut bytes = Vec::new();
            let taken = stream(weights, weight, fact.dtype, |block| {
                bytes.extend_from_slice(block);
                Ok(())
            });
            taken.map_err(failed)?;
            (format!("dense<\"0x{}\">", hex(&bytes)), blake3::hash(&bytes))
        };
        let body = format!("coreai.{CONSTANT} {values} : {type}");
        Ok(self.push(&node.path, &body, CONSTANT, Vec::new(), r#type, Some(digest)))
    }

    fn outputs(&mut self) {
        let slots: Vec<Slot> = self.graph.outputs().iter().filter_map(|o| self.values.get(&o.value).cloned()).collect();
        let ids: Vec<String> = slots.iter().map(|s| format!("%{}", s.id)).collect();
        let types: Vec<&str> = slots.iter().map(|s| s.r#type.as_str()).collect();
        let line = format!("    coreai.output {} : {} loc(unknown)", ids.join(", "), types.join(", "));
        self.shared.text.line(self.name, &line);
        self.shared.text.line(self.name, "  } loc(unknown)");
        let operands = slots.iter().map(|s| s.id).collect();
        self.lines.push(Line { kind: named("output"), operands, results: Vec::new(), value: None });
    }

    fn r#type(&self, node: &Node, fact: &Fact) -> Result<String, CoreAiError> {
        let element = element(fact.dtype).ok_or_else(|| self.unsupported(node, "no tensor of that dtype is taken"))?;
        Ok(tensor(element, fact))
    }

    fn unsupported(&self, node: &Node, reason: &'static str) -> CoreAiError {
        CoreAiError::Unsupported {
            function: self.name.into(),
            node: node.path.clone(),
            op: node.op.name(),
            found: node.fact.clone(),
            reason,
        }
    }
}

fn resource<W: Write + Seek>(
    weights: &mut Materializer<'_>,
    file: &mut WeightFile<W>,
    weight: &Weight,
    dtype: DType,
) -> Result<(String, Hash), MaterializeError<io::Error>> {
    // Floats of another dtype are widened as they are read: then the stored bytes are not the weight's.
    let stored_as = |name: &&str| weights.source().fact(name).is_some_and(|stored| stored.dtype == dtype);
    let as_it_is = weight.verbatim().filter(|_| weight.fact().dtype == dtype).filter(stored_as);
    let mut pending = match as_it_is.and_then(|name| weights.source().stretch(name)) {
        Some((path, offset)) if WeightFile::<W>::leaves(weight.fact().bytes() as u64) => {
            return file.leave(path, offset, weight.fact().bytes() as u64).map_err(MaterializeError::Sink);
        }
        Some((path, offset)) => file.begin_elsewhere(path, offset),
        None => file.begin().map_err(MaterializeError::Sink)?,
    };
    stream(weights, weight, dtype, |block| pending.write(block))?;
    pending.finish().map_err(MaterializeError::Sink)
}

/// Streams a weight in its own dtype, or an f16 one widened to f32.
fn stream(
    weights: &mut Materializer<'_>,
    weight: &Weight,
    dtype: DType,
    mut sink: impl FnMut(&[u8]) -> io::Result<()>,
) -> Result<(), MaterializeError<io::Error>> {
    let own = weight.fact().dtype;
    if own == dtype {
        return weights.stream(weight, sink);
    }
    let mut bytes = Vec::new();
    weights.stream(weight, |block| {
        let mut values = vec![0f32; block.len() / own.size()];
        widen(own, block, &mut values);
        bytes.clear();
        bytes_of_f32(&values, &mut bytes).map_err(io::Error::other)?;
        sink(&bytes)
    })
}

/// The weight behind a value that stands in the text as a constant.
fn constant(graph: &Graph, value: ValueId) -> Option<&Weight> {
    graph.constant(value).or_else(|| folded(graph, graph.node(value)))
}

/// The weight whose cast `node` is, where the serializer would compute it.
fn folded<'g>(graph: &'g Graph, node: &Node) -> Option<&'g Weight> {
    match (&node.op, node.args.as_slice()) {
        (Op::Cast(DType::F32), [x]) if node.fact.shape.elements() <= FOLDED_MAX => {
            graph.constant(*x).filter(|weight| weight.fact().dtype == DType::F16)
        }
        _ => None,
    }
}

/// How an operation is punctuated; the parser takes each one in its own form only.
enum Form {
    Bare,
    Parentheses,
    To,
}

fn form(kind: &str) -> Form {
    match kind {
        "abs" | "rsqrt" | "tanh" | "gelu" => Form::Bare,
        "cast" => Form::To,
        _ => Form::Parentheses,
    }
}

/// The dialect's name of a dtype. 64-bit types are left out: the CPU runtime takes them, and nothing says who else.
/// So is bf16, which no graph of ours computes in.
fn element(dtype: DType) -> Option<&'static str> {
    Some(match dtype {
        DType::F32 => "f32",
        DType::F16 => "f16",
        DType::I32 => "si32",
        DType::I16 => "si16",
        DType::I8 => "si8",
        DType::U32 => "ui32",
        DType::U16 => "ui16",
        DType::U8 => "ui8",
        DType::Bool => "i1",
        DType::F64 | DType::BF16 | DType::I64 | DType::U64 => return None,
    })
}

/// The dialect's type of a value, where it has one.
pub(super) fn type_of(fact: &Fact) -> Option<String> {
    element(fact.dtype).map(|element| tensor(element, fact))
}

/// The fact of a value, from its type as [`type_of`] gives it.
pub(super) fn fact_of(text: &str) -> Option<Fact> {
    let inner = text.strip_prefix("tensor<")?.strip_suffix('>')?;
    let mut parts: Vec<&str> = inner.split('x').collect();
    let name = parts.pop()?;
    let dtype = DType::ALL.into_iter().find(|dtype| element(*dtype) == Some(name))?;
    let dims = parts.into_iter().map(|extent| extent.parse().ok()).collect::<Option<Vec<usize>>>()?;
    let fact = Fact::new(dtype, dims);
    // A type that another tool wrote may say anything.
    fact.shape.checked_elements().and_then(|n| n.checked_mul(dtype.size())).map(|_| fact)
}

fn tensor(element: &str, fact: &Fact) -> String {
    let dims: String = fact.shape.dims().iter().map(|d| format!("{d}x")).collect();
    format!("tensor<{dims}{element}>")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02X}");
        text
    })
}
