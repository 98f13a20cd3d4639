//! `cenote demo`: a camera and three subscribers. The demo kills and restarts two of these processes.
//!
//! ```text
//!   camera      → demo.rgb, demo.depth, demo.cloud        60 times a second
//!   statistic   ← demo.rgb, demo.cloud                    checks every byte
//!   projection  ← demo.depth  → demo.points               checks every byte, and publishes points
//!   slow        ← demo.rgb                                holds frames, and misses most
//! ```
//!
//! Each of them is this program in a role (`role.rs`). `supervisor.rs` starts, kills and restarts them, `view.rs`
//! shows them live, `summary.rs` prints the result.

mod camera;
mod process;
mod projection;
mod report;
mod role;
mod slow;
mod statistic;
mod summary;
mod supervisor;
mod test_data;
mod view;

use std::time::Duration;

use crate::argument;
use crate::failure::Outcome;
use crate::output::Output;
use crate::test_pattern::Size;

use role::Role;

/// Run a camera and three subscribers live, and kill two of these processes
///
/// The camera sends an image, a depth image and a point cloud 60 times a second. Half-way, the demo kills a
/// subscriber, and the camera reclaims the frames that it held. Then the demo kills the camera and starts a new one,
/// which the subscribers find. They check every byte; if one is wrong, the exit code is 1.
///
/// Press q to end early with a summary, Ctrl-C to stop at once.
///
/// Example: cenote demo --size 4k
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The duration in seconds
    #[arg(short, long, default_value_t = 12.0, value_parser = seconds)]
    seconds: f64,

    /// The size of the image: WIDTHxHEIGHT, 480p, 720p, 1080p or 4k
    #[arg(long, default_value = "1080p")]
    size: Size,

    /// Change a value in some of the messages, to see that the subscribers notice
    #[arg(long)]
    spoil: bool,

    /// The role of a child process; only this command sets it
    #[arg(long, hide = true)]
    role: Option<Role>,
}

fn seconds(given: &str) -> Result<f64, String> {
    argument::number_within(3.0..=3600.0, given)
}

impl Args {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        match self.role {
            Some(role) => role.run(self.size, self.spoil),
            None => {
                let time = Duration::from_secs_f64(self.seconds);
                supervisor::run(time, self.size, self.spoil, output)
            }
        }
    }
}
