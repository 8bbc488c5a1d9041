//! Functions of an artefact by the length they take, held against the contract of their model.

use super::TranscribeError;
use crate::pipeline::run::Callable;
use crate::tensor::{Fact, Shape};
use std::path::{Path, PathBuf};

/// The functions of one artefact, shortest first. Whoever has it is the only one who calls any of them.
pub struct ByLength<'a> {
    path: PathBuf,
    functions: Vec<(usize, Callable<'a>)>,
}

impl<'a> ByLength<'a> {
    /// Sorts `functions` by the second axis of `input`.
    ///
    /// # Errors
    /// One lacks that input or that axis.
    pub fn of(path: &Path, functions: Vec<Callable<'a>>, input: &'static str) -> Result<ByLength<'a>, TranscribeError> {
        let length = |function: &Callable<'_>| {
            let fact = function.inputs.iter().find(|(name, _)| name == input).map(|(_, fact)| fact);
            let axis = fact.and_then(|fact| fact.shape.dims().get(1).copied()).filter(|length| *length > 0);
            axis.ok_or_else(|| TranscribeError::Contract {
                path: path.into(),
                function: function.name.clone(),
                feature: input,
                found: fact.map_or_else(|| "absent".into(), Fact::to_string),
                expected: "a tensor whose second axis is its length".into(),
            })
        };
        let mut functions =
            functions.into_iter().map(|f| Ok((length(&f)?, f))).collect::<Result<Vec<_>, TranscribeError>>()?;
        functions.sort_by_key(|(length, _)| *length);
        Ok(ByLength { path: path.into(), functions })
    }

    /// Holds a feature of each function against what `expected` makes of its length.
    ///
    /// # Errors
    /// One is absent or of another shape.
    pub fn hold(&self, feature: &'static str, expected: impl Fn(usize) -> Vec<Extent>) -> Result<(), TranscribeError> {
        for (length, function) in &self.functions {
            let mut all = function.inputs.iter().chain(&function.outputs);
            let fact = all.find(|(name, _)| name == feature).map(|(_, fact)| fact);
            let expected = expected(*length);
            if !fact.is_some_and(|fact| fits(&fact.shape, &expected)) {
                let expected: Vec<String> = expected.iter().map(Extent::told).collect();
                return Err(TranscribeError::Contract {
                    path: self.path.clone(),
                    function: function.name.clone(),
                    feature,
                    found: fact.map_or_else(|| "absent".into(), Fact::to_string),
                    expected: format!("[{}]", expected.join(", ")),
                });
            }
        }
        Ok(())
    }

    /// The last extent of `feature`, where all functions agree on it.
    pub fn width(&self, feature: &'static str) -> Result<usize, TranscribeError> {
        let mut found = None;
        for (_, function) in &self.functions {
            let mut all = function.inputs.iter().chain(&function.outputs);
            let fact = all.find(|(name, _)| name == feature).map(|(_, fact)| fact);
            let width = fact.and_then(|fact| fact.shape.dims().last().copied());
            if width.is_none() || found.is_some_and(|found| Some(found) != width) {
                return Err(TranscribeError::Contract {
                    path: self.path.clone(),
                    function: function.name.clone(),
                    feature,
                    found: fact.map_or_else(|| "absent".into(), Fact::to_string),
                    expected: "the width of the other functions".into(),
                });
            }
            found = width;
        }
        Ok(found.unwrap_or(0))
    }

    /// The longest length.
    pub fn longest(&self) -> usize {
        self.functions.last().map_or(0, |(length, _)| *length)
    }

    /// The shortest function that takes `length`, counted in `unit`, and the length it has.
    ///
    /// # Errors
    /// None takes so much.
    pub fn holding(
        &mut self,
        length: usize,
        unit: &'static str,
    ) -> Result<(usize, &mut Callable<'a>), TranscribeError> {
        let longest = self.longest();
        let path = &self.path;
        let found = self.functions.iter_mut().find(|(has, _)| *has >= length);
        found.map(|(has, function)| (*has, function)).ok_or_else(|| TranscribeError::Window {
            path: path.clone(),
            found: length,
            longest,
            unit,
        })
    }

    /// The bundle.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// An extent that a contract asks for.
#[derive(Clone, Copy, Debug)]
pub enum Extent {
    /// That many.
    Is(usize),
    /// Any, called so.
    Any(&'static str),
}

impl Extent {
    fn told(&self) -> String {
        match self {
            Extent::Is(n) => n.to_string(),
            Extent::Any(name) => (*name).into(),
        }
    }
}

fn fits(shape: &Shape, expected: &[Extent]) -> bool {
    let one = |(found, expected): (&usize, &Extent)| match expected {
        Extent::Is(n) => found == n,
        Extent::Any(_) => *found > 0,
    };
    shape.rank() == expected.len() && shape.dims().iter().zip(expected).all(one)
}
