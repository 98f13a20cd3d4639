//! `cenote pool holders`

use cenote::Holder;
use serde::Serialize;

use crate::failure::Outcome;
use crate::ls;
use crate::output::{NO_ANSWER, Output, Page, Report, Table};
use crate::pool;
use crate::topic;
use crate::unit;

/// Who is attached to pools and holds what of them
///
/// Those come first who hold most of what the owner has let go of. LONGEST is for how long they have held
/// the oldest of that; for how long they have held the rest, nobody notes.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A pool, or a topic whose publishers' pools are meant; without it, all
    pool: Option<String>,
}

impl Args {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        ls::check_namespace()?;
        let found = pool::find(self.pool.as_deref())?;
        let pools = found.iter().map(|pool| Held {
            name: pool.name.clone(),
            uid: format!("{:016x}", pool.uid),
            owner: pool.pid,
            answers: pool.account.is_some(),
            processes: pool.account.iter().flat_map(|it| &it.processes).map(Line::new).collect(),
        });
        output.report(&Holders { pools: pools.collect() })
    }
}

#[derive(Debug, Serialize)]
struct Holders {
    pools: Vec<Held>,
}

#[derive(Debug, Serialize)]
struct Held {
    name: String,
    uid: String,
    owner: i32,
    answers: bool,
    processes: Vec<Line>,
}

/// One process.
#[derive(Debug, Serialize)]
pub(crate) struct Line {
    pub(crate) pid: i32,
    pub(crate) program: String,
    /// Slots that it holds.
    pub(crate) slots: usize,
    /// Of these, what the owner has let go of.
    pub(crate) retired_slots: usize,
    /// For how long it has held the oldest of those; `None` if there are none. For how long it has held what
    /// the owner still has nobody knows.
    pub(crate) longest_ms: Option<f64>,
}

impl Line {
    pub(crate) fn new(holder: &Holder) -> Line {
        let longest = (holder.retired_slots > 0).then_some(holder.longest);
        Line {
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
                    topic::count(process.longest_ms.map(|ms| unit::nanos(ms * 1e6))),
                ]);
            }
        }
        // One that does not answer is there.
        if self.pools.iter().all(|pool| pool.answers) {
            page.table(&table, "no pools");
        } else if !table.is_empty() {
            page.table(&table, "");
        }
        for pool in self.pools.iter().filter(|pool| !pool.answers) {
            let Held { name, owner, .. } = pool;
            page.warning(&format!("{name}: its owner (pid {owner}) {NO_ANSWER}"));
        }
    }
}
