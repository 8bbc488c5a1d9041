//! The `eg2-convert` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(eg2_convert::cli::main(std::env::args_os()).code())
}
