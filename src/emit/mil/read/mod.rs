//! Opens any `.mlpackage`, shows what is in it, and lifts our own back into graphs.
//!
//! Takes nothing of the writer: field numbers, codes and layout are written here a second time, from the same public
//! descriptions. Bytes of a stranger never panic and never make it hold more than a small multiple of the file.

mod blob;
mod check;
mod constant;
mod description;
mod element;
mod error;
mod lift;
mod package;
mod program;
mod spell;
#[cfg(test)]
mod tests;
mod wire;

pub use blob::{BlobFault, Record, WeightScan};
pub use constant::{Constant, Content};
pub use description::{Feature, Features, Metadata, ModelDescription};
pub use element::Element;
pub use error::{ReadError, Violation, WireError, WireFault};
pub use package::Package;
pub use program::{Binding, Data, Function, Named, Operation, TensorKind, Value, ValueKind};
