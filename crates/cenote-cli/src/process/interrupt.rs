//! The signals that end this program. Handlers only set a flag, which the program checks between two steps, so
//! that it can end its child processes, remove its sockets and restore the terminal.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

use crate::failure::{Failure, Outcome};

/// The number of the last such signal; 0 before the first.
#[derive(Debug, Clone)]
pub(crate) struct Interrupt(Arc<AtomicUsize>);

impl Interrupt {
    /// Registers handlers for SIGINT, SIGTERM, and SIGHUP, which a closing terminal sends.
    pub(crate) fn register() -> Outcome<Interrupt> {
        Interrupt::register_for(&[SIGINT, SIGTERM, SIGHUP])
    }

    /// The same without SIGHUP, for a program that may outlive its terminal (nohup).
    pub(crate) fn register_without_hang_up() -> Outcome<Interrupt> {
        Interrupt::register_for(&[SIGINT, SIGTERM])
    }

    fn register_for(signals: &[i32]) -> Outcome<Interrupt> {
        let signal_number = Arc::new(AtomicUsize::new(0));
        for signal in signals {
            let number = usize::try_from(*signal).unwrap_or(0);
            flag::register_usize(*signal, signal_number.clone(), number)?;
        }
        Ok(Interrupt(signal_number))
    }

    /// Whether a signal arrived.
    pub(crate) fn arrived(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    /// Returns [`Failure::Interrupted`] if a signal arrived.
    pub(crate) fn check(&self) -> Outcome {
        match u8::try_from(self.0.load(Ordering::Relaxed)) {
            Ok(0) => Ok(()),
            signal => Err(Failure::Interrupted(signal.unwrap_or(0))),
        }
    }
}

/// The failure of a program whose terminal was closed, if it notices that before SIGHUP arrives.
pub(crate) fn by_hang_up() -> Failure {
    Failure::Interrupted(u8::try_from(SIGHUP).unwrap_or(0))
}

/// The failure after Ctrl-C in raw mode, in which the terminal sends no signal.
pub(crate) fn by_ctrl_c() -> Failure {
    Failure::Interrupted(u8::try_from(SIGINT).unwrap_or(0))
}
