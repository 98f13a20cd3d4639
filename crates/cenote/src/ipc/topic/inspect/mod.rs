//! Looking at topics without taking part.

pub(crate) mod listing;
pub(crate) mod observer;
pub(crate) mod waiting;
