//! The tensors that this process holds for receivers, and the functions that Python calls about them.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{io, mem, process, str, thread};

use cenote::{Domain, Error, TensorDescriptor, TensorPool};
use pyo3::prelude::*;

use crate::args::seconds::{duration, seconds};
use crate::outbox::ack_socket::{AckSocket, random_bytes, send_ack};
use crate::runtime::error::{Result, raise};
use crate::runtime::wait;

/// How long a receiver tries to send a token to a sender that is stopped and so does not read its socket.
const SEND_TIMEOUT: Duration = Duration::from_secs(1);

/// Names one tensor in one outbox. The receiver sends it back.
type Token = [u8; 16];

/// The outbox of one process.
struct Outbox {
    /// The process that made it; a forked child has only a copy.
    pid: u32,
    socket: AckSocket,
    /// The first half of each token, so that other programs cannot guess one.
    secret: [u8; 8],
    held: Mutex<HeldTensors>,
    /// Notified after a tensor was released.
    released: Condvar,
}

#[derive(Default)]
struct HeldTensors {
    /// The number of the newest token: its second half.
    last_number: u64,
    tensors: HashMap<Token, HeldTensor>,
}

struct HeldTensor {
    /// The uid of its pool.
    pool: u64,
    since: Instant,
    tensor: cenote::Tensor,
}

/// The outbox of this process, or of the process that forked it. Only threads that hold the GIL lock it, and
/// a thread that forks holds the GIL: so a child never finds it locked.
static CURRENT: Mutex<Option<Arc<Outbox>>> = Mutex::new(None);

fn current() -> MutexGuard<'static, Option<Arc<Outbox>>> {
    // A panic leaves it whole: its value is only ever replaced.
    CURRENT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The outbox that this process made, not an inherited one.
fn own() -> Option<Arc<Outbox>> {
    current().clone().filter(|outbox| outbox.pid == process::id())
}

impl Outbox {
    /// The outbox of this process. Makes it if there is none.
    fn get_or_start() -> io::Result<Arc<Outbox>> {
        if let Some(outbox) = own() {
            return Ok(outbox);
        }
        let started = Outbox::start()?;
        // In a forked child this replaces a copy of the parent's outbox. It must not release the parent's
        // tensors.
        mem::forget(current().replace(started.clone()));
        Ok(started)
    }

    fn start() -> io::Result<Arc<Outbox>> {
        let (pid, socket, secret) = (process::id(), AckSocket::open()?, random_bytes()?);
        let (held, released) = (Mutex::default(), Condvar::new());
        let outbox = Arc::new(Outbox { pid, socket, secret, held, released });
        let receiving = outbox.clone();
        let thread = thread::Builder::new().name("cenote-outbox".to_owned());
        thread.spawn(move || receiving.receive_tokens())?;
        Ok(outbox)
    }

    /// Releases each tensor whose token arrives, until the process ends.
    fn receive_tokens(&self) {
        // One byte more than a token, so that a longer datagram is not taken for one.
        let mut token = [0; size_of::<Token>() + 1];
        while let Ok(len) = self.socket.recv(&mut token) {
            self.release(&token[..len]);
        }
    }

    fn held(&self) -> MutexGuard<'_, HeldTensors> {
        // A panic leaves it whole: an insertion or removal happens or does not.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hold(&self, descriptor: &TensorDescriptor, tensor: cenote::Tensor) -> Token {
        let mut held = self.held();
        held.last_number += 1;
        let mut token = [0; 16];
        token[..8].copy_from_slice(&self.secret);
        token[8..].copy_from_slice(&held.last_number.to_ne_bytes());
        let entry = HeldTensor { pool: descriptor.pool(), since: Instant::now(), tensor };
        held.tensors.insert(token, entry);
        token
    }

    fn release(&self, token: &[u8]) {
        let Ok(token) = Token::try_from(token) else { return };
        let tensor = self.held().tensors.remove(&token);
        drop(tensor); // without the lock
        self.released.notify_all();
    }

    /// Releases the tensors held for at least `age`, and returns how many these were.
    fn recall(&self, age: Duration) -> usize {
        let mut recalled = Vec::new();
        let is_old = |entry: &HeldTensor| entry.since.elapsed() >= age;
        let mut held = self.held();
        recalled.extend(held.tensors.extract_if(|_, entry| is_old(entry)));
        drop(held);
        self.released.notify_all();
        recalled.into_iter().map(|(_, entry)| drop(entry.tensor)).count()
    }

    /// Waits until it holds no tensor, and returns whether it holds none before `timeout` is over.
    fn wait_until_empty(&self, timeout: Duration) -> bool {
        let has_tensors = |held: &mut HeldTensors| !held.tensors.is_empty();
        let waited = self.released.wait_timeout_while(self.held(), timeout, has_tensors);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    /// How many tensors it holds: those of one pool, or all.
    fn count(&self, pool: Option<u64>) -> usize {
        let is_counted = |entry: &&HeldTensor| pool.is_none_or(|pool| pool == entry.pool);
        self.held().tensors.values().filter(is_counted).count()
    }
}

