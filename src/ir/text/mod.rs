//! The graph's text form: one node a line, so that two graphs compare as a diff.
//!
//! ```text
//! graph main
//! %x = input "features" : f32[1,4]
//! %proj.weight = const tensor "proj.weight" f32[2,4] | cast f16 | transpose [1,0] : f16[4,2]
//! %proj.half = cast(%x) dtype=f16 : f16[1,4]
//! output "half" = %proj.half
//! ```
//!
//! `parse(print(g)) == g` for every graph (but for NaN, which equals nothing). Values are not printed, only where they
//! come from. What stands behind `:` is inferred again when text is read; a disagreement is an error, so a text that
//! parses is as well-shaped as a graph that was built.
//!
//! Files: `lexis` how names, numbers and lists are spelt; `op` and `weight` the parameters, each op's printing beside
//! its parsing; `print` and `parse` the lines.

mod lexis;
mod op;
mod parse;
mod print;
mod weight;

pub use parse::{ParseError, parse};
pub use print::print;

/// The names of all ops, as texts spell them: the closed set.
pub fn op_names() -> impl Iterator<Item = &'static str> {
    ["input", "const"].into_iter().chain(op::samples().map(|op| op.name()))
}

#[cfg(test)]
mod tests;
