//! The sweep: records one trace, chooses points on it, and kills a victim at each.

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;
use std::time::{Duration, Instant};

use super::fork_server::{ForkServer, Victim};
use super::scenario::{Scenario, Which};
use super::tracer::{Stop, Thread};

/// Takes every point, however many there are.
const FULL: &str = "CENOTE_KILL_FULL";

/// Up to this many instructions are a short operation, of which all are taken; see [`choose`].
const SHORT: usize = 2500;

/// Rounds before descriptors and mappings are counted: some things are made when first needed.
const WARM_UP: usize = 5;

/// A service thread that has not moved for this long is done.
const QUIET: Duration = Duration::from_millis(30);

/// A limit for what takes microseconds, on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(60);

/// How many victims are tried at a point: one that finds a lock or a directory in another state takes
/// another path.
const TRIES: usize = 5;

/// Right before the instruction at `address` is executed for the `hit`th time.
#[derive(Debug, Clone, Copy)]
struct Point {
    address: usize,
    hit: usize,
    /// A system call is the next instruction, or was the last.
    syscall: bool,
}

/// Kills a victim at each chosen point of the scenario's operation.
pub(crate) fn sweep(name: &str, scenario: &mut dyn Scenario) {
    let start = Instant::now();
    let mut fork_server = ForkServer::new();
    let files = files();
    let mut traces: Vec<_> = (0..WARM_UP).map(|_| record(&mut fork_server, scenario)).collect();
    traces.sort_by_key(Vec::len);
    // One that met a lock, or a heap in disorder, is longer than most.
    let trace = traces.swap_remove(WARM_UP / 2);
    let floor = Floor::now();
    let points = choose(&trace, scenario.sample());
    let mut missed = Vec::new();
    for point in &points {
        let mut attempt = |_| {
            let hit = kill_at(&mut fork_server, scenario, point);
            floor.wait_for(&format!("{point:x?}"));
            assert_eq!(self::files(), files, "files after {point:x?}");
            hit
        };
        if !(0..TRIES).any(&mut attempt) {
            missed.push(point);
        }
    }
    let (tried, all, took) = (points.len(), trace.len(), start.elapsed().as_secs_f64());
    println!("{name}: killed at {tried} of {all} points, {} missed, {took:.1} s", missed.len());
    assert!(
        missed.len() * scenario.one_missed_in() <= tried,
        "too many took another path: {missed:x?}"
    );
}

/// Of a long operation a sample, evenly, and all that are around system calls.
fn choose(trace: &[Point], sample: usize) -> Vec<Point> {
    if trace.len() <= SHORT || std::env::var_os(FULL).is_some() {
        return trace.to_vec();
    }
    let step = trace.len().div_ceil(sample);
    let chosen = |(index, point): &(usize, &Point)| index.is_multiple_of(step) || point.syscall;
    trace.iter().enumerate().filter(chosen).map(|(_, point)| *point).collect()
}

/// Starts a victim, and brings the thread in question right before the operation.
fn prepare<'a>(fork_server: &'a mut ForkServer, scenario: &mut dyn Scenario) -> Victim<'a> {
    let task = scenario.before();
    let mut victim = Victim::start(fork_server, &task);
    scenario.prepared(&mut victim);
    if scenario.thread() == Which::Service {
        let thread = victim.stop_service();
        while !thread.is_at_epoll_wait() {
            thread.step();
            assert_eq!(thread.wait(), Stop::Trap);
        }
    }
    victim
}

fn traced<'a>(victim: &'a Victim<'_>) -> &'a Thread {
    victim.service.as_ref().unwrap_or(&victim.main)
}

/// Steps a victim through the operation.
fn record(fork_server: &mut ForkServer, scenario: &mut dyn Scenario) -> Vec<Point> {
    let victim = prepare(fork_server, scenario);
    let trace = match scenario.thread() {
        Which::Main => record_main(&victim.main),
        Which::Service => record_service(traced(&victim), scenario),
    };
    let said = victim.kill();
    scenario.after(&said);
    trace.points
}

/// The instructions of one run.
struct Trace {
    /// Code of the kernel (vDSO) that reads the clock, and starts over when a tick comes in between: stepped,
    /// it does so again and again.
    clock: Range<usize>,
    points: Vec<Point>,
    hits: HashMap<usize, usize>,
    syscalls: HashMap<usize, bool>,
}

