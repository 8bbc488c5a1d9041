//! Ctrl-C as a flag: the child is in a process group of its own and does not see the terminal's signal, so this
//! process has to pass it on and tidy up.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether the user has asked to stop.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicBool>);

/// Signals could not be listened to.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen for Ctrl-C")]
pub struct InterruptError(#[source] io::Error);

impl Interrupt {
    /// Raised by Ctrl-C, by a request to terminate, and by a closed terminal unless `nohup` has that ignored, from now to
    /// the end of the process.
    ///
    /// # Errors
    /// The system refuses the handlers.
    pub fn listen() -> Result<Interrupt, InterruptError> {
        let interrupt = Interrupt::never();
        // Where it cannot be told whether a signal is ignored, it keeps its default.
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let closed = (ignored(&status, SIGHUP) == Some(false)).then_some(SIGHUP);
        for signal in [SIGINT, SIGTERM].into_iter().chain(closed) {
            signal_hook::flag::register(signal, Arc::clone(&interrupt.0)).map_err(InterruptError)?;
        }
        // A file beyond a limit is then an error of the write, which leaves nothing behind, and not the end.
        signal_hook::flag::register(SIGXFSZ, Arc::default()).map_err(InterruptError)?;
        Ok(interrupt)
    }

    /// Raised by nobody but [`raise`](Self::raise).
    pub fn never() -> Interrupt {
        Interrupt::default()
    }

    /// Asks to stop.
    pub fn raise(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    /// Whether to stop.
    pub fn raised(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

/// Whether a process ignores `signal`, by the text of its `/proc/PID/status`, in which bit 0 of `SigIgn` is signal 1
/// (proc_pid_status(5)). None where the text does not tell.
fn ignored(status: &str, signal: i32) -> Option<bool> {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
    let mask = u128::from_str_radix(mask.trim(), 16).ok()?;
    let bit = 1u128.checked_shl(u32::try_from(signal).ok()?.checked_sub(1)?)?;
    Some(mask & bit != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_bits_of_a_mask() {
        for (status, signal, expected) in [
            ("Name:\tx\nSigIgn:\t0000000000000001\nSigCgt:\t0\n", SIGHUP, Some(true)),
            ("SigIgn:\t0000000000001000\n", SIGHUP, Some(false)),
            ("SigIgn:\t0000000000004000\n", SIGTERM, Some(true)),
            ("SigBlk:\t0000000000000001\n", SIGHUP, None),
            ("SigIgn:\tx\n", SIGHUP, None),
            ("SigIgn:\t1\n", 0, None),
            ("SigIgn:\t1\n", 200, None),
            ("", SIGHUP, None),
        ] {
            assert_eq!(ignored(status, signal), expected, "{status:?} {signal}");
        }
    }
}