/// Describes a tensor so that another process can attach to it. Copies it into the pool of this process if no
/// other process can attach to its pool, or if Python can still write it.
fn describe<T: Domain>(value: &T) -> cenote::Result<(TensorDescriptor, cenote::Tensor)> {
    if value.tensor().is_attachable() == Some(true) {
        match TensorDescriptor::describe(value) {
            Err(Error::Lent) => {}
            described => return Ok((described?, value.tensor().clone())),
        }
    }
    let staged = value.over(TensorPool::of_process()?.stage(value.tensor())?)?;
    Ok((TensorDescriptor::describe(&staged)?, staged.tensor().clone()))
}

/// Holds a tensor until its token comes back. Returns its descriptor, the address for the token, and the token.
pub(crate) fn hold<T: Domain + Sync>(
    py: Python<'_>,
    value: &T,
) -> Result<(TensorDescriptor, String, Token)> {
    let failed = |error: io::Error| raise("OsError", error.to_string(), error.raw_os_error());
    let outbox = Outbox::get_or_start().map_err(failed)?;
    let (descriptor, tensor) = py.detach(|| describe(value))?;
    let token = outbox.hold(&descriptor, tensor);
    Ok((descriptor, outbox.socket.address(), token))
}

/// How many tensors this process holds for receivers: those of one pool, or all.
pub(crate) fn count(pool: Option<u64>) -> usize {
    own().map_or(0, |outbox| outbox.count(pool))
}

/// Sends a token back, after its tensor was leased. If that fails, the sender holds the tensor until it ends.
#[pyfunction]
pub(crate) fn _acknowledge(py: Python<'_>, address: &[u8], token: &[u8]) {
    let Ok(address) = str::from_utf8(address) else { return };
    match own().filter(|outbox| outbox.socket.address() == address) {
        Some(outbox) => outbox.release(token),
        // The sender may have ended or be stopped: both are no reason to fail here.
        None => drop(py.detach(|| send_ack(address, token, SEND_TIMEOUT))),
    }
}

/// Releases a tensor whose descriptor was not sent, because pickling failed.
#[pyfunction]
pub(crate) fn _release(token: &[u8]) {
    if let Some(outbox) = own() {
        outbox.release(token);
    }
}

/// Waits until receivers have leased all tensors that this process sent, for `seconds` at most.
#[pyfunction]
pub(crate) fn _wait_until_received(py: Python<'_>, seconds: f64) -> Result<()> {
    let timeout = duration(seconds)?;
    if let Some(outbox) = own() {
        wait::wait(py, Some(timeout), |slice| Ok(outbox.wait_until_empty(slice).then_some(())))?;
    }
    Ok(())
}

/// Runs in each forked child, right after the fork: closes its copies of the parent's descriptors.
#[pyfunction]
pub(crate) fn _after_fork() {
    if let Some(inherited) = current().take_if(|outbox| outbox.pid != process::id()) {
        inherited.socket.close_inherited();
        // Dropping it would release the parent's tensors, and could wait for a lock that no thread unlocks.
        mem::forget(inherited);
    }
}

/// How many tensors this process holds because they are in a queue or pipe of `multiprocessing`.
#[pyfunction]
pub(crate) fn in_transit() -> usize {
    count(None)
}

/// Releases the tensors that this process put into queues and pipes of `multiprocessing` at least
/// `older_than` seconds ago and that no process has taken out. Returns how many these were. Use it after a
/// receiver has died.
///
/// A process that takes one out later fails with `cenote.Stale` once the memory was reused.
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