impl Trace {
    fn of(thread: &Thread) -> Trace {
        Trace {
            clock: thread.clock(),
            points: Vec::new(),
            hits: HashMap::new(),
            syscalls: HashMap::new(),
        }
    }

    fn push(&mut self, thread: &Thread) {
        let address = thread.pc();
        let last = self.points.last().map(|point| point.address);
        // A step over a repeated instruction is one repetition of it; a breakpoint stops there once.
        if last == Some(address) || self.clock.contains(&address) {
            return;
        }
        let hit = self.hits.entry(address).or_default();
        *hit += 1;
        let mut is_syscall = |at| *self.syscalls.entry(at).or_insert_with(|| thread.is_syscall(at));
        let syscall = is_syscall(address) || last.is_some_and(is_syscall);
        self.points.push(Point { address, hit: *hit, syscall });
    }
}

fn record_main(thread: &Thread) -> Trace {
    let mut trace = Trace::of(thread);
    loop {
        thread.step();
        match thread.wait() {
            Stop::Trap => trace.push(thread),
            Stop::Marker => return trace,
            other => panic!("{other:?} after {} instructions", trace.points.len()),
        }
    }
}

/// From one wait for events to the next that lasts.
fn record_service(thread: &Thread, scenario: &mut dyn Scenario) -> Trace {
    let mut trace = Trace::of(thread);
    thread.step();
    scenario.trigger();
    let mut limit = TIMEOUT;
    while let Some(stop) = thread.wait_for(limit) {
        assert_eq!(stop, Stop::Trap);
        trace.push(thread);
        limit = if thread.is_at_epoll_wait() { QUIET } else { TIMEOUT };
        thread.step();
    }
    trace
}

/// Kills a victim at a point; false if it never came there, and was killed after the operation.
fn kill_at(fork_server: &mut ForkServer, scenario: &mut dyn Scenario, point: &Point) -> bool {
    let victim = prepare(fork_server, scenario);
    let thread = traced_of(&victim, scenario);
    thread.break_at(point.address);
    let mut hits = 0;
    let mut started = false;
    while hits < point.hit {
        thread.resume();
        if !std::mem::replace(&mut started, true) && scenario.thread() == Which::Service {
            scenario.trigger();
        }
        match wait(thread, scenario.thread()) {
            Some(Stop::Trap) => hits += 1,
            None | Some(Stop::Marker) => break,
            Some(other) => panic!("{other:?} on the way to {point:x?}"),
        }
    }
    let said = victim.kill();
    scenario.after(&said);
    hits == point.hit
}

fn traced_of<'a>(victim: &'a Victim<'_>, scenario: &dyn Scenario) -> &'a Thread {
    match scenario.thread() {
        Which::Main => &victim.main,
        Which::Service => traced(victim),
    }
}

/// A service thread does not report its end.
fn wait(thread: &Thread, which: Which) -> Option<Stop> {
    match which {
        Which::Main => Some(thread.wait()),
        Which::Service => thread.wait_for(5 * QUIET),
    }
}

/// What this process has open and mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Floor {
    descriptors: usize,
    mappings: usize,
}

impl Floor {
    fn now() -> Floor {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        Floor {
            descriptors: std::fs::read_dir("/proc/self/fd").unwrap().count(),
            mappings: maps.lines().filter(|line| line.contains("memfd:")).count(),
        }
    }

    /// The service thread notices a death a little later.
    fn wait_for(self, when: &str) {
        let start = Instant::now();
        loop {
            let now = Floor::now();
            if now.descriptors <= self.descriptors && now.mappings <= self.mappings {
                return;
            }
            assert!(start.elapsed() < TIMEOUT, "{now:?} instead of {self:?} after {when}");
            std::thread::yield_now();
        }
    }
}

/// Every file there is for others to find.
fn files() -> Vec<String> {
    let mut found = Vec::new();
    list(Path::new(&std::env::var_os("CENOTE_DIR").unwrap()), &mut found);
    found.sort();
    found
}

fn list(dir: &Path, found: &mut Vec<String>) {
    // The last process that uses a topic removes its directory.
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().unwrap().is_dir() {
            list(&entry.path(), found);
        } else {
            found.push(entry.file_name().into_string().unwrap());
        }
    }
}
