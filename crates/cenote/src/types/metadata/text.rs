//! Short text in place, without an allocation.

use std::fmt;

use crate::error::{Error, Result};
use crate::types::metadata::{Room, Words};

/// UTF-8 text of at most `N` bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Text<const N: usize> {
    /// At most `N`.
    len: u8,
    /// The first `len` are UTF-8, the others 0.
    bytes: [u8; N],
}

impl<const N: usize> Text<N> {
    const FITS: () = assert!(N <= u8::MAX as usize && N.is_multiple_of(8));

    /// The words that the longest text takes.
    pub(crate) const WORDS: usize = N / 8;

    /// None if it is too long.
    pub(crate) fn new(text: &str) -> Option<Self> {
        let () = Self::FITS;
        let mut bytes = [0; N];
        bytes.get_mut(..text.len())?.copy_from_slice(text.as_bytes());
        Some(Text { len: u8::try_from(text.len()).ok()?, bytes })
    }

    pub(crate) fn as_str(&self) -> &str {
        // Both constructors check that it is UTF-8.
        std::str::from_utf8(&self.bytes[..self.len()]).unwrap_or_default()
    }

    pub(crate) fn len(&self) -> usize {
        usize::from(self.len)
    }

    /// Adds the words in use. The length goes elsewhere.
    #[inline]
    pub(crate) fn write(&self, room: &mut Room<'_>) {
        for word in self.bytes[..self.len().next_multiple_of(8)].chunks_exact(8) {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(word);
            room.push(u64::from_ne_bytes(bytes));
        }
    }

    /// Text of `len` bytes, as [`write`](Self::write) wrote it.
    #[inline]
    pub(crate) fn read(len: u64, words: &mut Words<'_>) -> Result<Self> {
        // Most have none.
        if len == 0 { Ok(Text::default()) } else { Text::read_some(len, words) }
    }

    fn read_some(len: u64, words: &mut Words<'_>) -> Result<Self> {
        let bad = |what| Error::BadMessage { what };
        let len =
            usize::try_from(len).ok().filter(|&len| len <= N).ok_or(bad("too long a text"))?;
        let mut bytes = [0; N];
        for place in bytes[..len.next_multiple_of(8)].chunks_exact_mut(8) {
            place.copy_from_slice(&words.next()?.to_ne_bytes());
        }
        let text = std::str::from_utf8(&bytes[..len]).map_err(|_| bad("text that is not UTF-8"))?;
        Text::new(text).ok_or(bad("too long a text"))
    }
}

impl<const N: usize> Default for Text<N> {
    fn default() -> Self {
        Text { len: 0, bytes: [0; N] }
    }
}

impl<const N: usize> fmt::Debug for Text<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::metadata::Meta;

    #[test]
    fn text_round_trips_through_words() {
        for text in ["", "x", "12345678", "123456789", "åäöü°", "0123456789abcdef"] {
            let short = Text::<16>::new(text).unwrap();
            let meta = Meta::of(|room| short.write(room));
            let mut words = meta.reader();
            let back = Text::<16>::read(text.len() as u64, &mut words).unwrap();
            assert_eq!((back.as_str(), back), (text, short));
            words.end().unwrap();
        }
        assert_eq!(Text::<16>::new("0123456789abcdefg"), None);
    }

    #[test]
    fn what_is_no_text_is_refused() {
        let meta = Meta::from_words(&[u64::MAX, 0]).unwrap();
        for len in [1, 8, 17, 24, u64::MAX] {
            assert!(Text::<16>::read(len, &mut meta.reader()).is_err(), "{len}");
        }
        assert!(Text::<16>::read(16, &mut Meta::of(|_| {}).reader()).is_err());
    }
}
