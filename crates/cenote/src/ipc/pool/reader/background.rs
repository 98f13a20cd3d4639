//! Attaching to the pool of a descriptor without waiting for its owner.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::error::{Error, Result};
use crate::intervals::HANDSHAKE_TIMEOUT;
use crate::ipc::discovery::handshake::{Connecting, Handshake};
use crate::ipc::pool::reader::attachment::Attachment;
use crate::ipc::pool::reader::connect;
use crate::ipc::pool::registry;
use crate::ipc::pool::registry::RegisteredPool;

/// The result, once there is one.
type Outcome = Option<Result<Arc<Attachment>>>;

/// An attempt to attach to a pool.
#[derive(Debug)]
pub(crate) struct BackgroundAttach {
    uid: u64,
    since: Instant,
    outcome: Arc<Mutex<Outcome>>,
    handshake: Option<Arc<Handshake>>,
}

/// The progress of the attempt.
#[derive(Debug)]
pub(crate) enum Progress {
    Attached(RegisteredPool),
    Waiting,
    Failed(Error),
}

impl BackgroundAttach {
    /// Starts the attempt. The service thread calls `done` when there is a result.
    pub(crate) fn begin(uid: u64, done: impl Fn() + Send + 'static) -> BackgroundAttach {
        let outcome = Arc::new(Mutex::new(None));
        let mut attaching = BackgroundAttach {
            uid,
            since: Instant::now(),
            outcome: outcome.clone(),
            handshake: None,
        };
        let begun = connect::begin(uid, move |attached| {
            set(&outcome, attached);
            done();
        });
        match begun {
            Ok(Connecting::Started(handshake)) => attaching.handshake = Some(handshake),
            Ok(Connecting::Busy) => {}
            Ok(Connecting::Closed) => set(&attaching.outcome, Err(attaching.missing())),
            Err(error) => set(&attaching.outcome, Err(error)),
        }
        attaching
    }

    /// Whether nothing was sent, because the owner's backlog was full. The caller restarts the attempt.
    pub(crate) fn is_idle(&self) -> bool {
        self.handshake.is_none() && outcome(&self.outcome).is_none()
    }

    /// Restarts the attempt, with the old deadline.
    pub(crate) fn restart(&mut self, again: BackgroundAttach) {
        *self = BackgroundAttach { since: self.since, ..again };
    }

    /// The progress. Reports a failure once.
    pub(crate) fn progress(&self) -> Progress {
        match outcome(&self.outcome).take() {
            Some(Ok(attachment)) => {
                registry::register(&attachment);
                Progress::Attached(RegisteredPool::Attached(attachment))
            }
            Some(Err(error)) => Progress::Failed(error),
            None if self.since.elapsed() < HANDSHAKE_TIMEOUT => Progress::Waiting,
            None => {
                let pool = format!("uid {:016x}", self.uid);
                Progress::Failed(Error::NoAnswer { pool, pid: 0, waited: HANDSHAKE_TIMEOUT })
            }
        }
    }

    fn missing(&self) -> Error {
        Error::NoSuchPool { pool: format!("uid {:016x}", self.uid) }
    }
}

fn outcome(shared: &Mutex<Outcome>) -> MutexGuard<'_, Outcome> {
    // Nothing under this lock panics.
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn set(shared: &Mutex<Outcome>, value: Result<Arc<Attachment>>) {
    *outcome(shared) = Some(value);
}
