//! `cenote demo`: a camera, three subscribers, and two of them killed.
//!
//! ```text
//!   camera      → demo.rgb, demo.depth, demo.cloud        60 times a second
//!   statistic   ← demo.rgb, demo.cloud                    looks at every byte
//!   projection  ← demo.depth  → demo.points               looks at every byte, and republishes
//!   slow        ← demo.rgb                                holds frames, and misses most
//! ```
//!
//! All are this program in a role (`role.rs`); `play.rs` directs, `view.rs` shows it live, `summary.rs`
//! says what came of it.

mod camera;
mod play;
mod projection;
mod report;
mod role;
mod scenery;
mod slow;
mod statistic;
mod summary;
mod view;

use std::time::Duration;

use crate::failure::Outcome;
use crate::output::Output;
use crate::pattern::Size;
use crate::unit;

use role::Role;

/// A camera process and three subscribers, live; half-way, some are killed
///
/// The camera sends a moving pattern, a depth image and a point cloud, 60 times a second. Half-way a
/// subscriber is killed, and the frames that it held come back; then the camera is, and is started again.
/// Every byte of pictures, depth images and clouds is checked: if one is wrong, the exit code says so.
/// q ends it early, Ctrl-C at once.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How long it takes
    #[arg(short, long, default_value_t = 12.0, value_parser = seconds)]
    seconds: f64,

    /// The size of the picture: WIDTHxHEIGHT, 480p, 720p, 1080p or 4k
    #[arg(long, default_value = "1080p")]
    size: Size,

    /// Have the camera get something wrong now and then in each of them, to see that it is noticed
    #[arg(long)]
    spoil: bool,

    /// One of the processes; the command starts them itself
    #[arg(long, hide = true)]
    role: Option<Role>,
}

fn seconds(given: &str) -> Result<f64, String> {
    unit::within(3.0..=3600.0, given)
}

impl Args {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        match self.role {
            Some(role) => role.run(self.size, self.spoil),
            None => play::play(Duration::from_secs_f64(self.seconds), self, output),
        }
    }
}
