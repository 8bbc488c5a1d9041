//! Model code reads a checkpoint by scopes that follow its names, and a ledger notes what was read, so that a tensor
//! the model forgot is an error.

use super::synthetic::{self, Synthetic};
use crate::plural::counted;
use crate::tensor::{DType, Fact, Shape, SourceError, WeightSource};
use serde::Serialize;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

/// A tensor that does not fit what the model wants of it.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what each field is")]
pub enum ScopeError {
    #[error("tensor {tensor} is not in {place}, expected f64, f32, f16 or bf16 of shape {expected}{}", hint(.near))]
    Missing { tensor: String, place: String, expected: Shape, near: Vec<String> },
    #[error("tensor {tensor} in {place} is {found}, expected f64, f32, f16 or bf16 of shape {expected}")]
    Misfit { tensor: String, place: String, found: String, expected: Shape },
    #[error(
        "{} of the model in {} {} not read: {}",
        counted(.names.len(), "tensor"), .places.join(", "), if .names.len() == 1 { "was" } else { "were" },
        .names.join(", ")
    )]
    Unread { names: Vec<String>, places: Vec<String> },
    #[error(transparent)]
    Source(#[from] SourceError),
}

fn hint(near: &[String]) -> String {
    if near.is_empty() { String::new() } else { format!("; it has {}", near.join(", ")) }
}

/// How many tensors were read, and how many belong to parts that nothing here converts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Consumption {
    /// Tensors the model read.
    pub read: usize,
    /// Numbers in the tensors the model read, clamp bounds included.
    pub parameters: u64,
    /// Tensors of other parts.
    pub ignored: usize,
}

/// A tensor of the checkpoint, found and of the right shape.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// Its full name.
    pub name: String,
    /// Its stored fact.
    pub fact: Fact,
}

/// A tensor of one number.
#[derive(Clone, Debug, PartialEq)]
pub struct Scalar {
    /// Its full name.
    pub name: String,
    /// Where it is kept, for messages.
    pub place: String,
    /// Its stored fact, of rank 0 or shape `[1]`.
    pub fact: Fact,
    /// The number.
    pub value: f64,
}

/// What the ledger's tensors come from.
enum Backing<'a> {
    /// A weight source that has them.
    Source(&'a dyn WeightSource),
    /// A seed: whatever is asked for is noted and will exist.
    Blueprint(u64),
}

/// Notes what is read of a weight source.
pub struct Ledger<'a> {
    backing: Backing<'a>,
    read: RefCell<BTreeMap<String, Fact>>,
}

impl<'a> Ledger<'a> {
    /// A ledger over tensors that exist.
    pub fn new(source: &'a dyn WeightSource) -> Self {
        Ledger { backing: Backing::Source(source), read: RefCell::default() }
    }

    /// A ledger without tensors: it notes every shape asked for, for [`into_synthetic`](Self::into_synthetic).
    pub fn blueprint(seed: u64) -> Self {
        Ledger { backing: Backing::Blueprint(seed), read: RefCell::default() }
    }

    /// Seeded weights of all shapes that were asked for.
    pub fn into_synthetic(self) -> Synthetic {
        let seed = if let Backing::Blueprint(seed) = self.backing { seed } else { 0 };
        Synthetic::new(seed, self.read.into_inner())
    }

