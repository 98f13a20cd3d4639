//! Inspecting topics without taking part in them.

pub(crate) mod info;
pub(crate) mod listing;
pub(crate) mod observer;
pub(crate) mod publisher_query;
pub(crate) mod type_check;
pub(crate) mod waiting;
