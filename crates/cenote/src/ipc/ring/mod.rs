//! The queue of one publisher: its entries, the codec of a message in an entry, and the words by which a
//! subscriber reports its progress.

pub(crate) mod codec;
pub(crate) mod cursor;
pub(crate) mod layout_cache;
#[cfg(all(test, loom))]
pub(crate) mod loom_tests;
pub(crate) mod ring;
pub(crate) mod subscriber_words;

pub(crate) use ring::{Entry, Found, Reader, Shape, Shipped, Writer};
