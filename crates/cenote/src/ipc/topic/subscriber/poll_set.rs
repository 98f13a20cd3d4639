//! The connections to a few publishers, to sleep on for a thread that waits for a message.
//!
//! A thread that waits for a few descriptors wakes sooner from poll(2) than from epoll(7), which wakes it in two
//! steps; and poll knows timeouts of any length. So it waits for these themselves, and beside them for the epoll
//! instance, which has the bell, and publishers that other threads take in meanwhile. Where there are many, listing
//! them each time costs more than that.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};

use crate::ipc::topic::subscriber::publisher_link;
use crate::ipc::topic::subscriber::publisher_link::Other;
use crate::sys::fork::GuardedSocket;
use crate::sys::socket::seqpacket;

/// How many are a few.
const MOST: usize = 8;

/// Kept open for as long as somebody sleeps on them.
#[derive(Debug)]
pub(crate) struct Few(Vec<Arc<GuardedSocket>>);

impl Few {
    /// The connections to these publishers, unless they are many.
    pub(crate) fn of<'a>(others: impl Iterator<Item = &'a Other>) -> Option<Few> {
        let connections: Vec<_> =
            others.take(MOST + 1).map(|other| other.connection.clone()).collect();
        (connections.len() <= MOST).then_some(Few(connections))
    }

    /// Sleeps until one of them, or whatever is in `all`, has something to tell, for no longer than `timeout`, and
    /// reads what these tell. False if it was none of them.
    pub(crate) fn sleep(&self, all: &OwnedFd, timeout: Option<Duration>) -> io::Result<bool> {
        let mut fds: Vec<_> = self.0.iter().map(|one| PollFd::new(&**one, PollFlags::IN)).collect();
        fds.push(PollFd::new(all, PollFlags::IN));
        seqpacket::wait_any(&mut fds, timeout)?;
        let mut any = false;
        for (one, _) in self.0.iter().zip(&fds).filter(|(_, fd)| !fd.revents().is_empty()) {
            publisher_link::hush(one);
            any = true;
        }
        Ok(any)
    }
}
