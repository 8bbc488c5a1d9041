//! From the values of a pickle to entries: which tensors there are, and where in the file each one lies.

use super::archive::Archive;
use super::pickle::shown;
use super::value::{Id, Pickle, Tensor, Value};
use crate::checkpoint::format::{Entries, Entry, UNNAMED};
use crate::tensor::{Fact, Shape};

/// Most axes a tensor may have: torch's own bound.
const RANK_MAX: usize = 64;

/// Deepest nesting of dicts. A dict may hold itself.
const DEPTH_MAX: usize = 32;

/// What walking the dicts may cost, where each item costs the length of its path and [`ITEM_COST`]. Dicts may share
/// dicts, so that a short pickle can have very many paths.
const WALK_MAX: usize = 1 << 26;

/// Most keys of a tensor's metadata that a message shows.
const METADATA_SHOWN: usize = 4;

/// About the bytes an entry takes beside its name.
const ITEM_COST: usize = 128;

/// Values that are no state dict, or one with tensors that cannot be read as they lie.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum StateDictError {
    #[error("holds {found}, expected a dict of tensors")]
    NoDict { found: &'static str },
    #[error("holds no tensor")]
    Empty,
    #[error("has dicts nested more than {DEPTH_MAX} deep, or one inside itself")]
    Depth,
    #[error("has dicts that share dicts so often that their tensors cannot be listed")]
    Walk,
    #[error("has two tensors called {tensor}")]
    Twice { tensor: String },
    #[error("has {found} in the size or stride of tensor {tensor}, expected up to {RANK_MAX} extents")]
    Dims { tensor: String, found: &'static str },
    #[error("has {sizes} extents and {strides} strides for tensor {tensor}")]
    Strides { tensor: String, sizes: usize, strides: usize },
    #[error(
        "has tensor {tensor} of shape {shape} with strides {strides}, expected {expected}: it is a view that does not lie \
         in row-major order; save its .contiguous()"
    )]
    View { tensor: String, shape: Shape, strides: Shape, expected: Shape },
    #[error(
        "has tensor {tensor} with metadata ({found}), so that its bytes are not its values: it may be a negated or \
         conjugated view; save its .resolve_neg().resolve_conj()"
    )]
    Metadata { tensor: String, found: String },
    #[error("has tensor {tensor} of shape {shape}, which is larger than any file")]
    TooLarge { tensor: String, shape: Shape },
    #[error("lacks data/{key}, the storage of tensor {tensor}")]
    NoStorage { tensor: String, key: String },
    #[error("has tensor {tensor} in bytes {begin}..{end} of data/{key}, which is {found} bytes long")]
    Beyond { tensor: String, key: String, begin: u64, end: u64, found: u64 },
}

/// The tensors of a state dict; those of a dict inside it under `name.`. Values that are no tensors are passed over.
///
/// # Errors
/// There is no tensor; a name stands for two; or a tensor does not lie in its storage in row-major order.
pub fn entries(pickle: &Pickle<'_>, archive: &Archive) -> Result<Entries, StateDictError> {
    let mut walk = Walk { pickle, archive, entries: Entries::new(), budget: WALK_MAX };
    let root = pickle.get(pickle.root);
    if let Value::Dict(items) = root {
        walk.dict(items, &mut String::new(), 0)?;
    } else if let Value::Tensor(tensor) = root {
        walk.tensor(tensor, UNNAMED)?;
    } else {
        return Err(StateDictError::NoDict { found: root.kind() });
    }
    if walk.entries.is_empty() { Err(StateDictError::Empty) } else { Ok(walk.entries) }
}

struct Walk<'a> {
    pickle: &'a Pickle<'a>,
    archive: &'a Archive,
    entries: Entries,
    budget: usize,
}

