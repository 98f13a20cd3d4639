//! `cenote pool holders`

use cenote::Holder;
use serde::Serialize;

use crate::commands::pool::find;
use crate::commands::socket_dir;
use crate::failure::Outcome;
use crate::output::unit;
use crate::output::{NO_ANSWER, Output, Page, Report, Table};

/// List the processes that are attached to pools, and the slots that they hold
///
/// RETIRED counts the held slots that the owner has retired, and cannot reuse yet. Processes with the most of
/// them come first. LONGEST is the time since the owner retired the oldest of them.
///
/// Example: cenote pool holders camera.rgb
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A pool, or a topic for the pools of its publishers; all pools if omitted
    pool: Option<String>,
}

impl Args {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        socket_dir::check_namespace()?;
        let found = find::pools(self.pool.as_deref())?;
        let pools = found.iter().map(|pool| PoolHolders {
            name: pool.name.clone(),
            uid: format!("{:016x}", pool.uid),
            owner: pool.pid,
            answers: pool.account.is_some(),
            processes: pool
                .account
                .iter()
                .flat_map(|it| &it.processes)
                .map(HolderLine::new)
                .collect(),
        });
        output.report(&Holders { pools: pools.collect() })
    }
}

#[derive(Debug, Serialize)]
struct Holders {
    pools: Vec<PoolHolders>,
}

#[derive(Debug, Serialize)]
struct PoolHolders {
    name: String,
    uid: String,
    owner: i32,
    answers: bool,
    processes: Vec<HolderLine>,
}

/// A process that is attached to a pool.
#[derive(Debug, Serialize)]
pub(crate) struct HolderLine {
    pub(crate) pid: i32,
    pub(crate) program: String,
    /// Slots that it holds.
    pub(crate) slots: usize,
    /// Those of them that the owner has retired.
    pub(crate) retired_slots: usize,
    /// The time since the owner retired the oldest of those; `None` if there are none. The age of other leases
    /// is not recorded.
    pub(crate) longest_ms: Option<f64>,
}

impl HolderLine {
    pub(crate) fn new(holder: &Holder) -> HolderLine {
        let longest = (holder.retired_slots > 0).then_some(holder.longest);
        HolderLine {
            pid: holder.pid,
            program: holder.program.clone(),
            slots: holder.slots,
            retired_slots: holder.retired_slots,
            longest_ms: longest.map(|longest| longest.as_secs_f64() * 1000.0),
        }
    }
}

impl Report for Holders {
    fn write(&self, page: &mut Page) {
        let heads = ["POOL", ">PID", "PROCESS", ">SLOTS", ">RETIRED", ">LONGEST"];
        let mut table = Table::new(&heads);
        for pool in &self.pools {
            for process in &pool.processes {
                let owner = if process.pid == pool.owner { " (owner)" } else { "" };
                table.row([
                    pool.name.clone(),
                    process.pid.to_string(),
                    format!("{}{owner}", process.program),
                    process.slots.to_string(),
                    process.retired_slots.to_string(),
                    unit::or_dash(process.longest_ms.map(|ms| unit::nanos(ms * 1e6))),
                ]);
            }
        }
        // A pool that does not answer exists, so "no pools" would be wrong.
        if self.pools.iter().all(|pool| pool.answers) {
            page.table(&table, "no pools");
        } else if !table.is_empty() {
            page.table(&table, "");
        }
        for pool in self.pools.iter().filter(|pool| !pool.answers) {
            let PoolHolders { name, owner, .. } = pool;
            page.warning(&format!("{name}: its owner (pid {owner}) {NO_ANSWER}"));
        }
    }
}
