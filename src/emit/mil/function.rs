//! One graph as one function of the program.

use super::blob::{BlobWriter, Stored};
use super::codes::codes;
use super::compressed::{Compressed, compressed};
use super::legalize::{Call, Operand, Param, legalize};
use super::names::{Names, is_legal};
use super::schema::{Block, FeatureDescription, Function, NamedValueType, Operation, Value};
use super::value::{Storage, argument, at_hand, constant, immediate, in_file, operation, storage, string, tensor_type};
use super::{ConstantName, Description, MilError, MilReport, ValueDigest};
use crate::ir::{Graph, MaterializeError, Materializer, Node, Op, ValueId, Weight};
use crate::tensor::Fact;
use std::collections::{BTreeMap, HashMap};
use std::io::{self, Seek, Write};

/// The opset of [`super::writer::SPECIFICATION`].
const OPSET: &str = "CoreML8";

/// What all functions of a package share.
pub(super) struct Package<'a, W> {
    pub blobs: BlobWriter<W>,
    pub weights: Materializer<'a>,
    pub report: MilReport,
}

/// A function and the features it has.
pub(super) struct Written {
    pub function: Function,
    pub inputs: Vec<FeatureDescription>,
    pub outputs: Vec<FeatureDescription>,
}

/// Writes `graph` as the function `name`; its weights go to the package.
pub(super) fn write_function<W: Write + Seek>(
    name: &str,
    graph: &Graph,
    description: &Description,
    package: &mut Package<'_, W>,
) -> Result<Written, MilError> {
    let mut writer = FunctionWriter {
        name,
        graph,
        package,
        names: Names::default(),
        values: HashMap::new(),
        params: BTreeMap::new(),
        operations: Vec::new(),
        digests: BTreeMap::new(),
        stored: graph.read_only_by(|node| compressed(graph, node).is_some()),
    };
    let features = writer.features(description)?;
    for (value, node) in graph.nodes() {
        writer.node(value, node)?;
    }
    writer.aliases()?;
    let inputs = graph.inputs().iter().filter_map(|value| {
        let node = graph.node(*value);
        if let Op::Input(name) = &node.op { Some(named(name, &node.fact)) } else { None }
    });
    let mut function = Function { inputs: inputs.collect(), opset: OPSET.into(), ..Function::default() };
    let outputs = graph.outputs().iter().map(|o| o.name.clone()).collect();
    let block = Block { outputs, operations: writer.operations };
    writer.package.report.nodes.push(writer.digests);
    function.block_specializations.insert(OPSET.into(), block);
    Ok(Written { function, inputs: features.0, outputs: features.1 })
}

struct FunctionWriter<'w, 'a, W> {
    name: &'w str,
    graph: &'w Graph,
    package: &'w mut Package<'a, W>,
    names: Names,
    /// Names of inputs and outputs first, then of every node that was written.
    values: HashMap<ValueId, String>,
    /// Names of the parameters written so far, by input and value.
    params: BTreeMap<(&'static str, Param), String>,
    operations: Vec<Operation>,
    /// Digests of the graph's constants, by node.
    digests: BTreeMap<usize, ValueDigest>,
    /// Constants that stand at the operations which read them.
    stored: Vec<bool>,
}

impl<W: Write + Seek> FunctionWriter<'_, '_, W> {
    /// Describes the features and takes their names before anything else can.
    fn features(
        &mut self,
        description: &Description,
    ) -> Result<(Vec<FeatureDescription>, Vec<FeatureDescription>), MilError> {
        let graph = self.graph;
        let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
        for &value in graph.inputs() {
            let node = graph.node(value);
            if let Op::Input(name) = &node.op {
                inputs.push(self.feature(name, &node.fact, description)?);
                self.values.insert(value, name.clone());
            }
        }
        for output in graph.outputs() {
            let node = graph.node(output.value);
            outputs.push(self.feature(&output.name, &node.fact, description)?);
            if !matches!(node.op, Op::Input(_) | Op::Const(_)) && compressed(graph, node).is_none() {
                self.values.entry(output.value).or_insert_with(|| output.name.clone());
            }
        }
        Ok((inputs, outputs))
    }

