//! `BENCHMARKS.md`, and the chart in it.

use std::fs;
use std::path::Path;

use crate::Result;
use crate::measure::series::ResultRow;
use crate::report::bars::BarOutcome;
use crate::report::machine::Machine;
use crate::report::{chart, table};
use crate::results::{Fact, PackageVersion, Results};

const CHART: &str = "benchmarks.svg";

const HOW_TO_READ: &str = "\
## How to read it

Times are those of one operation. No outlier is removed. Operations of less than some microseconds are timed in batches, and a sample is
the mean of a batch. All subjects of a workload have a short take in every round, one after the other, so that a busy machine slows all of
them. Compare ratios rather than times.

If two processes take part, the *floor* is measured before and after every take: a bare round trip of 128 bytes over shared memory, on
which both processes spin. On some machines, virtual ones above all, the distance of the two cores changes from one second to
the next, and every time between them changes with it. The column *cores* is that distance: near (a floor of up to 300 ns), far, two
threads of one core (which slow each other down), or moved during a take. A take that moved is compared with nothing. The
column *floor* is the median of these rounds. A round trip sends a new frame in each direction and writes and reads its first word; both
sides poll. In a wake-up round trip both sides sleep. Percentiles beyond 99.9 are mostly those of the system.

Setting up creates files. Each library keeps them in its default place: cenote in memory, iceoryx2 in the directory for
temporary files, which is on a disk on some machines. So iceoryx2 is measured with its files in memory, too.

A bar is the largest accepted ratio: the median over rounds of the ratio of medians, in rounds with the distance of the cores that the
bar requires. They are in `crates/compare/bars.toml`.
";

/// Writes both files.
pub(crate) fn write(
    dir: &Path,
    machine: &Machine,
    versions: &[PackageVersion],
    rows: &[ResultRow],
    results: &Results,
    outcomes: &[BarOutcome],
) -> Result<()> {
    fs::write(dir.join(CHART), chart::svg(rows))?;
    let text = text(machine, versions, rows, &results.facts, outcomes);
    Ok(fs::write(dir.join("BENCHMARKS.md"), text)?)
}

fn text(
    machine: &Machine,
    versions: &[PackageVersion],
    rows: &[ResultRow],
    facts: &[Fact],
    outcomes: &[BarOutcome],
) -> String {
    let versions: Vec<String> =
        versions.iter().map(|each| format!("{} {}", each.name, each.version)).collect();
    let bars: String = outcomes.iter().map(|outcome| outcome.markdown() + "\n").collect();
    format!(
        "# Benchmarks\n\n\
         `scripts/compare --full` wrote this page: cenote and its peers on the same work, in one run, in turns.\n\n\
         - {}\n- {}\n\n\
         ![medians of some workloads, on a logarithmic scale]({CHART})\n\n\
         {HOW_TO_READ}\n\
         ## Bars\n\n| bar | ratio | at most | goal | rounds | result |\n|---|--:|--:|--:|--:|---|\n{bars}\n\
         ## Times\n{}\n\
         ## Growth and leftovers\n\n{}",
        machine.text(),
        versions.join(", "),
        table::markdown(rows),
        table::facts_markdown(facts),
    )
}
