//! The report of a pool: its numbers, and the processes that are attached. The owner sends it to any process that it
//! admits.
//!
//! A process that wants a report does not attach: it sends one request on its own connection. The owner answers on its
//! service thread. The answer is input and is checked.

use std::io;
use std::time::Duration;

use bytemuck::{Pod, Zeroable};

use crate::copies::{self, Copies};
use crate::error::{Holder, Result};
use crate::intervals::QUERY_TIMEOUT;
use crate::ipc::discovery::query;
use crate::ipc::discovery::query::Query;
use crate::ipc::discovery::socket_dir::{Endpoint, SocketDir};
use crate::ipc::pool::stats::PoolStats;
use crate::ipc::shared::wire::{Kind, NamedProcess, Packet};
use crate::memory::choose::selection::Wish;

/// The most processes in a report: as many as fit a packet.
const MAX_PROCESSES: usize = 512;

/// A pool, as [`pools`] finds it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolInfo {
    /// The name of the pool, or of the topic if it is the pool of a publisher.
    pub name: String,
    /// Whether it is the pool of a topic's publisher.
    pub of_topic: bool,
    /// The number by which descriptors name the pool.
    pub uid: u64,
    /// The process id of the owner, or 0 if it is not visible from here.
    pub pid: i32,
    /// The program of the owner.
    pub program: String,
    /// The report of the owner. `None` if it does not answer: it may be stopped, or not admit this user.
    pub account: Option<PoolAccount>,
}

/// The report of a pool's owner.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolAccount {
    /// The numbers of the pool.
    pub stats: PoolStats,
    /// The owner and all attached processes, at most 512, with the slots that they hold. First come the holders of most
    /// slots which the owner has retired.
    pub processes: Vec<Holder>,
    /// All copies of tensor bytes in the owner's process so far, by reason.
    pub copies: Vec<Copies>,
}

/// All pools of this namespace that have an owner, those of topics' publishers included.
///
/// Requests are sent to many owners at once. They have 0.2 s to answer.
///
/// ```
/// # let dir = std::env::temp_dir().join(format!("cenote-pools-doc-{}", std::process::id()));
/// # std::fs::create_dir_all(&dir)?; unsafe { std::env::set_var("CENOTE_DIR", &dir) };
/// use cenote::{TensorPool, TensorPoolConfig};
///
/// let pool = TensorPool::new("camera", TensorPoolConfig::small())?;
/// for pool in cenote::pools()? {
///     println!("{} belongs to {} ({})", pool.name, pool.program, pool.pid);
/// }
/// # drop(pool); std::fs::remove_dir_all(&dir)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn pools() -> Result<Vec<PoolInfo>> {
    let mut found = Vec::new();
    for kinds in SocketDir::all_kinds()?.chunks(query::PLACES_AT_ONCE) {
        let mut places = Vec::new();
        for kind in kinds {
            places.extend(SocketDir::find_one_of(kind)?);
        }
        let mut endpoints = Vec::new();
        for socket_dir in &places {
            endpoints
                .extend(socket_dir.endpoints()?.into_iter().map(|endpoint| (socket_dir, endpoint)));
        }
        for endpoints in endpoints.chunks(query::AT_ONCE) {
            found.extend(request_reports(endpoints)?);
        }
    }
    found.sort_by(|a, b| (&a.name, a.uid).cmp(&(&b.name, b.uid)));
    Ok(found)
}

/// The reports of these pools. Skips pools whose owner is gone.
fn request_reports(endpoints: &[(&SocketDir, Endpoint)]) -> Result<Vec<PoolInfo>> {
    let ask = |(socket_dir, endpoint): &(&SocketDir, Endpoint)| {
        Query::send(socket_dir, endpoint, Kind::ReportRequest)
    };
    let asked = endpoints.iter().map(ask).collect::<Result<Vec<_>>>()?;
    let answering = asked.iter().filter_map(|asked| asked.as_ref().ok()?.as_ref());
    query::await_replies(answering, QUERY_TIMEOUT);
    let room = size_of::<Head>() + MAX_PROCESSES * size_of::<Line>();
    let info =
        |((socket_dir, endpoint), asked): (&(&SocketDir, Endpoint), &io::Result<Option<Query>>)| {
            let (pid, program, answer) = match asked {
                Ok(asked) => {
                    let asked = asked.as_ref()?;
                    (asked.peer.pid, asked.peer.program(), asked.answer(room))
                }
                Err(_) => (0, "unknown".to_owned(), None),
            };
            let (name, of_topic) = (endpoint.name.clone(), socket_dir.is_of_topic());
            let account = answer.and_then(|(bytes, _)| read(&bytes));
            Some(PoolInfo { name, of_topic, uid: endpoint.uid, pid, program, account })
        };
    Ok(endpoints.iter().zip(&asked).filter_map(info).collect())
}

