//! `cenote pool stat`

use cenote::{PoolAccount, PoolInfo, Wish};
use serde::Serialize;

use crate::failure::Outcome;
use crate::ls;
use crate::output::{NO_ANSWER_CELL, Output, Page, Report, Table};
use crate::pool;
use crate::topic;
use crate::unit;

/// How full pools are
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A pool, or a topic whose publishers' pools are meant; without it, all
    pool: Option<String>,
}

impl Args {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        ls::check_namespace()?;
        let pools = pool::find(self.pool.as_deref())?.iter().map(Line::new).collect();
        output.report(&Stat { pools })
    }
}

#[derive(Debug, Serialize)]
struct Stat {
    pools: Vec<Line>,
}

/// A pool in a list.
#[derive(Debug, Serialize)]
pub(crate) struct Line {
    pub(crate) name: String,
    pub(crate) of_topic: bool,
    pub(crate) uid: String,
    pub(crate) pid: i32,
    pub(crate) program: String,
    /// Slots that others hold, each counted once for every process that does; `None` if the owner does not
    /// answer.
    pub(crate) leases: Option<usize>,
    /// The same.
    pub(crate) stats: Option<Numbers>,
}

/// What its owner tells.
#[derive(Debug, Serialize)]
pub(crate) struct Numbers {
    slots_in_use: usize,
    retired: usize,
    max_slots: usize,
    bytes_in_use: usize,
    bytes_reserved: usize,
    pool_size: usize,
    peak_bytes: usize,
    waste_bytes: usize,
    segments: usize,
    attachers: usize,
    allocations: u64,
    failures: u64,
    bytes_copied: u64,
    socket_watched: bool,
    not_granted: Vec<&'static str>,
}

impl Line {
    pub(crate) fn new(pool: &PoolInfo) -> Line {
        let leases = |account: &PoolAccount| {
            let others = account.processes.iter().filter(|process| process.pid != pool.pid);
            others.map(|process| process.slots).fold(0, usize::saturating_add)
        };
        Line {
            name: pool.name.clone(),
            of_topic: pool.of_topic,
            uid: format!("{:016x}", pool.uid),
            pid: pool.pid,
            program: pool.program.clone(),
            leases: pool.account.as_ref().map(leases),
            stats: pool.account.as_ref().map(|account| Numbers::new(&account.stats)),
        }
    }
}

impl Numbers {
    fn new(stats: &cenote::PoolStats) -> Numbers {
        Numbers {
            slots_in_use: stats.slots_in_use,
            retired: stats.retired,
            max_slots: stats.max_slots,
            bytes_in_use: stats.bytes_in_use,
            bytes_reserved: stats.bytes_reserved,
            pool_size: stats.pool_size,
            peak_bytes: stats.peak_bytes,
            waste_bytes: stats.waste_bytes,
            segments: stats.segments,
            attachers: stats.attachers,
            allocations: stats.allocations,
            failures: stats.failures,
            bytes_copied: stats.bytes_copied,
            socket_watched: stats.socket_watched,
            not_granted: stats.not_granted.iter().map(|wish| wish_name(*wish)).collect(),
        }
    }
}

fn wish_name(wish: Wish) -> &'static str {
    match wish {
        Wish::HugePages => "huge pages",
        Wish::Prefault => "prefault",
        Wish::Lock => "lock",
        _ => "other",
    }
}

/// Pools as a table.
pub(crate) fn table<'a>(pools: impl IntoIterator<Item = &'a Line>) -> Table {
    let heads = [
        "POOL",
        ">PID",
        "OWNER",
        ">SLOTS",
        ">WAIT",
        ">IN USE",
        ">RESERVED",
        ">PEAK",
        ">ATTACHED",
        ">LEASES",
    ];
    let mut table = Table::new(&heads);
    for pool in pools {
        let name = if pool.of_topic { format!("{} (topic)", pool.name) } else { pool.name.clone() };
        let (pid, program) = (pool.pid.to_string(), pool.program.clone());
        let bytes = |bytes: usize| unit::bytes(bytes as u64);
        let numbers = match &pool.stats {
            None => [NO_ANSWER_CELL, "", "", "", "", "", ""].map(str::to_owned),
            Some(stats) => [
                format!("{}/{}", stats.slots_in_use, stats.max_slots),
                stats.retired.to_string(),
                bytes(stats.bytes_in_use),
                bytes(stats.bytes_reserved),
                bytes(stats.peak_bytes),
                stats.attachers.to_string(),
                topic::count(pool.leases),
            ],
        };
        let [slots, wait, in_use, reserved, peak, attached, leases] = numbers;
        table.row([name, pid, program, slots, wait, in_use, reserved, peak, attached, leases]);
    }
    table
}

impl Report for Stat {
    fn write(&self, page: &mut Page) {
        page.table(&table(&self.pools), "no pools");
        for pool in &self.pools {
            let Some(stats) = &pool.stats else { continue };
            if stats.failures > 0 {
                let count = stats.failures;
                page.warning(&format!("{}: {count} allocations failed", pool.name));
            }
            if stats.bytes_copied > 0 {
                let copied = unit::bytes(stats.bytes_copied);
                page.aside(&format!("{}: {copied} were copied into it", pool.name));
            }
        }
    }
}
