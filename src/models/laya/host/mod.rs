//! stub
mod calibration;
mod numbers;
mod question;
mod render;
mod sequence;
mod tokenizer;
#[cfg(test)]
mod tests;
pub use calibration::*;
pub use question::*;
pub use sequence::*;
pub use tokenizer::*;
