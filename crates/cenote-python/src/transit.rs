//! Tensors on their way through a queue or pipe of `multiprocessing`, as descriptors.
//!
//! A descriptor holds nothing, so whoever put it into a queue has to hold the tensor until somebody
//! took it out: this is where it does. The receiver leases the tensor and sends back a token, to the
//! sender's [door](crate::door); a thread there that needs no interpreter lets go of the tensor. What nobody
//! takes out is held until the sender recalls it or ends; a process of `multiprocessing` waits a little
//! for that.
//!
//! A token is hard to guess, and a wrong one does nothing. A right one sent too early would make a
//! descriptor stale, which is an error for whoever takes it out of the queue, and nothing worse.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{io, mem, process, str, thread};

use cenote::{Domain, Error, TensorDescriptor, TensorPool};
use pyo3::prelude::*;

use crate::door::{Door, knock, random};
use crate::error::{Result, raise};
use crate::number::seconds;
use crate::timeout::{self, duration};

/// How long a receiver tries to tell a sender that does not listen, because it is stopped.
const PATIENCE: Duration = Duration::from_secs(1);

/// What the receiver sends back.
type Token = [u8; 16];

/// What this process holds for others.
struct Outbox {
    pid: u32,
    door: Door,
    secret: [u8; 8],
    held: Mutex<Held>,
    /// Something has arrived.
    less: Condvar,
}

#[derive(Default)]
struct Held {
    number: u64,
    tensors: HashMap<Token, Departed>,
}

struct Departed {
    /// The pool that it is in.
    pool: u64,
    since: Instant,
    tensor: cenote::Tensor,
}

/// Of this process, or the one that it was forked from. Locked only by who holds the interpreter, as
/// whoever forks does: so a child never finds it locked.
static CURRENT: Mutex<Option<Arc<Outbox>>> = Mutex::new(None);

fn current() -> MutexGuard<'static, Option<Arc<Outbox>>> {
    // Replaced whole.
    CURRENT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The outbox of this very process, if it has one.
fn own() -> Option<Arc<Outbox>> {
    current().clone().filter(|outbox| outbox.pid == process::id())
}

impl Outbox {
    /// The outbox of this process, which is made if need be.
    fn get() -> io::Result<Arc<Outbox>> {
        if let Some(outbox) = own() {
            return Ok(outbox);
        }
        let made = Outbox::start()?;
        // A forked child has a copy of its parent's, whose tensors are not its to give back.
        mem::forget(current().replace(made.clone()));
        Ok(made)
    }

    fn start() -> io::Result<Arc<Outbox>> {
        let (pid, door, secret) = (process::id(), Door::open()?, random()?);
        let (held, less) = (Mutex::default(), Condvar::new());
        let outbox = Arc::new(Outbox { pid, door, secret, held, less });
        let listening = outbox.clone();
        let thread = thread::Builder::new().name("cenote-transit".to_owned());
        thread.spawn(move || listening.listen())?;
        Ok(outbox)
    }

    /// Lets go of what has arrived, until the process ends.
    fn listen(&self) {
        let mut token = [0; size_of::<Token>() + 1];
        while let Ok(len) = self.door.recv(&mut token) {
            self.let_go(&token[..len]);
        }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        // Insertions and removals are whole.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hold(&self, descriptor: &TensorDescriptor, tensor: cenote::Tensor) -> Token {
        let mut held = self.held();
        held.number += 1;
        let mut token = [0; 16];
        token[..8].copy_from_slice(&self.secret);
        token[8..].copy_from_slice(&held.number.to_ne_bytes());
        let departed = Departed { pool: descriptor.pool(), since: Instant::now(), tensor };
        held.tensors.insert(token, departed);
        token
    }

    fn let_go(&self, token: &[u8]) {
        let Ok(token) = Token::try_from(token) else { return };
        let departed = self.held().tensors.remove(&token);
        drop(departed); // after the lock
        self.less.notify_all();
    }

    /// Lets go of what has been on its way for so long; tells how many that were.
    fn recall(&self, age: Duration) -> usize {
        let mut recalled = Vec::new();
        let is_old = |departed: &Departed| departed.since.elapsed() >= age;
        let mut held = self.held();
        recalled.extend(held.tensors.extract_if(|_, departed| is_old(departed)));
        drop(held);
        self.less.notify_all();
        recalled.into_iter().map(|(_, departed)| drop(departed.tensor)).count()
    }