    fn feature(&mut self, name: &str, fact: &Fact, description: &Description) -> Result<FeatureDescription, MilError> {
        if !is_legal(name) {
            return Err(MilError::IllegalName { what: "feature", name: name.into() });
        }
        let function = || self.name.to_owned();
        if !self.names.claim(name) {
            return Err(MilError::SameFeature { function: function(), name: name.into() });
        }
        let feature = description.feature(name, fact);
        feature.ok_or_else(|| MilError::Feature { function: function(), name: name.into(), found: fact.clone() })
    }

    fn node(&mut self, value: ValueId, node: &Node) -> Result<(), MilError> {
        match &node.op {
            Op::Input(_) => Ok(()),
            Op::Const(_) if self.stored.get(value.index()) == Some(&true) => Ok(()),
            Op::Const(id) => {
                let name = self.names.fresh(&node.path);
                let weight = self.graph.weight(*id);
                let (val, digest) = self.weight(&name, node, weight)?;
                self.digests.insert(value.index(), digest);
                self.push(constant(&name, val));
                self.values.insert(value, name);
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
            | Op::Dequantize => match compressed(self.graph, node) {
                Some(spelling) => self.compressed(value, node, spelling),
                None => self.computed(value, node),
            },
        }
    }

    fn computed(&mut self, value: ValueId, node: &Node) -> Result<(), MilError> {
        let graph = self.graph;
        let args: Vec<(ValueId, &Fact)> = node.args.iter().map(|a| (*a, graph.fact(*a))).collect();
        let Call { kind, inputs } = legalize(&node.op, &args, &node.fact).map_err(|r| self.unsupported(node, r))?;
        let mut arguments = BTreeMap::new();
        for (input, operand) in inputs {
            let argument = match operand {
                Operand::Value(value) => argument([self.value(value)]),
                Operand::Values(values) => argument(values.iter().map(|v| self.value(*v))),
                Operand::Param(param) => argument([self.param(node, input, param)?.as_str()]),
            };
            arguments.insert(input.to_owned(), argument);
        }
        let name = match self.values.get(&value) {
            Some(feature) => feature.clone(),
            None => self.names.fresh(&node.path),
        };
        self.push(operation(kind, arguments, named(&name, &node.fact)));
        self.values.insert(value, name);
        Ok(())
    }

    /// A stored constant and what brings it to the form it is computed in, as one operation.
    fn compressed(&mut self, value: ValueId, node: &Node, spelling: Compressed) -> Result<(), MilError> {
        let graph = self.graph;
        let name = self.names.fresh(&node.path);
        let mut operands = BTreeMap::new();
        for (input, operand) in spelling.stored {
            let Some(weight) = graph.constant(operand) else { continue };
            let (val, digest) = self.weight(&format!("{name}.{input}"), graph.node(operand), weight)?;
            self.digests.insert(operand.index(), digest);
            operands.insert(input.to_owned(), val);
        }
        if let Some((input, text)) = spelling.text {
            self.package.report.immediates += 1;
            operands.insert(input.to_owned(), string(text));
        }
        let mut op = operation(spelling.kind, BTreeMap::new(), named(&name, &node.fact));
        if spelling.in_attributes {
            op.attributes.extend(operands);
        } else {
            op.inputs.extend(operands.into_iter().map(|(input, val)| (input, at_hand(val))));
        }
        self.push(op);
        self.values.insert(value, name);
        Ok(())
    }

    /// An output that is an input, a constant or another output too needs an operation of its own to carry its name.
    fn aliases(&mut self) -> Result<(), MilError> {
        for output in self.graph.outputs() {
            let carrier = self.value(output.value).to_owned();
            if carrier != output.name {
                let arguments = BTreeMap::from([("x".to_owned(), argument([carrier.as_str()]))]);
                let result = named(&output.name, self.graph.fact(output.value));
                self.push(operation("identity", arguments, result));
            }
        }
        Ok(())
    }

    /// Name of a value written before; a graph is in topological order, so there is one.
    fn value(&self, value: ValueId) -> &str {
        self.values.get(&value).map_or("", String::as_str)
    }

    /// The parameter as a constant of this function, which is written where it is first needed.
    fn param(&mut self, node: &Node, input: &'static str, param: Param) -> Result<String, MilError> {
        if let Some(name) = self.params.get(&(input, param.clone())) {
            return Ok(name.clone());
        }
        let name = self.names.fresh(&param.label(input));
        let value = match (&param, param.tensor()) {
            (Param::Text(text), _) => {
                self.package.report.immediates += 1;
                string(text)
            }
            (_, Some((fact, bytes))) => self.values_at_hand(&name, node, &fact, &bytes)?.0,
            (_, None) => return Err(self.unsupported(node, "a parameter has no values")),
        };
        self.push(constant(&name, value));
        self.params.insert((input, param), name.clone());
        Ok(name)
    }

    fn values_at_hand(
        &mut self,
        name: &str,
        node: &Node,
        fact: &Fact,
        bytes: &[u8],
    ) -> Result<(Value, ValueDigest), MilError> {
        self.store(name, node, fact, |_, sink| sink(bytes).map_err(MaterializeError::Sink))
    }

    fn weight(&mut self, name: &str, node: &Node, weight: &Weight) -> Result<(Value, ValueDigest), MilError> {
        self.store(name, node, weight.fact(), |weights, sink| weights.stream(weight, sink))
    }

    /// Puts the values that `fill` hands over where they belong.
    fn store(
        &mut self,
        name: &str,
        node: &Node,
        fact: &Fact,
        fill: impl FnOnce(&mut Materializer<'_>, &mut dyn FnMut(&[u8]) -> io::Result<()>) -> Filled,
    ) -> Result<(Value, ValueDigest), MilError> {
        let codes = codes(fact.dtype).ok_or_else(|| self.unsupported(node, "no constant of that dtype exists"))?;
        let r#type = tensor_type(&codes, fact.shape.dims());
        let Package { blobs, weights, report } = &mut *self.package;
        let (value, digest) = match storage(&codes, fact) {
            Storage::Blob(code) => {
                report.blobs += 1;
                let Stored { offset, digest } = blobs
                    .begin(fact.dtype, code, fact.bytes() as u64)
                    .map_err(MaterializeError::Sink)
                    .and_then(|mut record| {
                        fill(weights, &mut |bytes| record.write(bytes))?;
                        record.finish().map_err(MaterializeError::Sink)
                    })
                    .map_err(|source| failed(self.name, node, source))?;
                (in_file(r#type, offset), digest)
            }
            Storage::Immediate => {
                report.immediates += 1;
                let mut values = Vec::new();
                fill(weights, &mut |bytes| {
                    values.extend_from_slice(bytes);
                    Ok(())
                })
                .map_err(|source| failed(self.name, node, source))?;
                (immediate(fact.dtype, r#type, &values), ValueDigest::of(fact.dtype, &values))
            }
        };
        report.values.insert(ConstantName { function: self.name.into(), name: name.into() }, digest);
        Ok((value, digest))
    }

    fn push(&mut self, op: Operation) {
        *self.package.report.ops.entry(op.r#type.clone()).or_default() += 1;
        self.operations.push(op);
    }

    fn unsupported(&self, node: &Node, reason: &'static str) -> MilError {
        MilError::Unsupported {
            function: self.name.into(),
            node: node.path.clone(),
            op: node.op.name(),
            found: node.fact.clone(),
            reason,
        }
    }
}

type Filled = Result<(), MaterializeError<io::Error>>;

fn failed(function: &str, node: &Node, source: MaterializeError<io::Error>) -> MilError {
    let (function, node) = (function.into(), node.path.clone());
    match source {
        MaterializeError::Sink(source) => MilError::WeightFile { function, node, source },
        source @ (MaterializeError::Source(_) | MaterializeError::Value { .. }) => {
            MilError::Weight { function, node, source: Box::new(source) }
        }
    }
}

/// A value and its type; a dtype without code was refused when the value's operation was spelled.
fn named(name: &str, fact: &Fact) -> NamedValueType {
    NamedValueType { name: name.into(), r#type: codes(fact.dtype).map(|c| tensor_type(&c, fact.shape.dims())) }
}
