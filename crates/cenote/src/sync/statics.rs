//! std's atomics, for `static` items.
//!
//! loom makes its atomics at run time, so they cannot be statics, and no model covers these words. Use them for
//! numbers that are only counted, and for flags whose users justify the ordering themselves.

#![allow(unused_imports, reason = "which names are used depends on platform and features")]

pub(crate) use std::sync::atomic::{
    AtomicBool as StaticBool, AtomicPtr as StaticPtr, AtomicU32 as StaticU32,
    AtomicU64 as StaticU64,
};
