//! Tensors on their way through a queue or pipe of `multiprocessing`, as descriptors.
//!
//! A descriptor holds nothing, so whoever put it into a queue has to hold the tensor until somebody
//! took it out: this is where it does. The receiver leases the tensor and sends back a token, as a
//! datagram; a thread here that needs no interpreter lets go of the tensor. What nobody takes out is
//! held until the process ends; a process of `multiprocessing` waits a little for that.
//!
//! A token is hard to guess, and a wrong one does nothing. A right one sent too early would make a
//! descriptor stale, which is an error for whoever takes it out of the queue, and nothing worse.

use std::collections::HashMap;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{io, mem, process, thread};

use cenote::{Domain, Error, TensorDescriptor, TensorPool};
use pyo3::prelude::*;
use rustix::rand::{GetRandomFlags, getrandom};

use crate::error::{Result, raise};
use crate::timeout::duration;

/// How long a receiver tries to tell a sender that does not listen, because it is stopped.
const PATIENCE: Duration = Duration::from_secs(1);

/// What the receiver sends back.
type Token = [u8; 16];

/// What this process holds for others.
struct Outbox {
    pid: u32,
    /// The name of the socket, in the abstract namespace: it leaves nothing behind.
    address: Vec<u8>,
    secret: [u8; 8],
    held: Mutex<Held>,
    /// Something has arrived.
    less: Condvar,
}

#[derive(Default)]
struct Held {
    number: u64,
    /// With the pool that each is in.
    tensors: HashMap<Token, (u64, cenote::Tensor)>,
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
        let (mut name, mut secret) = ([0; 8], [0; 8]);
        getrandom(&mut name, GetRandomFlags::empty())?;
        getrandom(&mut secret, GetRandomFlags::empty())?;
        let address = format!("cenote-transit-{}-{:016x}", process::id(), u64::from_ne_bytes(name));
        let address = address.into_bytes();
        let socket = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&address)?)?;
        let (pid, held, less) = (process::id(), Mutex::default(), Condvar::new());
        let outbox = Arc::new(Outbox { pid, address, secret, held, less });
        let listening = outbox.clone();
        let thread = thread::Builder::new().name("cenote-transit".to_owned());
        thread.spawn(move || listening.listen(&socket))?;
        Ok(outbox)
    }

    /// Lets go of what has arrived, until the process ends.
    fn listen(&self, socket: &UnixDatagram) {
        let mut token = [0; size_of::<Token>() + 1];
        loop {
            match socket.recv(&mut token) {
                Ok(len) => self.let_go(&token[..len]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return,
            }
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
        held.tensors.insert(token, (descriptor.pool(), tensor));
        token
    }

    fn let_go(&self, token: &[u8]) {
        let Ok(token) = Token::try_from(token) else { return };
        let tensor = self.held().tensors.remove(&token);
        drop(tensor); // after the lock
        self.less.notify_all();
    }

    /// Waits until all has arrived.
    fn linger(&self, patience: Duration) {
        let waiting = |held: &mut Held| !held.tensors.is_empty();
        // What a panic left behind is whole, and there is nothing to do about it here.
        let _ = self.less.wait_timeout_while(self.held(), patience, waiting);
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
) -> Result<(TensorDescriptor, Vec<u8>, Token)> {
    let failed = |error: io::Error| raise("OsError", error.to_string(), error.raw_os_error());
    let outbox = Outbox::get().map_err(failed)?;
    let (descriptor, tensor) = py.detach(|| described(what))?;
    let token = outbox.hold(&descriptor, tensor);
    Ok((descriptor, outbox.address.clone(), token))
}

/// How many tensors, of one pool or all, are on their way.
pub(crate) fn count(pool: Option<u64>) -> usize {
    let Some(outbox) = own() else { return 0 };
    let held = outbox.held();
    held.tensors.values().filter(|(uid, _)| pool.is_none_or(|pool| pool == *uid)).count()
}

/// Tells the sender that its tensor was leased. If that fails, it holds it until it ends.
#[pyfunction]
pub(crate) fn _arrived(py: Python<'_>, address: &[u8], token: &[u8]) {
    match own().filter(|outbox| outbox.address == address) {
        Some(outbox) => outbox.let_go(token),
        // It may be gone, or not listen: then there is nothing to be done.
        None => drop(py.detach(|| tell(address, token))),
    }
}

/// Waits until all that was sent has arrived, but no longer than `seconds`.
#[pyfunction]
pub(crate) fn _linger(py: Python<'_>, seconds: f64) -> Result<()> {
    let patience = duration(seconds)?;
    if let Some(outbox) = own() {
        py.detach(|| outbox.linger(patience));
    }
    Ok(())
}

fn tell(address: &[u8], token: &[u8]) -> io::Result<()> {
    let socket = UnixDatagram::unbound()?;
    socket.set_write_timeout(Some(PATIENCE))?;
    socket.send_to_addr(token, &SocketAddr::from_abstract_name(address)?).map(drop)
}

/// How many tensors were put into queues and pipes of `multiprocessing` and not taken out yet. This
/// process holds them until then.
#[pyfunction]
pub(crate) fn in_transit() -> usize {
    count(None)
}
