//! `.mlpackage` by this program's evaluator.

use super::{RunError, RunOptions, read_inputs};
use crate::emit::mil::read::Package;
use crate::eval::{Evaluator, HostTensor, Report};
use crate::ir::Op;
use crate::validate;
use std::collections::BTreeMap;

/// Outputs of the function, by name.
///
/// # Errors
/// The package or an input cannot be used.
pub(super) fn run(options: &RunOptions) -> Result<(BTreeMap<String, HostTensor>, Report), RunError> {
    let package = Package::open(&options.artefact)?;
    let graph = package.lift(options.function.as_deref().unwrap_or(package.default_function()))?;
    let checked =
        validate::check(&graph).map_err(|found| RunError::Invalid { path: options.artefact.clone(), found })?;
    let names = graph
        .inputs()
        .iter()
        .filter_map(|value| if let Op::Input(name) = &graph.node(*value).op { Some(name.as_str()) } else { None });
    let inputs = read_inputs(names, &options.inputs)?;
    Ok(Evaluator::new(checked, &package, options.evaluate).run(&inputs)?)
}
