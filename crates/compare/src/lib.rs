//! Benchmarks of cenote beside the floors of the system and other allocators. Not published.
//!
//! - `cargo bench -p compare --bench tensor`
//! - `cargo bench -p compare --bench buffer`
//! - `cargo bench -p compare --bench pool`
//! - `cargo bench -p compare --features gl --bench opengl`
