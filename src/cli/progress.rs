//! A progress bar on a terminal, and nothing anywhere else.

use super::Common;
use crate::pipeline::Progress;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;

/// Draws the stages of a job on stderr.
pub struct Bar(ProgressBar);

impl Bar {
    /// A bar that is hidden under `--quiet` and off a terminal.
    pub fn new(common: &Common) -> Bar {
        let visible = !common.quiet && std::io::stderr().is_terminal();
        let target = if visible { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(None, target);
        if let Ok(style) = ProgressStyle::with_template("{msg:12} {wide_bar} {bytes:>10} / {total_bytes:10} {eta:>4}") {
            bar.set_style(style);
        }
        Bar(bar)
    }
}

impl Progress for Bar {
    fn stage(&self, name: &'static str, total: u64) {
        self.0.reset();
        self.0.set_length(total);
        self.0.set_message(name);
    }

    fn advance(&self, bytes: u64) {
        self.0.inc(bytes);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
