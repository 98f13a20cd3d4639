//! Killed processes: how long until the others continue, and what a thousand kills leave behind.

use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use cenote::{DType, Tensor, TensorPoolConfig, Topic, TopicConfig};

use crate::Result;
use crate::measure::helper::{Helper, Order, Task};
use crate::measure::rounds::Schedule;
use crate::measure::samples::nanos_since;
use crate::measure::series::{Series, Take};
use crate::measure::shared_page::{SharedPage, clock};
use crate::results::{Fact, Results};
use crate::run_dir;

/// The name of the group.
pub(crate) const GROUP: &str = "recovery";

const NUMBERS: &str = "recovery.numbers";
const FRAMES: &str = "recovery.frames";

/// How long to wait for a condition.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Resources count as stable if they do not change for this time.
const STABLE_TIME: Duration = Duration::from_millis(100);

/// Measures the group.
pub(crate) fn run(schedule: Schedule) -> Result<Results> {
    let kills = if schedule.full { 1000 } else { 20 };
    let series = vec![publisher_killed(schedule)?, subscriber_killed(schedule)?];
    Ok(Results { series, facts: leftovers(kills)?, ..Results::default() })
}

/// Waits until a condition holds. Returns an error after [`TIMEOUT`].
fn wait_until(mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
    let start = Instant::now();
    while !holds()? {
        if start.elapsed() > TIMEOUT {
            return Err("the condition did not hold within a minute".into());
        }
        std::hint::spin_loop();
    }
    Ok(())
}

/// The time from the kill of a publisher until a subscriber receives the first message of the next one.
fn publisher_killed(schedule: Schedule) -> Result<Series> {
    let work = "publisher killed, to its successor's first message";
    let mut series = Series::new(GROUP, work, "cenote");
    let subscriber: Topic<u64> = Topic::new(NUMBERS)?;
    subscriber.subscribe()?;
    for round in 0..schedule.rounds {
        let mut helper = Helper::start(GROUP)?;
        helper.order(Task::Publish, 0, 0)?;
        wait_until(|| Ok(subscriber.recv() == Some(0)))?;
        let began = Instant::now();
        helper.kill()?;
        let successor: Topic<u64> = Topic::new(NUMBERS)?;
        successor.send(&1)?;
        wait_until(|| Ok(subscriber.recv() == Some(1)))?;
        series.takes.push(Take { round, floors: None, samples: vec![nanos_since(began)] });
    }
    Ok(series)
}

/// The time from the kill of a subscriber until the owner reports no lease of it.
fn subscriber_killed(schedule: Schedule) -> Result<Series> {
    let work = "subscriber killed, until its frames are free";
    let mut series = Series::new(GROUP, work, "cenote");
    let topic = publisher()?;
    for round in 0..schedule.rounds {
        let mut helper = holder(&topic)?;
        let holds = |pid| -> Result<bool> {
            let holders = topic.pool()?.holders()?;
            Ok(holders.iter().any(|holder| holder.pid == pid && holder.slots > 0))
        };
        let pid = helper.pid()?;
        wait_until(|| holds(pid))?;
        let began = Instant::now();
        helper.kill()?;
        wait_until(|| Ok(!holds(pid)?))?;
        series.takes.push(Take { round, floors: None, samples: vec![nanos_since(began)] });
    }
    Ok(series)
}

/// A publisher whose pool reserves all its memory at the start, so that later growth would be a leak.
fn publisher() -> Result<Topic<Tensor>> {
    let pool = TensorPoolConfig { growth: 16 << 20, ..TensorPoolConfig::default() };
    let config = TopicConfig { pool, ..TopicConfig::default() };
    let topic: Topic<Tensor> = Topic::with_config(FRAMES, config)?;
    topic.advertise()?;
    Ok(topic)
}

/// Starts a process that receives a frame and holds it.
fn holder(topic: &Topic<Tensor>) -> Result<Helper> {
    let mut helper = Helper::start(GROUP)?;
    helper.order(Task::Hold, 0, 0)?;
    wait_until(|| {
        let mut frame = topic.alloc_tensor(&[512], DType::U64)?;
        frame.map_mut()?.as_mut_slice::<u64>()?[0] = 1;
        topic.send(&frame)?;
        Ok(helper.page().arrived(1).is_some())
    })?;
    Ok(helper)
}

/// The resources of which kills must leave none.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Resources {
    /// The kind of each file descriptor of this process.
    descriptors: Vec<String>,
    files: usize,
    sockets: usize,
}

impl Resources {
    fn now() -> Result<Resources> {
        let mut count = Resources { descriptors: descriptors()?, files: 0, sockets: 0 };
        count.add(&run_dir::memory()?)?;
        Ok(count)
    }

    /// Waits until nothing changes: the service thread releases the resources of dead processes one by one.
    fn when_stable() -> Result<Resources> {
        let mut count = Resources::now()?;
        wait_until(|| {
            thread::sleep(STABLE_TIME);
            let earlier = std::mem::replace(&mut count, Resources::now()?);
            Ok(count == earlier)
        })?;
        Ok(count)
    }

