//! What a loader lets pass in silence: names, types, opset, description, constants.

use super::blob::all_finite;
use super::constant::{Constant, Content};
use super::description::{Feature, Features};
use super::error::Violation;
use super::package::Package;
use super::program::{Function, Named, ValueKind};
use std::collections::BTreeSet;

/// Highest rank of a value that Core ML loads.
const RANK: usize = 5;

pub(super) fn violations(package: &Package) -> Vec<Violation> {
    let mut found = Vec::new();
    for function in &package.functions {
        opset(package.version, function, &mut found);
        values(function, &mut found);
        declared_twice(function, &mut found);
    }
    description(package, &mut found);
    for constant in package.constants.values() {
        content(package, constant, &mut found);
    }
    found
}

fn opset(version: u64, function: &Function, found: &mut Vec<Violation>) {
    let want = match version {
        ..=6 => "CoreML5",
        7 => "CoreML6",
        8 => "CoreML7",
        9 => "CoreML8",
        10.. => "CoreML9",
    };
    if function.opset != want {
        let (function, opset) = (function.name.clone(), function.opset.clone());
        found.push(Violation::Opset { function, version, want, found: opset });
    }
}

/// Names and types of every value, inputs included.
fn values(function: &Function, found: &mut Vec<Violation>) {
    let mut names = BTreeSet::new();
    name("function", &function.name, found);
    let inputs = function.inputs.iter().map(|input| (input, false));
    let results = function.operations.iter().flat_map(|op| {
        let compressed = op.kind.starts_with("constexpr_");
        op.outputs.iter().map(move |output| (output, compressed))
    });
    for (Named { name: value, kind }, compressed) in inputs.chain(results) {
        name("value", value, found);
        let place = || (function.name.clone(), value.clone());
        if !names.insert(value) {
            let (function, name) = place();
            found.push(Violation::SameName { function, name });
        }
        let dims = kind.tensor().map_or(&[][..], |tensor| &tensor.dims);
        if dims.len() > RANK && !compressed {
            let (function, name) = place();
            found.push(Violation::Rank { function, name, rank: dims.len() });
        }
        if dims.iter().any(Option::is_none) {
            let (function, name) = place();
            found.push(Violation::Dynamic { function, name });
        }
    }
}

fn name(what: &'static str, name: &str, found: &mut Vec<Violation>) {
    let mut bytes = name.bytes();
    let start = bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_');
    if !(start && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_')) {
        found.push(Violation::IllegalName { what, name: name.into() });
    }
}

/// A constant's type stands at its result and at its value.
fn declared_twice(function: &Function, found: &mut Vec<Violation>) {
    for op in function.operations.iter().filter(|op| op.kind == "const") {
        if let (Some(output), Some(value)) = (op.outputs.first(), op.attributes.get("val"))
            && output.kind != value.kind
        {
            found.push(Violation::Declared {
                function: function.name.clone(),
                name: output.name.clone(),
                declared: shown(&output.kind),
                found: shown(&value.kind),
            });
        }
    }
}

fn shown(kind: &ValueKind) -> String {
    match kind {
        ValueKind::Tensor(tensor) => tensor.to_string(),
        ValueKind::State(tensor) => format!("state {tensor}"),
        ValueKind::Other => "no tensor".into(),
    }
}

/// Functions and features of the description against those of the program.
fn description(package: &Package, found: &mut Vec<Violation>) {
    let description = &package.description;
    if description.functions.is_empty() {
        match package.functions.as_slice() {
            [only] => features(only, &description.top, found),
            several => found.extend(several.iter().map(|f| one_sided(&f.name, "program"))),
        }
        return;
    }
    for function in &package.functions {
        match description.functions.iter().find(|(name, _)| *name == function.name) {
            Some((_, described)) => features(function, described, found),
            None => found.push(one_sided(&function.name, "program")),
        }
    }
    for (name, _) in &description.functions {
        if !package.functions.iter().any(|f| f.name == *name) {
            found.push(one_sided(name, "description"));
        }
    }
    if !description.functions.iter().any(|(name, _)| *name == description.default_function) {
        found.push(Violation::Default { name: description.default_function.clone() });
    }
}

fn one_sided(function: &str, place: &'static str) -> Violation {
    Violation::OneSided { function: function.into(), place }
}

fn features(function: &Function, described: &Features, found: &mut Vec<Violation>) {
    let (states, inputs): (Vec<&Named>, Vec<&Named>) =
        function.inputs.iter().partition(|input| matches!(input.kind, ValueKind::State(_)));
    let results: Vec<&Named> = function.operations.iter().flat_map(|op| &op.outputs).chain(inputs.clone()).collect();
    let outputs: Vec<Named> = function
        .outputs
        .iter()
        .map(|name| {
            let value = results.iter().find(|value| value.name == *name);
            Named { name: name.clone(), kind: value.map_or(ValueKind::Other, |v| v.kind.clone()) }
        })
        .collect();
    compare(function, "input", &inputs, &described.inputs, found);
    compare(function, "state", &states, &described.states, found);
    compare(function, "output", &outputs.iter().collect::<Vec<_>>(), &described.outputs, found);
}

/// Values and features must be the same by name, dtype and shape, in any order.
fn compare(
    function: &Function,
    what: &'static str,
    values: &[&Named],
    described: &[Feature],
    found: &mut Vec<Violation>,
) {
    const ABSENT: &str = "not there";
    let mut differ = |name: &str, value: String, want: String| {
        let (function, name) = (function.name.clone(), name.to_owned());
        found.push(Violation::Feature { function, what, name, found: value, want });
    };
    for value in values {
        match described.iter().find(|feature| feature.name == value.name) {
            Some(feature) if feature.kind == value.kind => {}
            Some(feature) => differ(&value.name, shown(&value.kind), shown(&feature.kind)),
            None => differ(&value.name, shown(&value.kind), ABSENT.into()),
        }
    }
    for feature in described {
        if !values.iter().any(|value| value.name == feature.name) {
            differ(&feature.name, ABSENT.into(), shown(&feature.kind));
        }
    }
}

/// The stored values against the declared type.
fn content(package: &Package, constant: &Constant, found: &mut Vec<Violation>) {
    let Constant { function, name, kind, .. } = constant;
    let (function, name) = (function.clone(), name.clone());
    let mut holds = |found_there: String| {
        let (function, name) = (function.clone(), name.clone());
        found.push(Violation::Declared { function, name, declared: kind.to_string(), found: found_there });
    };
    match &constant.content {
        Content::Immediate(bytes) => {
            if kind.element.dtype().is_some_and(|dtype| !all_finite(dtype, bytes)) {
                found.push(Violation::NotFinite { function, name });
            }
        }
        Content::Strings(texts) => {
            if kind.element != super::Element::String || kind.elements() != Some(texts.len() as u64) {
                holds(format!("{} strings", texts.len()));
            }
        }
        Content::Blob(offset) => match package.records.get(offset) {
            None => found.push(Violation::NoRecord { function, name, offset: *offset }),
            Some(record) if record.element != kind.element => holds(record.element.to_string()),
            Some(record) => {
                let bits = (record.size.checked_mul(8)).and_then(|bits| bits.checked_sub(record.unused));
                let want = kind.elements().and_then(|n| n.checked_mul(kind.element.bits()?));
                if bits != want {
                    holds(format!("{} bytes", record.size));
                }
            }
        },
        Content::Misfit(what) => holds(what.clone()),
    }
}
