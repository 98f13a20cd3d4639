//! The roles of the demo's processes.

use std::fmt;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::commands::demo::{camera, projection, slow, statistic};
use crate::failure::Outcome;
use crate::process::child::Parent;
use crate::test_pattern::Size;

/// What a process of the demo does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Role {
    Camera,
    Statistic,
    Projection,
    Slow,
}

impl Role {
    pub(crate) const ALL: [Role; 4] = [Role::Camera, Role::Statistic, Role::Projection, Role::Slow];

    pub(crate) const SUBSCRIBERS: usize = Self::ALL.len() - 1;

    pub(crate) fn name(self) -> &'static str {
        match self {
            Role::Camera => "camera",
            Role::Statistic => "statistic",
            Role::Projection => "projection",
            Role::Slow => "slow",
        }
    }

    /// Runs the role until the parent closes the input of this process.
    pub(crate) fn run(self, size: Size, spoil: bool) -> Outcome {
        let parent = Parent::connect();
        match self {
            Role::Camera => camera::run(&parent, size, spoil),
            Role::Statistic => statistic::run(&parent),
            Role::Projection => projection::run(&parent),
            Role::Slow => slow::run(&parent),
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
