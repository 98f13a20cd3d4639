//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand};

use crate::measure::rounds::Schedule;

/// Measures cenote and its peers on the same work, in the same run, in turns.
///
/// The exit code is 0 if all bars were held, 1 if one was missed, 2 if something failed, and 3 if one could not be
/// judged: a peer is not built in, or in no round was the distance of the cores the one that the bar requires.
#[derive(Debug, Parser)]
#[command(name = "compare", version)]
pub(crate) struct Args {
    /// Measure the core rows, in less than 50 seconds. The default.
    #[arg(long, conflicts_with = "full")]
    pub(crate) quick: bool,

    /// Measure everything, in less than 10 minutes. Without --only it writes BENCHMARKS.md and its chart.
    #[arg(long)]
    pub(crate) full: bool,

    /// Measure only this group; may be given several times.
    #[arg(long, value_name = "GROUP")]
    pub(crate) only: Vec<String>,

    /// Print JSON instead of the table.
    #[arg(long)]
    pub(crate) json: bool,

    /// The number of rounds of each workload.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) rounds: Option<u16>,

    /// The duration of a take, in milliseconds. Each subject has one take in each round.
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) take: Option<u16>,

    /// Read the bars from this file instead of the built-in ones.
    #[arg(long, value_name = "FILE")]
    pub(crate) bars: Option<PathBuf>,

    /// The Python for the group python; it needs the packages cenote, numpy, iceoryx2 and horus-robotics.
    #[arg(long, value_name = "PROGRAM")]
    pub(crate) python: Option<PathBuf>,

    /// The directory that the full run writes to.
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) out: PathBuf,

    #[command(subcommand)]
    pub(crate) part: Option<Part>,
}

/// A part of a run that needs a process.
#[derive(Debug, Subcommand)]
pub(crate) enum Part {
    /// Run the helper process of a group; only this program starts it.
    #[command(hide = true)]
    Helper {
        /// The group.
        role: String,
        /// The file descriptor of the shared page.
        page: i32,
    },
    /// Print the duration of a bare round trip between two processes, in nanoseconds.
    Floor {
        /// The number of round trips.
        #[arg(default_value_t = 5_000)]
        trips: usize,
    },
}

impl Args {
    /// The rounds and takes that the arguments select.
    pub(crate) fn schedule(&self) -> Schedule {
        let (rounds, take) = if self.full { (40, 25) } else { (16, 8) };
        let take = Duration::from_millis(u64::from(self.take.unwrap_or(take)));
        Schedule {
            rounds: self.rounds.map_or(rounds, usize::from),
            take,
            warm_up: take,
            full: self.full,
        }
    }
}