impl Walk<'_> {
    /// Walks a dict at `path`, which ends in a dot or is empty, and leaves `path` as it was.
    fn dict(&mut self, items: &[(Id, Id)], path: &mut String, depth: usize) -> Result<(), StateDictError> {
        if depth == DEPTH_MAX {
            return Err(StateDictError::Depth);
        }
        let stem = path.len();
        for (key, value) in items {
            let key = self.pickle.get(*key);
            if let Value::Text(key) = key {
                path.push_str(key);
            } else if let Value::Int(key) = key {
                path.push_str(&key.to_string());
            } else {
                continue; // no name
            }
            self.budget = self.budget.checked_sub(path.len() + ITEM_COST).ok_or(StateDictError::Walk)?;
            let value = self.pickle.get(*value);
            if let Value::Dict(inner) = value {
                path.push('.');
                self.dict(inner, path, depth + 1)?;
            } else if let Value::Tensor(tensor) = value {
                self.tensor(tensor, path)?;
            }
            path.truncate(stem);
        }
        Ok(())
    }

    fn tensor(&mut self, tensor: &Tensor<'_>, name: &str) -> Result<(), StateDictError> {
        let entry = self.entry(tensor, name)?;
        if self.entries.insert(name.into(), entry).is_some() {
            return Err(StateDictError::Twice { tensor: name.into() });
        }
        Ok(())
    }

    /// The extents a tuple holds.
    fn dims(&self, tuple: Id, tensor: &str) -> Result<Shape, StateDictError> {
        let wrong = |found| StateDictError::Dims { tensor: tensor.into(), found };
        let Value::Tuple(items) = self.pickle.get(tuple) else { return Err(wrong("no tuple")) };
        if items.len() > RANK_MAX {
            return Err(wrong("too long a tuple"));
        }
        let dim = |id: &Id| {
            let value = self.pickle.get(*id);
            let Value::Int(dim) = value else { return Err(wrong(value.kind())) };
            usize::try_from(*dim).map_err(|_| wrong("a negative number"))
        };
        items.iter().map(dim).collect::<Result<Vec<usize>, _>>().map(Shape::new)
    }

    /// Refuses metadata unless it is None or empty. torch writes it where the bytes alone are not the values.
    fn plain(&self, tensor: &Tensor<'_>, name: &str) -> Result<(), StateDictError> {
        let Some(metadata) = tensor.metadata.map(|id| self.pickle.get(id)) else { return Ok(()) };
        let found = match metadata {
            Value::Other => return Ok(()),
            Value::Dict(items) if items.is_empty() => return Ok(()),
            Value::Dict(items) => {
                let key = |(key, _): &(Id, Id)| {
                    let key = self.pickle.get(*key);
                    if let Value::Text(text) = key { shown(text) } else { key.kind().into() }
                };
                items.iter().take(METADATA_SHOWN).map(key).collect::<Vec<_>>().join(", ")
            }
            Value::Bool(_)
            | Value::Int(_)
            | Value::Text(_)
            | Value::Tuple(_)
            | Value::List(_)
            | Value::Global(_)
            | Value::Storage(_)
            | Value::Tensor(_) => metadata.kind().into(),
        };
        Err(StateDictError::Metadata { tensor: name.into(), found })
    }

    fn entry(&self, tensor: &Tensor<'_>, name: &str) -> Result<Entry, StateDictError> {
        self.plain(tensor, name)?;
        let (shape, strides) = (self.dims(tensor.size, name)?, self.dims(tensor.stride, name)?);
        let size = tensor.element.size as u64;
        let bytes = shape.checked_elements().and_then(|n| (n as u64).checked_mul(size));
        let begin = tensor.offset.checked_mul(size);
        let Some((begin, end)) = begin.and_then(|begin| Some((begin, begin.checked_add(bytes?)?))) else {
            return Err(StateDictError::TooLarge { tensor: name.into(), shape });
        };
        row_major(&shape, strides, name)?;
        let key = tensor.storage.key;
        let Some(storage) = self.archive.storage(key) else {
            return Err(StateDictError::NoStorage { tensor: name.into(), key: key.into() });
        };
        let found = storage.end - storage.start;
        if end > found {
            return Err(StateDictError::Beyond { tensor: name.into(), key: key.into(), begin, end, found });
        }
        let fact = tensor.element.dtype.map(|dtype| Fact { dtype, shape });
        Ok(Entry { fact, begin: storage.start + begin, end: storage.start + end })
    }
}

/// Refuses strides other than those of row-major order. Those of an axis of one, or of no elements at all, are free.
fn row_major(shape: &Shape, strides: Shape, tensor: &str) -> Result<(), StateDictError> {
    let (dims, given) = (shape.dims(), strides.dims());
    if dims.len() != given.len() {
        return Err(StateDictError::Strides { tensor: tensor.into(), sizes: dims.len(), strides: given.len() });
    }
    let mut expected = vec![1usize; dims.len()];
    for axis in (1..dims.len()).rev() {
        expected[axis - 1] = expected[axis].saturating_mul(dims[axis]);
    }
    let fits = dims.iter().zip(given).zip(&expected).all(|((dim, given), expected)| *dim == 1 || given == expected);
    if fits || dims.contains(&0) {
        return Ok(());
    }
    let (tensor, shape, expected) = (tensor.into(), shape.clone(), Shape::new(expected));
    Err(StateDictError::View { tensor, shape, strides, expected })
}
