//! Which kind of memory an allocation gets: `request` says what the caller wants, `choose` tries the kinds in order, and
//! `selection` reports what was chosen and why.

pub(crate) mod choose;
pub(crate) mod request;
pub(crate) mod selection;