/// The most reasons for copies in a packet.
const REASONS: usize = 16;

/// The wishes, in the order of their bits.
const WISHES: [Wish; 3] = [Wish::HugePages, Wish::Prefault, Wish::Lock];

/// The numbers of [`PoolStats`], and the copies.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
struct Head {
    packet: Packet,
    slots_in_use: u64,
    retired: u64,
    max_slots: u64,
    bytes_in_use: u64,
    bytes_reserved: u64,
    pool_size: u64,
    peak_bytes: u64,
    waste_bytes: u64,
    segments: u64,
    attachers: u64,
    allocations: u64,
    failures: u64,
    bytes_copied: u64,
    socket_watched: u32,
    /// One bit for each of [`WISHES`].
    not_granted: u32,
    /// The number of copies and their bytes, by reason.
    copies: [[u64; 2]; REASONS],
}

/// One process.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
struct Line {
    slots: u64,
    retired_slots: u64,
    longest_ns: u64,
    who: NamedProcess,
}

/// The owner's answer, as bytes.
pub(crate) fn answer(stats: &PoolStats, processes: &[Holder]) -> Vec<u8> {
    let mut bytes = bytemuck::bytes_of(&Head::new(stats)).to_vec();
    for process in processes.iter().take(MAX_PROCESSES) {
        bytes.extend_from_slice(bytemuck::bytes_of(&Line::new(process)));
    }
    bytes
}

/// Reads an answer. Its content is not trusted.
fn read(bytes: &[u8]) -> Option<PoolAccount> {
    let (head, lines) = bytes.split_at_checked(size_of::<Head>())?;
    let (Kind::Report, _) = Packet::parse(head).ok()? else { return None };
    let head: Head = bytemuck::pod_read_unaligned(head);
    let lines = lines.chunks_exact(size_of::<Line>()).map(bytemuck::pod_read_unaligned);
    let processes = lines.map(|line: Line| line.process()).collect();
    Some(PoolAccount { stats: head.stats(), processes, copies: head.copies() })
}

impl Head {
    fn new(stats: &PoolStats) -> Head {
        let mut copied = [[0; 2]; REASONS];
        for (line, copies) in copied.iter_mut().zip(copies::copies()) {
            *line = [copies.count, copies.bytes];
        }
        let bit = |wish| u32::from(stats.not_granted.contains(wish));
        let not_granted = WISHES.iter().enumerate().map(|(at, wish)| bit(wish) << at).sum();
        Head {
            packet: Packet::new(Kind::Report),
            slots_in_use: stats.slots_in_use as u64,
            retired: stats.retired as u64,
            max_slots: stats.max_slots as u64,
            bytes_in_use: stats.bytes_in_use as u64,
            bytes_reserved: stats.bytes_reserved as u64,
            pool_size: stats.pool_size as u64,
            peak_bytes: stats.peak_bytes as u64,
            waste_bytes: stats.waste_bytes as u64,
            segments: stats.segments as u64,
            attachers: stats.attachers as u64,
            allocations: stats.allocations,
            failures: stats.failures,
            bytes_copied: stats.bytes_copied,
            socket_watched: stats.socket_watched.into(),
            not_granted,
            copies: copied,
        }
    }

