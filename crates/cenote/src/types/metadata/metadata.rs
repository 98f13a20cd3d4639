//! What travels beside a tensor: where and when it was recorded, and what its elements mean.
//!
//! In a process that is a [`Header`] and whatever the domain type knows; between processes it is
//! [`Meta`], a few plain words at the end of a descriptor. Words that come from a peer are input:
//! [`Words`] returns them one by one, and an error after the last.

use crate::error::{Error, Result};

/// The most words of metadata that a descriptor has room for.
pub(crate) const MAX_META: usize = 64;

/// Metadata as words.
#[derive(Debug, Clone, Copy)]
pub struct Meta {
    /// At most `MAX_META`.
    len: usize,
    /// Beyond `len` there are zeros.
    words: [u64; MAX_META],
}

impl Meta {
    /// What `write` writes.
    pub(crate) fn of(write: impl FnOnce(&mut Room<'_>)) -> Meta {
        let mut words = [0; MAX_META];
        let len = Room::fill(&mut words, write);
        Meta { len, words }
    }

    /// The words in use.
    #[inline]
    pub fn as_words(&self) -> &[u64] {
        &self.words[..self.len]
    }

    /// Metadata of a peer. What it says is checked when it is read.
    pub fn from_words(words: &[u64]) -> Result<Meta> {
        let mut meta = Meta { len: words.len(), words: [0; MAX_META] };
        let room = meta.words.get_mut(..words.len());
        room.ok_or(Error::BadMessage { what: "too much metadata" })?.copy_from_slice(words);
        Ok(meta)
    }

    /// For reading what a peer wrote.
    pub(crate) fn reader(&self) -> Words<'_> {
        Words::of(self.as_words())
    }
}

/// Words that are still to be written.
#[derive(Debug)]
pub struct Room<'a> {
    words: &'a mut [u64],
    len: usize,
}

impl Room<'_> {
    /// Calls `write` with the words. Returns how many it wrote.
    #[inline]
    pub(crate) fn fill(words: &mut [u64], write: impl FnOnce(&mut Room<'_>)) -> usize {
        let mut room = Room { words, len: 0 };
        write(&mut room);
        room.len
    }

    /// How many were written.
    #[cfg(target_os = "linux")]
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Adds to a word that was written.
    #[cfg(target_os = "linux")]
    #[inline]
    pub(crate) fn add_to(&mut self, at: usize, bits: u64) {
        if let Some(word) = self.words.get_mut(at) {
            *word |= bits;
        }
    }

    /// Adds a word. There is room: the domain types limit what they have, and assert it.
    #[inline]
    pub(crate) fn push(&mut self, word: u64) {
        debug_assert!(self.len < self.words.len());
        if let Some(place) = self.words.get_mut(self.len) {
            *place = word;
            self.len += 1;
        }
    }
}

/// Words that are still to be read.
#[derive(Debug)]
pub struct Words<'a> {
    rest: &'a [u64],
}

impl<'a> Words<'a> {
    /// What a peer wrote, read where it is.
    #[inline]
    pub(crate) fn of(words: &'a [u64]) -> Words<'a> {
        Words { rest: words }
    }

    #[inline]
    pub(crate) fn next(&mut self) -> Result<u64> {
        let missing = || Error::BadMessage { what: "metadata is missing" };
        let (&first, rest) = self.rest.split_first().ok_or_else(missing)?;
        self.rest = rest;
        Ok(first)
    }

    /// An error if there is more than was read.
    #[inline]
    pub(crate) fn end(&self) -> Result<()> {
        if self.rest.is_empty() {
            return Ok(());
        }
        Err(Error::BadMessage { what: "more metadata than this type has" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_come_back_as_they_went() {
        for len in [0, 1, MAX_META] {
            let words: Vec<u64> = (0..len as u64).collect();
            assert_eq!(Meta::from_words(&words).unwrap().as_words(), words);
        }
        assert!(Meta::from_words(&[0; MAX_META + 1]).is_err());
    }

    #[test]
    fn reading_ends_where_the_words_do() {
        let meta = Meta::from_words(&[7]).unwrap();
        let mut words = meta.reader();
        assert!(words.end().is_err());
        assert_eq!(words.next().unwrap(), 7);
        assert!(words.end().is_ok() && words.next().is_err());
    }
}