    fn add(&mut self, dir: &Path) -> Result<()> {
        for entry in std::fs::read_dir(dir)? {
            let entry = entry?;
            match entry.file_type()? {
                kind if kind.is_dir() => self.add(&entry.path())?,
                kind if kind.is_socket() => self.sockets += 1,
                _ => self.files += 1,
            }
        }
        Ok(())
    }
}

/// The kinds of the file descriptors of this process, sorted.
fn descriptors() -> Result<Vec<String>> {
    let mut kinds = Vec::new();
    for entry in std::fs::read_dir("/proc/self/fd")? {
        // The descriptor that reads this directory may be closed already.
        let Ok(link) = std::fs::read_link(entry?.path()) else { continue };
        // Removes the number of `socket:[1234]`.
        let kind = link.to_string_lossy();
        kinds.push(kind.trim_end_matches(|c: char| c.is_ascii_digit() || "[]".contains(c)).into());
    }
    kinds.sort();
    Ok(kinds)
}

/// The number of files in /dev/shm, of all programs.
fn shm_files() -> Result<usize> {
    Ok(std::fs::read_dir("/dev/shm")?.count())
}

/// The resources that this process has more of after killing publishers and subscribers, in turns.
fn leftovers(kills: u32) -> Result<Vec<Fact>> {
    let topic = publisher()?;
    let numbers: Topic<u64> = Topic::new(NUMBERS)?;
    numbers.subscribe()?;
    numbers.send(&2)?;
    // Creates the threads and connections that exist once.
    holder(&topic)?.kill()?;
    await_no_readers(&topic)?;
    let (before, shm_before) = (Resources::when_stable()?, shm_files()?);
    kill_in_turns(kills, &topic, &numbers)?;
    await_no_readers(&topic)?;
    // A new publisher removes the sockets of dead ones.
    Topic::<u64>::new(NUMBERS)?.send(&3)?;
    // Messages of dead publishers can still be received; only then their resources are released.
    let start = Instant::now();
    let mut after = Resources::now()?;
    while after != before && start.elapsed() < TIMEOUT {
        while numbers.recv().is_some() {}
        after = Resources::now()?;
    }
    if before.descriptors != after.descriptors {
        eprintln!("{:?} before, {:?} after", before.descriptors, after.descriptors);
    }
    let fact = |what, before, after| growth_fact(what, kills, before, after);
    Ok(vec![
        fact("file descriptors", before.descriptors.len(), after.descriptors.len()),
        fact("files", before.files, after.files),
        fact("sockets", before.sockets, after.sockets),
        fact("entries of /dev/shm", shm_before, shm_files()?),
    ])
}

/// Kills a subscriber that holds a frame, then a publisher, and so on.
fn kill_in_turns(kills: u32, topic: &Topic<Tensor>, numbers: &Topic<u64>) -> Result<()> {
    for kill in 0..kills {
        if kill.is_multiple_of(2) {
            holder(topic)?.kill()?;
        } else {
            let mut helper = Helper::start(GROUP)?;
            helper.order(Task::Publish, 0, 0)?;
            wait_until(|| Ok(numbers.recv() == Some(0)))?;
            helper.kill()?;
        }
    }
    Ok(())
}

fn growth_fact(what: &str, kills: u32, before: usize, after: usize) -> Fact {
    Fact {
        group: GROUP,
        what: format!("{what} left by {kills} kills"),
        value: after as f64 - before as f64,
        unit: "",
        from: format!("{before} before, {after} after"),
    }
}

/// Waits until no process is attached or subscribed, and the leases of dead ones are released.
fn await_no_readers(topic: &Topic<Tensor>) -> Result<()> {
    wait_until(|| Ok(topic.pool()?.stats()?.attachers == 0 && topic.stats().subscribers == 0))
}

/// Runs the helper process, which will be killed.
pub(crate) fn run_helper(page: &SharedPage) -> Result<()> {
    loop {
        let word = page.order();
        match Order::from_word(word).task {
            Task::Quit => return Ok(()),
            Task::Hold => {
                let topic: Topic<Tensor> = Topic::new(FRAMES)?;
                topic.subscribe()?;
                page.set_started(word);
                let _held = topic.wait()?;
                page.set_arrived(1, clock());
                await_next_order(page, word);
            }
            Task::Publish => {
                let topic: Topic<u64> = Topic::new(NUMBERS)?;
                topic.advertise()?;
                page.set_started(word);
                while page.order() == word {
                    topic.send(&0)?;
                    thread::sleep(Duration::from_micros(200));
                }
            }
            _ => {
                page.set_started(word);
                await_next_order(page, word);
            }
        }
    }
}

fn await_next_order(page: &SharedPage, order: u64) {
    while page.order() == order {
        thread::sleep(Duration::from_micros(200));
    }
}
