//! After a thousand kills nothing is left: no files, no descriptors, no mappings, no memory.
//!
//! Owners and readers are killed while they start, idle, hold tensors, allocate and lease. This process
//! survives all of them, as the owner of one pool and a reader of many.
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

mod support;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use cenote::{Tensor, TensorDescriptor, TensorPool, TensorPoolConfig};
use libtest_mimic::Failed;

use support::peer::{Peer, command};
use support::program::{NamedTest, TestProgram};
use support::{
    OpenResources, Random, SocketDir, all_are, emulated, eventually, filled, hex, pools_dir,
    sanitized, unhex,
};

/// The environment variables of a child: the name of a pool, and a descriptor.
const POOL: &str = "CENOTE_TEST_POOL";
const TENSOR: &str = "CENOTE_TEST_TENSOR";

/// The environment variable of the survivor.
const CGROUP: &str = "CENOTE_TEST_CGROUP";

const OURS: &str = "ours";
const SLOTS: usize = 32;
/// Children at a time.
const BATCH: usize = 8;
const MIB: u64 = 1 << 20;

/// What a child does when it is killed.
const STATES: [&str; 6] =
    ["owner idle", "owner holding", "owner busy", "reader idle", "reader holding", "reader busy"];

fn main() -> ExitCode {
    TestProgram::new("residue")
        .roles(&[
            ("survivor", |_| survivor()),
            ("pool_user", |_| support::pool_user::run()),
            ("owner", |words| owner(&std::env::var(POOL).unwrap(), words[0])),
            ("reader", |words| reader(&std::env::var(POOL).unwrap(), words[0])),
        ])
        .run_named(vec![
            NamedTest::fallible("a_thousand_kills_leave_nothing", run),
            NamedTest::fallible("trimmed_segments_are_unmapped_by_readers", trim),
        ])
}

/// The survivor is a child, too, so that it can be in a separate cgroup.
fn run() -> Result<(), Failed> {
    let dir = SocketDir::new("residue");
    let cgroup = Cgroup::new();
    let mut command = command("survivor");
    command.env(cenote::DIR_ENV, &dir.0);
    if let Some(cgroup) = &cgroup {
        command.env(CGROUP, &cgroup.0);
    }
    let status = Peer::run(&mut command).finish();
    if status.success() { Ok(()) } else { Err(format!("it ended with {status}").into()) }
}

/// The child is a reader, and keeps only the memory that it needs.
fn trim() -> Result<(), Failed> {
    let dir = SocketDir::new("trim");
    let pool_user = || Peer::run(command("pool_user").env(cenote::DIR_ENV, &dir.0));
    let (mut owner, mut reader) = (pool_user(), pool_user());
    assert_eq!(owner.request("new trimmed"), "ok");
    assert_eq!(reader.request("open trimmed"), "ok");
    let before = maps_of(reader.pid());
    for _ in 0..6 {
        let tensor = owner.request("alloc 8000000 3");
        assert_eq!(reader.request(&format!("import {tensor}")), "ok");
    }
    assert_eq!(reader.request("check 3"), "true");
    assert!(maps_of(reader.pid()) > before);
    assert_eq!((reader.request("drop"), owner.request("drop")), ("ok".into(), "ok".into()));
    eventually("both have unmapped them", || {
        // A segment that was requested ahead of need may still arrive.
        assert_eq!(owner.request("trim"), "ok");
        [&owner, &reader].iter().all(|it| maps_of(it.pid()) == before)
    });
    Ok(())
}

fn maps_of(pid: u32) -> usize {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    maps.lines().filter(|line| line.contains("memfd:")).count()
}

// ---- The child ----------------------------------------------------------------------------

fn owner(name: &str, state: &str) {
    let config = TensorPoolConfig { growth: 1 << 20, ..TensorPoolConfig::small() };
    let pool = TensorPool::new(name, config).unwrap();
    let tensor = filled(&pool, 100_000, 7);
    println!("{}", hex(tensor.descriptor().unwrap().as_bytes()));
    let held: Vec<Tensor> = match state {
        "holding" => (0..20).map(|_| filled(&pool, 100_000, 1)).collect(),
        _ => Vec::new(),
    };
    let work = || {
        filled(&pool, 300_000, 1).descriptor().unwrap();
        pool.trim().unwrap();
    };
    until_the_end(state, work);
    drop((tensor, held));
}

fn reader(name: &str, state: &str) {
    let pool = TensorPool::open(name).unwrap();
    let bytes = unhex(&std::env::var(TENSOR).unwrap());
    let descriptor = TensorDescriptor::from_bytes(&bytes).unwrap();
    let held: Vec<Tensor> = match state {
        // The tensor may be dropped while the child starts.
        "holding" => (0..5).filter_map(|_| pool.import(&descriptor).ok()).collect(),
        _ => Vec::new(),
    };
    println!("ready");
    // In the end the tensor is dropped.
    until_the_end(state, || drop(pool.import(&descriptor)));
    drop(held);
}

fn until_the_end(state: &str, work: impl Fn()) {
    loop {
        match state {
            "busy" => work(),
            _ => std::thread::sleep(Duration::from_secs(60)),
        }
    }
}

// ---- The survivor -------------------------------------------------------------------------