    /// Waits until all has arrived, and tells whether it has.
    fn linger(&self, patience: Duration) -> bool {
        let waiting = |held: &mut Held| !held.tensors.is_empty();
        let waited = self.less.wait_timeout_while(self.held(), patience, waiting);
        // What a panic left behind is whole, and there is nothing to do about it here.
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }
}

/// What a descriptor can be made of: itself if it is in a pool that others can attach to and nobody
/// can write it, else a copy in the pool of this process.
fn described<T: Domain>(what: &T) -> cenote::Result<(TensorDescriptor, cenote::Tensor)> {
    if what.tensor().is_attachable() == Some(true) {
        match what.describe() {
            Err(Error::Lent) => {}
            described => return Ok((described?, what.tensor().clone())),
        }
    }
    let staged = what.over(TensorPool::of_process()?.stage(what.tensor())?)?;
    Ok((staged.describe()?, staged.tensor().clone()))
}

/// Holds something until it has arrived. Its descriptor, and where to say so: address and token.
pub(crate) fn depart<T: Domain + Sync>(
    py: Python<'_>,
    what: &T,
) -> Result<(TensorDescriptor, String, Token)> {
    let failed = |error: io::Error| raise("OsError", error.to_string(), error.raw_os_error());
    let outbox = Outbox::get().map_err(failed)?;
    let (descriptor, tensor) = py.detach(|| described(what))?;
    let token = outbox.hold(&descriptor, tensor);
    Ok((descriptor, outbox.door.address(), token))
}

/// How many tensors, of one pool or all, are on their way.
pub(crate) fn count(pool: Option<u64>) -> usize {
    let Some(outbox) = own() else { return 0 };
    let held = outbox.held();
    held.tensors.values().filter(|departed| pool.is_none_or(|pool| pool == departed.pool)).count()
}

/// Tells the sender that its tensor was leased. If that fails, it holds it until it ends.
#[pyfunction]
pub(crate) fn _arrived(py: Python<'_>, address: &[u8], token: &[u8]) {
    let Ok(address) = str::from_utf8(address) else { return };
    match own().filter(|outbox| outbox.door.address() == address) {
        Some(outbox) => outbox.let_go(token),
        // It may be gone, or not listen: then there is nothing to be done.
        None => drop(py.detach(|| knock(address, token, PATIENCE))),
    }
}

/// Lets go of what could not be put after all.
#[pyfunction]
pub(crate) fn _failed(token: &[u8]) {
    if let Some(outbox) = own() {
        outbox.let_go(token);
    }
}

/// Waits until all that was sent has arrived, but no longer than `seconds`.
#[pyfunction]
pub(crate) fn _linger(py: Python<'_>, seconds: f64) -> Result<()> {
    let patience = duration(seconds)?;
    if let Some(outbox) = own() {
        timeout::wait(py, Some(patience), |slice| Ok(outbox.linger(slice).then_some(())))?;
    }
    Ok(())
}

/// In a child that was just forked: leaves to its parent what is the parent's.
#[pyfunction]
pub(crate) fn _forked() {
    if let Some(inherited) = current().take_if(|outbox| outbox.pid != process::id()) {
        inherited.door.close_inherited();
        // The tensors are not the child's to give back, and a lock may be held for ever.
        mem::forget(inherited);
    }
}

/// How many tensors were put into queues and pipes of `multiprocessing` and not taken out yet. This
/// process holds them until then.
#[pyfunction]
pub(crate) fn in_transit() -> usize {
    count(None)
}

/// Lets go of what was put into queues and pipes of `multiprocessing` at least so many seconds ago, and was not
/// taken out yet: for when nobody is there any more to do so. Tells how many tensors that were. Who takes one
/// out all the same gets a `cenote.Stale`, once its memory is used again.
///
/// >>> cenote.recall(older_than=60)
/// 0
#[pyfunction]
#[pyo3(signature = (older_than=0.0))]
pub(crate) fn recall(
    py: Python<'_>,
    #[pyo3(from_py_with = seconds)] older_than: f64,
) -> Result<usize> {
    let age = duration(older_than)?;
    Ok(own().map_or(0, |outbox| py.detach(|| outbox.recall(age))))
}
