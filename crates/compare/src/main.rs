//! `compare`: measures cenote and its peers on the same work, in the same run, in turns. Not published.
//!
//! ```text
//!   main.rs       the command line and the order of a run
//!   supervisor    runs the measuring process, and removes the files of the run whatever ends it
//!   groups/       what is measured: one file for each group of workloads
//!   report/       the table, the bars, BENCHMARKS.md and its chart
//!   measure/      rounds, series of samples, the helper process and the page shared with it
//!   allocators    allocators and the kernel behind one trait
//!   mapping       memory mapped directly
//!   results       what a group returns
//!   run_dir       the directories of a run
//! ```
//!
//! The terms:
//!
//! - A **workload** is one operation, such as a round trip of a 1080p frame. Several **subjects** do it: cenote and peers.
//! - In each **round**, every subject has a short **take**, one right after the other. A **series** is all takes of one
//!   subject.
//! - The **floor** is a bare round trip over shared memory between two processes. It is measured before and after every
//!   take of a workload for two processes, because on some machines the distance of two cores changes from one second
//!   to the next. Ratios are computed within a round, and only if the floors agree.
//! - A **bar** is the largest ratio that a run accepts (`bars.toml`).

#![cfg_attr(
    not(feature = "peers"),
    allow(unused_mut, reason = "peers are added to lists only if they are built in")
)]

mod allocators;
mod args;
mod groups;
mod mapping;
mod measure;
mod report;
mod results;
mod run_dir;
mod supervisor;

use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use rustix::process::{Signal, set_parent_process_death_signal};

use crate::args::{Args, Part};
use crate::measure::helper::Helper;
use crate::measure::shared_page::SharedPage;
use crate::report::bars::{self, BarOutcome, Bars};
use crate::report::machine::{self, Machine};
use crate::report::{markdown, table};
use crate::results::Results;
use crate::run_dir::RunDir;

type Failure = Box<dyn std::error::Error + Send + Sync>;
type Result<T> = std::result::Result<T, Failure>;

/// The bytes of a 1080p RGB image.
const FRAME: usize = 1080 * 1920 * 3;

/// The bars that are used without `--bars`.
const BARS: &str = include_str!("../bars.toml");

fn main() -> ExitCode {
    let args = Args::parse();
    match start(&args) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("compare: {error}");
            ExitCode::from(2)
        }
    }
}

fn start(args: &Args) -> Result<u8> {
    match &args.part {
        None if run_dir::dir().is_err() => {
            // Reports an unknown group before anything is created.
            groups::selected(args)?;
            supervisor::measure(&RunDir::create()?)
        }
        None => {
            die_with_parent()?;
            measure_all(args)
        }
        Some(Part::Helper { role, page }) => {
            die_with_parent()?;
            groups::run_helper(role, &SharedPage::inherited(*page)?)?;
            Ok(0)
        }
        Some(Part::Floor { trips }) => {
            println!("{:.1}", Helper::start("floor")?.floor(*trips)?);
            Ok(0)
        }
    }
}

/// Makes the kernel kill this process when its parent ends, even if the parent is killed.
fn die_with_parent() -> Result<()> {
    Ok(set_parent_process_death_signal(Some(Signal::KILL))?)
}

/// Measures the selected groups, and prints the results. Returns the exit code.
fn measure_all(args: &Args) -> Result<u8> {
    let bars = match &args.bars {
        Some(path) => Bars::parse(&std::fs::read_to_string(path)?)?,
        None => Bars::parse(BARS)?,
    };
    let groups = groups::selected(args)?;
    let mut results = Results::default();
    for group in &groups {
        let began = Instant::now();
        results.extend((group.run)(args).map_err(|error| format!("{}: {error}", group.name))?);
        eprintln!("{}: {:.1} s", group.name, began.elapsed().as_secs_f64());
    }
    let names: Vec<&str> = groups.iter().map(|group| group.name).collect();
    let outcomes = bars.judge(&names, &results.series);
    print(args, &results, &outcomes)?;
    Ok(bars::exit_code(&outcomes))
}

fn print(args: &Args, results: &Results, outcomes: &[BarOutcome]) -> Result<()> {
    let (machine, rows) = (Machine::this(), table::rows(&results.series));
    let versions = [machine::versions(), results.versions.clone()].concat();
    if args.full && args.only.is_empty() {
        markdown::write(&args.out, &machine, &versions, &rows, results, outcomes)?;
    }
    if args.json {
        let json = serde_json::json!({
            "machine": machine, "versions": versions, "rows": rows, "facts": results.facts, "bars": outcomes,
        });
        println!("{}", serde_json::to_string_pretty(&json)?);
    } else {
        println!("{}\n{}\nbars", table::plain(&rows), table::facts_plain(&results.facts));
        print!("{}", bars::text(outcomes));
    }
    Ok(())
}
