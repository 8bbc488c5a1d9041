//! `eg2-convert completions`.

use super::failure::Failure;
use super::{Checks, Cli, Report};
use clap::CommandFactory;
use clap_complete::{Shell, generate};
use serde_json::json;

/// Print the script that completes this command's words in a shell
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  eg2-convert completions bash > ~/.local/share/bash-completion/completions/eg2-convert\n  \
                  eg2-convert completions zsh > ~/.zfunc/_eg2-convert\n  eg2-convert completions fish > \
                  ~/.config/fish/completions/eg2-convert.fish"
)]
pub struct Opts {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Makes the script.
pub fn run(opts: Opts) -> Result<Report, Failure> {
    let mut script = Vec::new();
    generate(opts.shell, &mut Cli::command(), env!("CARGO_PKG_NAME"), &mut script);
    let text = String::from_utf8_lossy(&script).into_owned();
    let json = json!({ "shell": opts.shell.to_string(), "script": text });
    Ok(Report { text, json, checks: Checks::Passed })
}
