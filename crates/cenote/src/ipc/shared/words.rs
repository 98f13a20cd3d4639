//! Mapped memory as atomic words. Bytes that another process may be writing are accessed in no other way.
//!
//! # Contract
//! A [`Words`] owns a mapping of at least `len` words, aligned to pages. Every access in this process goes through
//! `&[AtomicU64]`. So there is no data race in the sense of the language, whatever other processes do to the memory.
#![allow(unsafe_code, reason = "mapped memory becomes atomics")]

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::{io, slice};

use crate::sync::AtomicU64;
use crate::sys::mapping::{Access, Map};
use crate::sys::memfd;

/// Words of shared memory.
#[derive(Debug)]
pub(crate) struct Words {
    map: Map,
    len: usize,
}

impl Words {
    /// Makes words that are all zero, and the file behind them for other processes to map.
    pub(crate) fn create(name: &str, len: usize) -> io::Result<(Words, Arc<OwnedFd>)> {
        let fd = Arc::new(memfd::create(name, byte_len(len)? as u64)?);
        Ok((Words::writable(&fd, len)?, fd))
    }

    /// Makes words that are all zero and that this process only reads. The process that gets the file writes them.
    pub(crate) fn create_for_peer(name: &str, len: usize) -> io::Result<(Words, OwnedFd)> {
        let fd = memfd::create(name, byte_len(len)? as u64)?;
        Ok((Words::read_only(&fd, len)?, fd))
    }

    /// Maps the first `len` words of a file. The caller has checked that the file is large enough and sealed against
    /// shrinking.
    pub(crate) fn writable(fd: &Arc<OwnedFd>, len: usize) -> io::Result<Words> {
        let map = Map::shared(fd.as_fd(), byte_len(len)?, 1, Access::Write)?;
        Ok(Words { map: map.keeping_open(fd.clone()), len })
    }

    /// As [`Words::writable`], but a store would fault.
    pub(crate) fn read_only(fd: &OwnedFd, len: usize) -> io::Result<Words> {
        let map = Map::shared(fd.as_fd(), byte_len(len)?, 1, Access::Read)?;
        Ok(Words { map, len })
    }

    /// The words. Only words that were mapped for writing may be stored to.
    #[inline]
    pub(crate) fn get(&self) -> &[AtomicU64] {
        const { assert!(cfg!(loom) || align_of::<AtomicU64>() == 8) };
        // SAFETY: the mapping has `len` words, lives as long as `self`, is aligned to pages, and
        // is only ever accessed atomically.
        unsafe { slice::from_raw_parts(self.map.ptr().as_ptr().cast(), self.len) }
    }
}

fn byte_len(words: usize) -> io::Result<usize> {
    words.checked_mul(size_of::<u64>()).ok_or(io::ErrorKind::OutOfMemory.into())
}
