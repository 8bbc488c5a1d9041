//! Graphs by this program's evaluator: those of an `.mlpackage`, or freshly authored ones.

use super::{Callable, RunError};
use crate::emit::mil::read::Package;
use crate::eval::{Evaluator, HostTensor, Options, Report};
use crate::ir::{Graph, Op};
use crate::tensor::{Fact, WeightSource};
use crate::validate;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Graphs and their weights.
pub struct Opened {
    path: PathBuf,
    source: Box<dyn WeightSource + Send>,
    graphs: Vec<Graph>,
    /// What whoever made the package says of it.
    pub metadata: BTreeMap<String, String>,
}

impl Opened {
    /// The function `named`, or the package's default one.
    ///
    /// # Errors
    /// The package cannot be used, or has no such function.
    pub fn one(path: &Path, named: Option<&str>) -> Result<Opened, RunError> {
        let package = Package::open(path)?;
        let graphs = vec![package.lift(named.unwrap_or(package.default_function()))?];
        Ok(Self::of(path, package, graphs))
    }

    /// All functions.
    ///
    /// # Errors
    /// The package cannot be used.
    pub fn all(path: &Path) -> Result<Opened, RunError> {
        let package = Package::open(path)?;
        let names: Vec<&str> = package.functions().iter().map(|f| f.name.as_str()).collect();
        let graphs = names.iter().map(|name| package.lift(name)).collect::<Result<_, _>>()?;
        Ok(Self::of(path, package, graphs))
    }

    fn of(path: &Path, package: Package, graphs: Vec<Graph>) -> Opened {
        let metadata = package.description().metadata.user_defined.clone();
        Opened { path: path.into(), source: Box::new(package), graphs, metadata }
    }

    /// Graphs authored from the weights at `path`.
    pub fn authored(path: &Path, source: Box<dyn WeightSource + Send>, graphs: Vec<Graph>) -> Opened {
        Opened { path: path.into(), source, graphs, metadata: BTreeMap::new() }
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
        let outputs =
            graph.outputs().iter().map(|output| (output.name.clone(), graph.fact(output.value).clone())).collect();
        let run = Function(Evaluator::new(checked, &*self.source, options));
        Ok(Callable { name: graph.name().into(), inputs, outputs, run: Box::new(run) })
    }
}

struct Function<'a>(Evaluator<'a>);

impl super::Run for Function<'_> {
    fn run(&self, inputs: &BTreeMap<String, HostTensor>) -> Result<(BTreeMap<String, HostTensor>, Report), RunError> {
        Ok(self.0.run(inputs)?)
    }
}
