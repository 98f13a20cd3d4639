//! Waits in epoll(7) with a timeout of any length, on every Linux.
//!
//! Linux 5.11 has a call with timeouts in nanoseconds. Older kernels and emulators know only whole milliseconds, in 32
//! bits. So a timeout that is not in whole milliseconds is waited for with ppoll(2).

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, Event};
use rustix::io::Errno;

use crate::intervals::LONGEST_EPOLL;
use crate::sys::socket::seqpacket;

/// Waits until a file is ready, but not longer than `timeout`. Appends the events to `events` up to its capacity. A signal
/// ends the wait early.
pub(crate) fn wait(
    epoll: &OwnedFd,
    events: &mut Vec<Event>,
    timeout: Option<Duration>,
) -> io::Result<()> {
    let timeout = timeout.map(|timeout| timeout.min(LONGEST_EPOLL));
    let timeout = match timeout {
        Some(timeout) if !timeout.subsec_nanos().is_multiple_of(1_000_000) => {
            if !seqpacket::wait_readable(epoll, timeout)? {
                return Ok(());
            }
            Some(Duration::ZERO)
        }
        whole => whole,
    };
    let timeout = timeout.map(Timespec::try_from).transpose().map_err(io::Error::other)?;
    match epoll::wait(epoll, spare_capacity(events), timeout.as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(source) => Err(source.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_takes_timeouts_of_any_length() {
        use rustix::event::{EventfdFlags, eventfd};
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        let mut events = Vec::with_capacity(4);
        for timeout in [Duration::ZERO, Duration::from_micros(1), Duration::from_millis(1)] {
            wait(&epoll, &mut events, Some(timeout)).unwrap();
            assert!(events.is_empty());
        }
        let bell = eventfd(1, EventfdFlags::CLOEXEC).unwrap();
        epoll::add(&epoll, &bell, epoll::EventData::new_u64(7), epoll::EventFlags::IN).unwrap();
        for timeout in [None, Some(Duration::MAX), Some(Duration::from_micros(1500))] {
            events.clear();
            wait(&epoll, &mut events, timeout).unwrap();
            assert_eq!(events.len(), 1, "{timeout:?}");
        }
    }
}
