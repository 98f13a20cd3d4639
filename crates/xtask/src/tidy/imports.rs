//! Which file of a crate imports which: the graph that the rules on layers and cycles are about.
//!
//! It is read from the text of the files, without a compiler. A path leads to the file that defines the
//! name, even if modules on the way re-export it. Not counted as imports: what a module re-exports of
//! its children, calls of the form `child::name()`, code for tests (`#[cfg(test)]`), and the root of
//! the crate, which lists the modules.

mod cycles;
mod graph;
mod paths;
mod tokens;

pub(super) use cycles::cycles;
pub(super) use graph::ImportGraph;

/// The paths that a file names outside code for tests, such as `std`, `sync`, `Arc`.
pub(super) fn paths_of(source: &str) -> Vec<Vec<String>> {
    let tokens = tokens::tokens(source);
    let (tokens, _) = tokens::without_tests(&tokens);
    paths::named_paths(&tokens).into_iter().map(|path| path.segments).collect()
}

/// Whether a file names this word outside code for tests.
pub(super) fn names_word(source: &str, word: &str) -> bool {
    let tokens = tokens::tokens(source);
    tokens::without_tests(&tokens).0.contains(&word)
}
