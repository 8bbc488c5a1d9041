//! Ctrl-C as a flag: the child is in a process group of its own and does not see the terminal's signal, so this
//! process has to pass it on and tidy up.

use signal_hook::consts::{SIGINT, SIGTERM};
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
    /// Raised by Ctrl-C and by a request to terminate, from now to the end of the process. A closed terminal is left to
    /// its default, which `nohup` may have changed.
    ///
    /// # Errors
    /// The system refuses the handlers.
    pub fn listen() -> Result<Interrupt, InterruptError> {
        let interrupt = Interrupt::never();
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&interrupt.0)).map_err(InterruptError)?;
        }
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
