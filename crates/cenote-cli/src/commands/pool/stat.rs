//! `cenote pool stat`

use cenote::{PoolAccount, PoolInfo, Wish};
use serde::Serialize;

use crate::commands::pool::find;
use crate::commands::socket_dir;
use crate::failure::Outcome;
use crate::output::unit;
use crate::output::{NO_ANSWER_CELL, Output, Page, Report, Table};

/// Show how full pools are
///
/// RETIRED counts the slots that the owner has retired, and cannot reuse because other processes hold them.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A pool, or a topic for the pools of its publishers; all pools if omitted
    pool: Option<String>,
}

impl Args {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        socket_dir::check_namespace()?;
        let pools = find::pools(self.pool.as_deref())?.iter().map(PoolLine::new).collect();
        output.report(&Stat { pools })
    }
}

#[derive(Debug, Serialize)]
struct Stat {
    pools: Vec<PoolLine>,
}

/// A pool in a list.
#[derive(Debug, Serialize)]
pub(crate) struct PoolLine {
    pub(crate) name: String,
    pub(crate) of_topic: bool,
    pub(crate) uid: String,
    pub(crate) pid: i32,
    pub(crate) program: String,
    /// The leases of other processes; a slot counts once for each process that holds it. `None` if the owner does
    /// not answer.
    pub(crate) leases: Option<usize>,
    /// `None` if the owner does not answer.
    pub(crate) stats: Option<PoolNumbers>,
}

/// The statistics that the owner reports.
#[derive(Debug, Serialize)]
pub(crate) struct PoolNumbers {
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

impl PoolLine {
    pub(crate) fn new(pool: &PoolInfo) -> PoolLine {
        let leases = |account: &PoolAccount| {
            let others = account.processes.iter().filter(|process| process.pid != pool.pid);
            others.map(|process| process.slots).fold(0, usize::saturating_add)
        };
        PoolLine {
            name: pool.name.clone(),
            of_topic: pool.of_topic,
            uid: format!("{:016x}", pool.uid),
            pid: pool.pid,
            program: pool.program.clone(),
            leases: pool.account.as_ref().map(leases),
            stats: pool.account.as_ref().map(|account| PoolNumbers::new(&account.stats)),
        }
    }
}

impl PoolNumbers {
    fn new(stats: &cenote::PoolStats) -> PoolNumbers {
        PoolNumbers {
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
pub(crate) fn pool_table<'a>(pools: impl IntoIterator<Item = &'a PoolLine>) -> Table {
    let heads = [
        "POOL",
        ">PID",
        "OWNER",
        ">SLOTS",
        ">RETIRED",
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
                unit::or_dash(pool.leases),
            ],
        };
        let [slots, retired, in_use, reserved, peak, attached, leases] = numbers;
        table.row([name, pid, program, slots, retired, in_use, reserved, peak, attached, leases]);
    }
    table
}

impl Report for Stat {
    fn write(&self, page: &mut Page) {
        page.table(&pool_table(&self.pools), "no pools");
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
