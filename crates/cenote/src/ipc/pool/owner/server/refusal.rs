//! Refusing a process that wants to attach or to subscribe.

use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use crate::ipc::shared::wire::Refusal;
use crate::ipc::shared::words::Words;
use crate::memory::budget::Budget;
use crate::sys::socket::packet;

/// The most readers of one pool, if there are file descriptors for them.
const MAX_READERS: usize = 1024;

/// Reserves the memory of a row. Refuses if there is too little: many readers must not exhaust the owner.
pub(crate) fn new_row(name: &str, words: usize) -> Result<(Words, OwnedFd), Refusal> {
    let reservation = Budget::reserve(words * size_of::<u64>()).map_err(|_| Refusal::Memory)?;
    let made = Words::create_for_peer(name, words);
    reservation.settle();
    made.map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::MFILE | Errno::NFILE) => Refusal::Descriptors,
        _ => Refusal::Memory,
    })
}

/// How many readers may attach. Each costs the owner two file descriptors, and the rest of the program needs some.
pub(crate) fn max_readers() -> usize {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(limit / 4).unwrap_or(usize::MAX).min(MAX_READERS)
}

/// Sends the reason of a refusal, unless the socket is full.
pub(crate) fn refuse(connection: BorrowedFd<'_>, refusal: Refusal) {
    let _ = packet::send(connection, bytemuck::bytes_of(&refusal.packet()), &[]);
}
