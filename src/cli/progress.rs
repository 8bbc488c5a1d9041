//! A progress bar on a terminal, and nothing anywhere else.

use super::Common;
use crate::pipeline::{Progress, Unit};
use crate::toolchain::{Interrupt, InterruptError};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;

/// Draws the stages of a job on stderr.
pub struct Bar {
    bar: ProgressBar,
    interrupt: Interrupt,
}

impl Bar {
    /// A bar that is hidden under `--quiet` and off a terminal.
    pub fn new(common: &Common) -> Bar {
        let visible = !common.quiet && std::io::stderr().is_terminal();
        let target = if visible { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(None, target);
        Bar { bar, interrupt: Interrupt::never() }
    }

    /// The same, for a job that Ctrl-C ends.
    pub fn interruptible(common: &Common) -> Result<Bar, InterruptError> {
        let mut bar = Bar::new(common);
        bar.interrupt = Interrupt::listen()?;
        Ok(bar)
    }

    /// What ends the job; never raised by Ctrl-C unless the bar was made so.
    pub fn interrupt(&self) -> &Interrupt {
        &self.interrupt
    }
}

impl Progress for Bar {
    fn stage(&self, name: &'static str, total: u64, unit: Unit) {
        let counts = match unit {
            Unit::Bytes => "{bytes:>10} / {total_bytes:10}",
            Unit::Frames => "{pos:>8} / {len} frames",
            Unit::Tokens => "{pos:>6} / {len} tokens",
        };
        if let Ok(style) = ProgressStyle::with_template(&format!("{{msg:12}} {{wide_bar}} {counts} {{eta:>4}}")) {
            self.bar.set_style(style);
        }
        self.bar.reset();
        self.bar.set_length(total);
        self.bar.set_message(name);
    }

    fn advance(&self, more: u64) {
        self.bar.inc(more);
    }

    fn stopped(&self) -> bool {
        self.interrupt.raised()
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
