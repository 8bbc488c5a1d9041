//! Inputs, outputs and public names. A feature's name is its value's name in the program, so all share one space.

use super::{Violation, list};
use crate::ir::{Graph, Op};
use crate::target::{Target, check_name};
use crate::tensor::Fact;
use std::collections::BTreeMap;

const INPUT: &str = "input";
const OUTPUT: &str = "output";

pub(super) fn check(graph: &Graph, target: &Target, found: &mut Vec<Violation>) {
    legal_name("the graph", graph.name(), found);
    let mut taken = BTreeMap::new();
    for feature in features(graph) {
        let Feature { side, name, fact } = feature;
        legal_name(side, name, found);
        if let Some(first) = taken.insert(name, side) {
            found.push(Violation::NameTwice { name: name.into(), first, second: side });
        }
        let (name, found_fact) = (name.to_owned(), fact.clone());
        if !target.feature_dtypes.contains(&fact.dtype) {
            let expected = list(target.feature_dtypes);
            found.push(Violation::FeatureDType { side, name, found: found_fact, expected });
        } else if fact.shape.rank() == 0 {
            found.push(Violation::FeatureScalar { side, name, found: found_fact });
        }
    }
    for side in [INPUT, OUTPUT] {
        if !features(graph).any(|f| f.side == side) {
            found.push(Violation::NoFeature { side });
        }
    }
}

struct Feature<'g> {
    side: &'static str,
    name: &'g str,
    fact: &'g Fact,
}

fn features(graph: &Graph) -> impl Iterator<Item = Feature<'_>> {
    let inputs = graph.nodes().filter_map(|(_, node)| {
        if let Op::Input(name) = &node.op { Some(Feature { side: INPUT, name, fact: &node.fact }) } else { None }
    });
    let outputs = graph.outputs().iter().map(|o| Feature { side: OUTPUT, name: &o.name, fact: graph.fact(o.value) });
    inputs.chain(outputs)
}

fn legal_name(what: &'static str, name: &str, found: &mut Vec<Violation>) {
    if let Err(fault) = check_name(name) {
        found.push(Violation::Name { what, name: name.into(), fault });
    }
}
