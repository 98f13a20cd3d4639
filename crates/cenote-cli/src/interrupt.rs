//! Signals that ask this program to end. They are noted and looked at between two steps, so that what was
//! begun comes to its end: processes, sockets, the terminal.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

use crate::failure::{Failure, Outcome};

/// Whether a signal has come.
#[derive(Debug, Clone)]
pub(crate) struct Interrupt(Arc<AtomicUsize>);

impl Interrupt {
    /// Notes from here on that somebody interrupts or ends this program, or that its terminal goes.
    pub(crate) fn listen() -> Outcome<Interrupt> {
        Interrupt::listen_for(&[SIGINT, SIGTERM, SIGHUP])
    }

    /// The same for a program that may outlive its terminal (nohup).
    pub(crate) fn listen_without_terminal() -> Outcome<Interrupt> {
        Interrupt::listen_for(&[SIGINT, SIGTERM])
    }

    fn listen_for(signals: &[i32]) -> Outcome<Interrupt> {
        let came = Arc::new(AtomicUsize::new(0));
        for signal in signals {
            let number = usize::try_from(*signal).unwrap_or(0);
            flag::register_usize(*signal, came.clone(), number)?;
        }
        Ok(Interrupt(came))
    }

    pub(crate) fn came(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    /// A failure if a signal has come.
    pub(crate) fn check(&self) -> Outcome {
        match u8::try_from(self.0.load(Ordering::Relaxed)) {
            Ok(0) => Ok(()),
            signal => Err(Failure::Interrupted(signal.unwrap_or(0))),
        }
    }
}

/// What the end of the terminal is where the signal comes late.
pub(crate) fn by_hang_up() -> Failure {
    Failure::Interrupted(u8::try_from(SIGHUP).unwrap_or(0))
}

/// What Ctrl-C is where the terminal makes no signal of it.
pub(crate) fn by_key() -> Failure {
    Failure::Interrupted(u8::try_from(SIGINT).unwrap_or(0))
}