    /// The scope of all names.
    pub fn root(&self) -> Scope<'_> {
        Scope { ledger: self, prefix: String::new() }
    }

    /// The first of `prefixes` under which the tensor `probe` exists, else the first.
    pub fn prefixed<'p>(&self, prefixes: &[&'p str], probe: &str) -> &'p str {
        let exists = |prefix: &&&str| match &self.backing {
            Backing::Source(source) => source.fact(&format!("{prefix}{probe}")).is_some(),
            Backing::Blueprint(_) => false,
        };
        prefixes.iter().find(exists).or(prefixes.first()).copied().unwrap_or_default()
    }

    /// Ends the reading: every tensor whose name starts with one of `owned` must have been read.
    ///
    /// # Errors
    /// Some were not; all are named.
    pub fn finish(&self, owned: &[&str]) -> Result<Consumption, ScopeError> {
        let read = self.read.borrow();
        let parameters = read.values().map(|fact| fact.shape.elements() as u64).sum();
        let all = match &self.backing {
            Backing::Source(source) => source.names(),
            Backing::Blueprint(_) => read.keys().map(String::as_str).collect(),
        };
        let unread: BTreeSet<&str> = all
            .iter()
            .copied()
            .filter(|name| owned.iter().any(|o| name.starts_with(o)) && !read.contains_key(*name))
            .collect();
        if unread.is_empty() {
            return Ok(Consumption { read: read.len(), parameters, ignored: all.len() - read.len() });
        }
        let places: BTreeSet<String> = unread.iter().map(|name| self.place(name)).collect();
        let names = unread.into_iter().map(String::from).collect();
        Err(ScopeError::Unread { names, places: places.into_iter().collect() })
    }

    /// Where a tensor is kept, for messages.
    fn place(&self, name: &str) -> String {
        match &self.backing {
            Backing::Source(source) => source.place(name),
            Backing::Blueprint(seed) => format!("seed {seed}"),
        }
    }

    fn find(&self, name: String, dims: &[usize], may_be_one: bool) -> Result<Tensor, ScopeError> {
        let expected = Shape::new(dims);
        let fact = match &self.backing {
            Backing::Blueprint(_) => Fact { dtype: DType::F32, shape: expected },
            Backing::Source(source) => {
                let Some(found) = source.fact(&name) else { return Err(absent(*source, name, expected)) };
                let fits = found.shape == expected || (may_be_one && found.shape.dims() == [1]);
                if !found.dtype.is_float() || !fits {
                    let (place, found) = (source.place(&name), found.to_string());
                    return Err(ScopeError::Misfit { tensor: name, place, found, expected });
                }
                found.clone()
            }
        };
        self.read.borrow_mut().insert(name.clone(), fact.clone());
        Ok(Tensor { name, fact })
    }
}

/// Missing, or there with a dtype that is not read; with the names that look most alike.
fn absent(source: &dyn WeightSource, tensor: String, expected: Shape) -> ScopeError {
    let place = source.place(&tensor);
    let names = source.names();
    if names.binary_search(&tensor.as_str()).is_ok() {
        return ScopeError::Misfit { tensor, place, found: "of a dtype that is not read here".into(), expected };
    }
    let shared = |name: &str| name.bytes().zip(tensor.bytes()).take_while(|(a, b)| a == b).count();
    let mut alike: Vec<(usize, &str)> = names.iter().map(|n| (shared(n), *n)).filter(|(n, _)| *n > 0).collect();
    alike.sort_by_key(|(n, name)| (std::cmp::Reverse(*n), *name));
    let near = alike.into_iter().take(3).map(|(_, name)| name.to_string()).collect();
    ScopeError::Missing { tensor, place, expected, near }
}

/// A prefix of names, such as `audio_tower.layers.3.`.
#[derive(Clone)]
pub struct Scope<'l> {
    ledger: &'l Ledger<'l>,
    prefix: String,
}

impl<'l> Scope<'l> {
    /// The scope `name` below this one. A name that is empty or ends in a dot is a prefix as it stands.
    pub fn scope(&self, name: &str) -> Scope<'l> {
        let dot = if name.is_empty() || name.ends_with('.') { "" } else { "." };
        Scope { ledger: self.ledger, prefix: format!("{}{name}{dot}", self.prefix) }
    }

    /// Entry `i` of a list.
    pub fn index(&self, i: usize) -> Scope<'l> {
        self.scope(&i.to_string())
    }

    /// The full name of `name` in this scope.
    pub fn path(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// The float tensor `name`, of exactly those extents.
    ///
    /// # Errors
    /// It is absent, of another shape, or does not hold floats.
    pub fn tensor(&self, name: &str, dims: &[usize]) -> Result<Tensor, ScopeError> {
        self.ledger.find(self.path(name), dims, false)
    }

    /// The one number of tensor `name`, which has rank 0 or shape `[1]`.
    ///
    /// # Errors
    /// It is absent or something else, or cannot be read.
    pub fn scalar(&self, name: &str) -> Result<Scalar, ScopeError> {
        let Tensor { name, fact } = self.ledger.find(self.path(name), &[], true)?;
        let mut value = [0f32];
        match &self.ledger.backing {
            Backing::Source(source) => source.read_f32(&name, 0, &mut value)?,
            Backing::Blueprint(seed) => synthetic::fill(*seed, &name, &fact.shape, 0, &mut value),
        }
        Ok(Scalar { place: self.ledger.place(&name), name, fact, value: f64::from(value[0]) })
    }
}
