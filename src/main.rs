//! The `eg2-convert` command.

fn main() {}
