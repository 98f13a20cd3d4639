//! The connections to a few publishers, and a bell for the rest: what a thread sleeps on that waits for a message.
//!
//! A thread that waits for a few descriptors wakes sooner from poll(2) than from epoll(7), which wakes it in two
//! steps; and poll knows timeouts of any length. Where there are many, listing them each time costs more
//! than that.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};

use crate::os::fork::GuardedSocket;
use crate::os::unix;
use crate::topic::bell::Bell;
use crate::topic::source::{self, Other};

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

    /// Sleeps until a publisher, or the bell, has something to tell, for no longer than `timeout`, and reads
    /// what it was woken with. If there is more, the next sleep is short.
    pub(crate) fn sleep(&self, bell: &Bell, timeout: Option<Duration>) -> io::Result<()> {
        let mut fds: Vec<_> = self.0.iter().map(|one| PollFd::new(&**one, PollFlags::IN)).collect();
        fds.push(PollFd::new(bell, PollFlags::IN));
        unix::wait_any(&mut fds, timeout)?;
        for (n, _) in fds.iter().enumerate().filter(|(_, fd)| !fd.revents().is_empty()) {
            match self.0.get(n) {
                Some(connection) => drop(source::hush(connection)),
                None => bell.hush(),
            }
        }
        Ok(())
    }
}
