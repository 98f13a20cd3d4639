//! Whether a test runs on an emulated machine, whose limits and speed are the emulator's.

/// Set by the stage that does so: see `scripts/test`.
pub(crate) fn is_emulated() -> bool {
    std::env::var_os("CENOTE_TEST_EMULATED").is_some_and(|value| value == "1")
}