    fn stats(&self) -> PoolStats {
        let size = |word| usize::try_from(word).unwrap_or(usize::MAX);
        let granted = |at: usize| self.not_granted & (1 << at) == 0;
        let wishes = WISHES.into_iter().enumerate().filter(|(at, _)| !granted(*at));
        PoolStats {
            slots_in_use: size(self.slots_in_use),
            retired: size(self.retired),
            max_slots: size(self.max_slots),
            bytes_in_use: size(self.bytes_in_use),
            bytes_reserved: size(self.bytes_reserved),
            pool_size: size(self.pool_size),
            peak_bytes: size(self.peak_bytes),
            waste_bytes: size(self.waste_bytes),
            segments: size(self.segments),
            attachers: size(self.attachers),
            socket_watched: self.socket_watched != 0,
            allocations: self.allocations,
            failures: self.failures,
            bytes_copied: self.bytes_copied,
            not_granted: wishes.map(|(_, wish)| wish).collect(),
        }
    }

    fn copies(&self) -> Vec<Copies> {
        let told = copies::REASONS.into_iter().zip(self.copies);
        told.map(|(reason, [count, bytes])| Copies { reason, count, bytes }).collect()
    }
}

impl Line {
    fn new(process: &Holder) -> Line {
        Line {
            slots: process.slots as u64,
            retired_slots: process.retired_slots as u64,
            longest_ns: u64::try_from(process.longest.as_nanos()).unwrap_or(u64::MAX),
            who: NamedProcess::new(process.pid, &process.program),
        }
    }

    fn process(&self) -> Holder {
        let size = |word| usize::try_from(word).unwrap_or(usize::MAX);
        Holder {
            pid: self.who.pid,
            program: self.who.program(),
            slots: size(self.slots),
            retired_slots: size(self.retired_slots),
            longest: Duration::from_nanos(self.longest_ns),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> (PoolStats, Vec<Holder>) {
        // A different value for each field, so that none can stand for another.
        let stats = PoolStats {
            slots_in_use: 3,
            retired: 1,
            max_slots: 64,
            bytes_in_use: 4096,
            bytes_reserved: 8192,
            pool_size: 1 << 30,
            peak_bytes: 5000,
            waste_bytes: 96,
            segments: 2,
            attachers: 5,
            socket_watched: true,
            allocations: 1234,
            failures: u64::MAX,
            bytes_copied: 777,
            not_granted: vec![Wish::HugePages, Wish::Lock],
        };
        let holder = Holder {
            pid: 7,
            program: "camera".into(),
            slots: 2,
            retired_slots: 1,
            longest: Duration::from_millis(1500),
        };
        (stats, vec![holder])
    }

    #[test]
    fn an_account_comes_back_as_it_was_given() {
        let (stats, processes) = sample();
        let account = read(&answer(&stats, &processes)).unwrap();
        assert_eq!((account.stats, account.processes), (stats, processes));
        // The copies of this process, in which other tests run: they only grow.
        let now = copies::copies();
        assert_eq!(account.copies.len(), now.len());
        for (told, now) in account.copies.iter().zip(now) {
            assert_eq!(told.reason, now.reason);
            assert!(told.count <= now.count && told.bytes <= now.bytes, "{told:?} {now:?}");
        }
    }

    #[test]
    fn copies_are_told_by_their_reasons() {
        let mut head = Head::zeroed();
        (0_u64..).zip(&mut head.copies).for_each(|(at, copied)| *copied = [at, at + 100]);
        for (at, told) in (0_u64..).zip(head.copies()) {
            let reason = copies::REASONS[usize::try_from(at).unwrap()];
            assert_eq!(told, Copies { reason, count: at, bytes: at + 100 });
        }
    }

    #[test]
    fn what_is_cut_or_of_another_kind_is_no_account() {
        let (stats, processes) = sample();
        let bytes = answer(&stats, &processes);
        assert_eq!(read(&bytes[..size_of::<Head>() - 1]), None);
        assert_eq!(read(bytemuck::bytes_of(&Packet::new(Kind::Report))), None);
        let other = Head { packet: Packet::new(Kind::Description), ..Head::zeroed() };
        assert_eq!(read(bytemuck::bytes_of(&other)), None);
        let half = read(&bytes[..bytes.len() - 1]).unwrap();
        assert!(half.processes.is_empty(), "a line that is cut is none");
    }
}
