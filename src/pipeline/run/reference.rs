//! `.mlpackage` by this program's evaluator.

use super::{Callable, RunError};
use crate::emit::mil::read::Package;
use crate::eval::{Evaluator, HostTensor, Options, Report};
use crate::ir::{Graph, Op};
use crate::tensor::Fact;
use crate::validate;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A package and its functions as graphs.
#[derive(Debug)]
pub struct Opened {
    path: PathBuf,
    package: Package,
    graphs: Vec<Graph>,
}

impl Opened {
    /// The function `named`, or the package's default one.
    ///
    /// # Errors
    /// The package cannot be used, or has no such function.
    pub fn one(path: &Path, named: Option<&str>) -> Result<Opened, RunError> {
        let package = Package::open(path)?;
        let graphs = vec![package.lift(named.unwrap_or(package.default_function()))?];
        Ok(Opened { path: path.into(), package, graphs })
    }

    /// All functions.
    ///
    /// # Errors
    /// The package cannot be used.
    pub fn all(path: &Path) -> Result<Opened, RunError> {
        let package = Package::open(path)?;
        let names: Vec<&str> = package.functions().iter().map(|f| f.name.as_str()).collect();
        let graphs = names.iter().map(|name| package.lift(name)).collect::<Result<_, _>>()?;
        Ok(Opened { path: path.into(), package, graphs })
    }

    /// The functions, ready to be run.
    ///
    /// # Errors
    /// A graph breaks a rule.
    pub fn functions(&self, options: Options) -> Result<Vec<Callable<'_>>, RunError> {
        self.graphs.iter().map(|graph| self.function(graph, options)).collect()
    }

    fn function<'o>(&'o self, graph: &'o Graph, options: Options) -> Result<Callable<'o>, RunError> {
        let checked = validate::check(graph).map_err(|found| RunError::Invalid { path: self.path.clone(), found })?;
        let inputs: Vec<(String, Fact)> = graph
            .inputs()
            .iter()
            .filter_map(|value| {
                let node = graph.node(*value);
                if let Op::Input(name) = &node.op { Some((name.clone(), node.fact.clone())) } else { None }
            })
            .collect();
        let outputs = graph.outputs().iter().map(|output| (output.name.clone(), graph.fact(output.value).clone())).collect();
        let run = Function(Evaluator::new(checked, &self.package, options));
        Ok(Callable { name: graph.name().into(), inputs, outputs, run: Box::new(run) })
    }
}

struct Function<'a>(Evaluator<'a>);

impl super::Run for Function<'_> {
    fn run(&self, inputs: &BTreeMap<String, HostTensor>) -> Result<(BTreeMap<String, HostTensor>, Report), RunError> {
        Ok(self.0.run(inputs)?)
    }
}
