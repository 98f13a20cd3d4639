//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand};

use crate::pace::Pace;

/// Measures cenote and its peers on the same work, in the same run, by turns.
///
/// Ends with 0 if all bars were held, 1 if one was missed, 2 if something failed, and 3 if one could not be
/// judged: a peer is not built in, or in no round were the cores where the bar wants them.
#[derive(Debug, Parser)]
#[command(name = "compare", version)]
pub(crate) struct Args {
    /// The core rows, in less than 50 seconds. The default.
    #[arg(long, conflicts_with = "full")]
    pub(crate) quick: bool,

    /// Everything, in less than 10 minutes; writes BENCHMARKS.md and its chart, unless there is --only.
    #[arg(long)]
    pub(crate) full: bool,

    /// Only this group; can be given more than once.
    #[arg(long, value_name = "GROUP")]
    pub(crate) only: Vec<String>,

    /// Print JSON instead of the table.
    #[arg(long)]
    pub(crate) json: bool,

    /// Rounds of each work.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) rounds: Option<u16>,

    /// Milliseconds of each one's take in a round.
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) take: Option<u16>,

    /// Bars to hold, instead of those that are built in.
    #[arg(long, value_name = "FILE")]
    pub(crate) bars: Option<PathBuf>,

    /// A Python that has cenote and its peers, for the group python.
    #[arg(long, value_name = "PROGRAM")]
    pub(crate) python: Option<PathBuf>,

    /// Where the full run writes.
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) out: PathBuf,

    #[command(subcommand)]
    pub(crate) part: Option<Part>,
}

/// What this program starts itself for.
#[derive(Debug, Subcommand)]
pub(crate) enum Part {
    /// The other process of a group.
    #[command(hide = true)]
    Other {
        /// Of which.
        role: String,
        /// The page that is shared.
        page: i32,
    },
    /// The bare round trip between two processes, in nanoseconds.
    Floor {
        /// How many.
        #[arg(default_value_t = 5_000)]
        trips: usize,
    },
}

impl Args {
    /// How long things are measured.
    pub(crate) fn pace(&self) -> Pace {
        let (rounds, take) = if self.full { (40, 25) } else { (16, 8) };
        let take = Duration::from_millis(u64::from(self.take.unwrap_or(take)));
        Pace {
            rounds: self.rounds.map_or(rounds, usize::from),
            take,
            warm_up: take,
            full: self.full,
        }
    }
}
