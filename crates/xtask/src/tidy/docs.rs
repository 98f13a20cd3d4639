//! Rules on the README, the guide and the other pages.

mod book;
mod links;
mod markdown;
mod pages;

pub(super) use book::check as check_book;
pub(super) use links::check as check_links;
pub(super) use pages::{check as check_pages, long_files};
