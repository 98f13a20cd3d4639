//! The result of a check of `cenote doctor`.

use serde::Serialize;

/// The result of one check.
#[derive(Debug, Serialize)]
pub(super) struct Check {
    pub(super) name: &'static str,
    pub(super) state: CheckState,
    pub(super) found: String,
    /// What to do about it; `None` if it works.
    pub(super) advice: Option<&'static str>,
}

/// How well something works.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum CheckState {
    /// It works.
    Works,
    /// It works with restrictions.
    Limited,
    /// It is not available; features that need it do not work.
    Missing,
    /// It does not work, and nothing works without it.
    Broken,
}

impl Check {
    pub(super) fn new(name: &'static str, state: CheckState, found: impl Into<String>) -> Check {
        Check { name, state, found: found.into(), advice: None }
    }

    pub(super) fn works(name: &'static str, found: impl Into<String>) -> Check {
        Check::new(name, CheckState::Works, found)
    }

    pub(super) fn advise(self, advice: &'static str) -> Check {
        let advice = (self.state != CheckState::Works).then_some(advice);
        Check { advice, ..self }
    }
}
