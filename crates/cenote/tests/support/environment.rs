//! What the tests run on, as the environment says.

/// Whether the tests run in an emulator, which does not emulate everything.
pub(crate) fn emulated() -> bool {
    std::env::var_os("CENOTE_TEST_EMULATED").is_some()
}

/// How often a test starts a new process: a fifth of `many` in an emulator, where starting is slow.
pub(crate) fn rounds(many: usize) -> usize {
    if emulated() { many.div_ceil(5) } else { many }
}

/// Whether the tests run under AddressSanitizer, which is slow and makes additional system calls.
pub(crate) fn sanitized() -> bool {
    std::env::var_os("ASAN_OPTIONS").is_some()
}

/// Whether `CENOTE_TEST_SKIP` names these tests.
pub(crate) fn skipped(what: &str) -> bool {
    let skip = std::env::var("CENOTE_TEST_SKIP").unwrap_or_default();
    skip.split([',', ' ']).any(|name| name == what)
}
