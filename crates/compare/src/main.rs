//! `compare`: cenote beside its peers, on the same work, in the same run, by turns. Not published.
//!
//! `scripts/compare` builds it with all peers and runs it. What is measured is a [`series::Series`] for each
//! work and each who does it: short takes, one in each round. Where two processes take part, every take is
//! between two measurements of the floor, a bare round trip over shared memory, because the distance of two
//! cores changes from one second to the next on some machines. Ratios are taken within a round, and only
//! where the floors agree.

#![cfg_attr(not(feature = "peers"), allow(unused_mut, reason = "lists to which peers are added"))]

mod allocators;
mod args;
mod bars;
mod buffers;
mod chart;
mod fan_out;
mod found;
mod groups;
mod growth;
mod hand_off;
mod machine;
mod memory;
mod networks;
mod other;
mod pace;
mod page;
mod pool;
mod python;
mod recovery;
mod region;
mod report;
mod run;
mod samples;
mod series;
mod set_up;
mod table;
mod toil;

use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use rustix::process::{Signal, set_parent_process_death_signal};

use crate::args::{Args, Part};
use crate::bars::{Bars, Outcome};
use crate::found::Found;
use crate::machine::Machine;
use crate::page::Page;
use crate::run::Run;

type Failure = Box<dyn std::error::Error + Send + Sync>;
type Result<T> = std::result::Result<T, Failure>;

/// Bytes of a 1080p RGB image.
const FRAME: usize = 1080 * 1920 * 3;

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
        None if run::dir().is_err() => {
            groups::chosen(args)?;
            Run::start()?.measure()
        }
        None => {
            die_with_parent()?;
            whole(args)
        }
        Some(Part::Other { role, page }) => {
            die_with_parent()?;
            groups::other(role, &Page::inherited(*page)?)?;
            Ok(0)
        }
        Some(Part::Floor { trips }) => {
            println!("{:.1}", other::Other::start("floor")?.floor(*trips)?);
            Ok(0)
        }
    }
}

/// So that nobody has to clean up after a parent that was killed.
fn die_with_parent() -> Result<()> {
    Ok(set_parent_process_death_signal(Some(Signal::KILL))?)
}

/// Measures, as part of a run.
fn whole(args: &Args) -> Result<u8> {
    let bars = match &args.bars {
        Some(path) => Bars::parse(&std::fs::read_to_string(path)?)?,
        None => Bars::parse(BARS)?,
    };
    let groups = groups::chosen(args)?;
    let mut found = Found::default();
    for group in &groups {
        let began = Instant::now();
        found.extend((group.run)(args).map_err(|error| format!("{}: {error}", group.name))?);
        eprintln!("{}: {:.1} s", group.name, began.elapsed().as_secs_f64());
    }
    let names: Vec<&str> = groups.iter().map(|group| group.name).collect();
    let outcomes = bars.judge(&names, &found.series);
    show(args, &found, &outcomes)?;
    Ok(bars::exit_code(&outcomes))
}

fn show(args: &Args, found: &Found, outcomes: &[Outcome]) -> Result<()> {
    let (machine, rows) = (Machine::this(), table::rows(&found.series));
    let versions = [machine::versions(), found.versions.clone()].concat();
    if args.full && args.only.is_empty() {
        report::write(&args.out, &machine, &versions, &rows, found, outcomes)?;
    }
    if args.json {
        let json = serde_json::json!({
            "machine": machine, "versions": versions, "rows": rows, "facts": found.facts, "bars": outcomes,
        });
        println!("{}", serde_json::to_string_pretty(&json)?);
    } else {
        println!("{}\n{}\nbars", table::plain(&rows), table::facts_plain(&found.facts));
        print!("{}", bars::text(outcomes));
    }
    Ok(())
}
