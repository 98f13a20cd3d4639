//! Rules on the README, the guide and the other pages.

mod book;
mod links;
mod markdown;
mod named_files;
mod pages;
mod table;

pub(super) use book::check as check_book;
pub(super) use links::check as check_links;
pub(super) use named_files::check as check_named_files;
pub(super) use pages::{check as check_pages, long_files};
pub(super) use table::marked_table;