fn survivor() {
    // With AddressSanitizer processes start slowly and keep freed memory.
    let sanitized = sanitized();
    let kills = if emulated() || sanitized { 200 } else { 1000 };
    let meter = Meter::new();
    // One large segment: a pool that grows has one more afterwards.
    let usual = TensorPoolConfig::small();
    let config = TensorPoolConfig { max_slots: SLOTS, growth: 16 << 20, ..usual };
    let pool = TensorPool::new(OURS, config).unwrap();
    let mut random = Random(11);
    kill_some(&pool, &mut random, 2 * BATCH);
    settle(&pool);
    let (before, resident, shared) = (OpenResources::now(), resident(), meter.shared());
    kill_some(&pool, &mut random, kills);
    settle(&pool);
    before.assert_none_leaked();
    let grown = self::resident().saturating_sub(resident);
    assert!(sanitized || grown < 8 * MIB, "{grown} bytes more are resident");
    eventually("shared memory is back to what it was", || meter.shared() < shared + 4 * MIB);
    no_files(&pool);
    eprintln!("{kills} kills");
}

/// Kills children in all states.
fn kill_some(pool: &TensorPool, random: &mut Random, kills: usize) {
    for _ in 0..kills.div_ceil(BATCH) {
        let tensor = filled(pool, 100_000, 9);
        let text = hex(tensor.descriptor().unwrap().as_bytes());
        let mut children: Vec<_> = (0..BATCH).map(|slot| start(slot, &text, random)).collect();
        let mut held = Vec::new();
        for (child, state) in &mut children {
            held.extend(wait_for_state(child, state, random));
        }
        drop(tensor);
        for (child, _) in children {
            child.kill();
        }
        assert!(held.iter().all(|tensor| all_are(tensor, 7)), "bytes of a dead owner changed");
    }
}

fn start(slot: usize, tensor: &str, random: &mut Random) -> (Peer, &'static str) {
    let state = STATES[random.below(STATES.len())];
    let pool = if state.starts_with("owner") { format!("theirs-{slot}") } else { OURS.into() };
    (Peer::run(command(state).env(POOL, pool).env(TENSOR, tensor)), state)
}

/// Waits until a child has reached its state, or does not wait: then it dies while it starts. For a
/// while, the survivor keeps a tensor of an owner.
fn wait_for_state(child: &mut Peer, state: &str, random: &mut Random) -> Option<Tensor> {
    if random.below(5) == 0 {
        std::thread::sleep(Duration::from_micros(random.next() % 3000));
        return None;
    }
    let line = child.read_line();
    if !state.starts_with("owner") {
        assert_eq!(line, "ready", "{state}");
        return None;
    }
    let descriptor = TensorDescriptor::from_bytes(&unhex(&line)).unwrap();
    Some(Tensor::from_descriptor(&descriptor).unwrap())
}

/// Asserts that all slots of our pool are free.
fn settle(pool: &TensorPool) {
    eventually("all readers are disconnected", || pool.stats().unwrap().attachers == 0);
    let all: Vec<Tensor> = (0..SLOTS).map(|_| filled(pool, 1000, 0)).collect();
    drop(all);
    assert_eq!(pool.stats().unwrap().retired, 0);
    support::prune_registry();
}

/// The next process that opens a pool removes the socket of a dead owner.
fn no_files(pool: &TensorPool) {
    let left = files();
    assert!(left.len() <= 1 + BATCH + 1, "{left:?}");
    for slot in 0..BATCH {
        drop(TensorPool::new(format!("theirs-{slot}"), TensorPoolConfig::small()).unwrap());
    }
    assert_eq!(files(), [format!("{OURS}@{:016x}", pool.uid())]);
}

fn files() -> Vec<String> {
    let entries = std::fs::read_dir(pools_dir()).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * rustix::param::page_size() as u64
}

/// Measures shared memory: of our cgroup if there is one, otherwise of the machine.
struct Meter(Option<PathBuf>);

impl Meter {
    fn new() -> Meter {
        let dir = std::env::var_os(CGROUP).map(PathBuf::from);
        if let Some(dir) = &dir {
            let pid = std::process::id().to_string();
            std::fs::write(dir.join("cgroup.procs"), pid).unwrap();
        }
        Meter(dir)
    }

    fn shared(&self) -> u64 {
        let (path, key, unit) = match &self.0 {
            Some(dir) => (dir.join("memory.stat"), "shmem ", 1),
            None => (PathBuf::from("/proc/meminfo"), "Shmem:", 1024),
        };
        let text = std::fs::read_to_string(path).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(key)).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * unit
    }
}

/// A memory cgroup, removed when dropped.
struct Cgroup(PathBuf);

impl Cgroup {
    fn new() -> Option<Cgroup> {
        let roots = ["/sys/fs/cgroup/memory", "/sys/fs/cgroup"];
        let name = format!("cenote-residue-{}", std::process::id());
        let made = roots.iter().map(|root| Path::new(root).join(&name)).find_map(|dir| {
            std::fs::create_dir(&dir).ok()?;
            Some(Cgroup(dir)).filter(|group| group.0.join("memory.stat").exists())
        });
        if made.is_none() {
            eprintln!("note: no cgroup; the shared memory of the whole machine is measured");
        }
        made
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        for _ in 0..200 {
            if std::fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        eprintln!("could not remove {}", self.0.display());
    }
}
