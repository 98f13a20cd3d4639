//! `BENCHMARKS.md`, and the chart in it.

use std::fs;
use std::path::Path;

use crate::Result;
use crate::bars::Outcome;
use crate::found::{Fact, Found, Version};
use crate::machine::Machine;
use crate::series::Row;
use crate::{chart, table};

const CHART: &str = "benchmarks.svg";

const HOW_TO_READ: &str = "\
## How to read it

Times are of one operation; nothing is trimmed. What takes less than some microseconds is timed several at once, and a
sample is the mean of those. All who do a work take turns: a short take each, in every round, so that a busy machine
slows all of them. Compare ratios rather than times.

Where two processes take part, the *floor* is measured before and after every take: a bare round trip of 128 bytes over
shared memory, on which both spin. On some machines, virtual ones above all, the distance of the two cores changes
from one second to the next, and everything that crosses them moves with it. *Cores* says where they were: near
(a floor of up to 300 ns), far, two threads of one core, which slow each other down and are not two cores, or moved in the
middle of a take, which then is compared with nothing. The column *floor* is the median of those rounds. A round trip hands over a fresh frame each way, of which the first word is written
and read; both sides poll. Waking up is there and back with both sides asleep. Percentiles beyond 99.9 are mostly the
system's.

Setting up makes files. Each keeps its own where it does unless it is told otherwise: cenote in memory, and iceoryx2 in the
directory for temporary files, which is on a disk on some machines. So iceoryx2 is there with its files in memory, too.

A bar is a ratio that must not be exceeded: the median over rounds of the ratio of medians, of rounds in which the
cores were where the bar says. `crates/compare/bars.toml` has them.
";

/// Writes both files.
pub(crate) fn write(
    dir: &Path,
    machine: &Machine,
    versions: &[Version],
    rows: &[Row],
    found: &Found,
    outcomes: &[Outcome],
) -> Result<()> {
    fs::write(dir.join(CHART), chart::svg(rows))?;
    let text = text(machine, versions, rows, &found.facts, outcomes);
    Ok(fs::write(dir.join("BENCHMARKS.md"), text)?)
}

fn text(
    machine: &Machine,
    versions: &[Version],
    rows: &[Row],
    facts: &[Fact],
    outcomes: &[Outcome],
) -> String {
    let versions: Vec<String> =
        versions.iter().map(|each| format!("{} {}", each.name, each.version)).collect();
    let bars: String = outcomes.iter().map(|outcome| outcome.markdown() + "\n").collect();
    format!(
        "# Benchmarks\n\n\
         `scripts/compare --full` wrote this: cenote beside other ways to do the same, in one run, by turns.\n\n\
         - {}\n- {}\n\n\
         ![medians of some works, on a logarithmic scale]({CHART})\n\n\
         {HOW_TO_READ}\n\
         ## Bars\n\n| | ratio | at most | goal | rounds | |\n|---|--:|--:|--:|--:|---|\n{bars}\n\
         ## Times\n{}\n\
         ## Growth, and what is left\n\n{}",
        machine.text(),
        versions.join(", "),
        table::markdown(rows),
        table::facts_markdown(facts),
    )
}
