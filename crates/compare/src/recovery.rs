//! Processes are killed: how long until the others go on, and what is left when a thousand were.

use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use cenote::{DType, Tensor, TensorPoolConfig, Topic, TopicConfig};

use crate::Result;
use crate::found::{Fact, Found};
use crate::other::{Order, Other, Task};
use crate::pace::Pace;
use crate::page::{Page, clock, nanos};
use crate::run;
use crate::series::{Series, Take};

/// What it is called.
pub(crate) const GROUP: &str = "recovery";

const NEWS: &str = "recovery.news";
const FRAMES: &str = "recovery.frames";

/// Longer than anything should take.
const PATIENCE: Duration = Duration::from_secs(60);

/// What has not changed for so long does not change any more.
const REST: Duration = Duration::from_millis(100);

/// All of it.
pub(crate) fn run(pace: Pace) -> Result<Found> {
    let kills = if pace.full { 1000 } else { 20 };
    let series = vec![publisher_killed(pace)?, subscriber_killed(pace)?];
    Ok(Found { series, facts: residue(kills)?, ..Found::default() })
}

/// Until something is so.
fn until(mut so: impl FnMut() -> Result<bool>) -> Result<()> {
    let start = Instant::now();
    while !so()? {
        if start.elapsed() > PATIENCE {
            return Err("it never came to that".into());
        }
        std::hint::spin_loop();
    }
    Ok(())
}

/// From the kill until a subscriber has the first message of a successor.
fn publisher_killed(pace: Pace) -> Result<Series> {
    let work = "publisher killed, to its successor's first message";
    let mut series = Series::new(GROUP, work, "cenote");
    let subscriber: Topic<u64> = Topic::new(NEWS)?;
    subscriber.subscribe()?;
    for round in 0..pace.rounds {
        let mut other = Other::start(GROUP)?;
        other.order(Task::Publish, 0, 0)?;
        until(|| Ok(subscriber.recv() == Some(0)))?;
        let began = Instant::now();
        other.kill()?;
        let successor: Topic<u64> = Topic::new(NEWS)?;
        successor.send(&1)?;
        until(|| Ok(subscriber.recv() == Some(1)))?;
        series.takes.push(Take { round, floors: None, samples: vec![nanos(began)] });
    }
    Ok(series)
}

/// From the kill until the owner does not count it as a holder any more.
fn subscriber_killed(pace: Pace) -> Result<Series> {
    let work = "subscriber killed, until what it held is free";
    let mut series = Series::new(GROUP, work, "cenote");
    let topic = publisher()?;
    for round in 0..pace.rounds {
        let mut other = holder(&topic)?;
        let holds = |pid| -> Result<bool> {
            let holders = topic.pool()?.holders()?;
            Ok(holders.iter().any(|holder| holder.pid == pid && holder.slots > 0))
        };
        let pid = other.pid()?;
        until(|| holds(pid))?;
        let began = Instant::now();
        other.kill()?;
        until(|| Ok(!holds(pid)?))?;
        series.takes.push(Take { round, floors: None, samples: vec![nanos(began)] });
    }
    Ok(series)
}

/// Of a pool that has all it will need from the beginning: what it has more of in the end was left.
fn publisher() -> Result<Topic<Tensor>> {
    let pool = TensorPoolConfig { growth: 16 << 20, ..TensorPoolConfig::default() };
    let config = TopicConfig { pool, ..TopicConfig::default() };
    let topic: Topic<Tensor> = Topic::with_config(FRAMES, config)?;
    topic.advertise()?;
    Ok(topic)
}

/// A process that has received a frame and keeps it.
fn holder(topic: &Topic<Tensor>) -> Result<Other> {
    let mut other = Other::start(GROUP)?;
    other.order(Task::Hold, 0, 0)?;
    until(|| {
        let mut frame = topic.alloc_tensor(&[512], DType::U64)?;
        frame.map_mut()?.as_mut_slice::<u64>()?[0] = 1;
        topic.send(&frame)?;
        Ok(other.page().arrived(1).is_some())
    })?;
    Ok(other)
}

/// What is counted.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Count {
    /// What they are of.
    descriptors: Vec<String>,
    files: usize,
    sockets: usize,
}

impl Count {
    fn now() -> Result<Count> {
        let mut count = Count { descriptors: descriptors()?, files: 0, sockets: 0 };
        count.add(&run::memory()?)?;
        Ok(count)
    }

    /// When nothing changes any more: another thread lets go of those who have ended, one thing after the
    /// other.
    fn at_rest() -> Result<Count> {
        let mut count = Count::now()?;
        until(|| {
            thread::sleep(REST);
            let earlier = std::mem::replace(&mut count, Count::now()?);
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

/// What the descriptors of this process are of, in order.
fn descriptors() -> Result<Vec<String>> {
    let mut kinds = Vec::new();
    for entry in std::fs::read_dir("/proc/self/fd")? {
        // One of them reads this list, and is gone by the end of it.
        let Ok(link) = std::fs::read_link(entry?.path()) else { continue };
        // Sockets are numbered: `socket:[1234]`.
        let kind = link.to_string_lossy();
        kinds.push(kind.trim_end_matches(|c: char| c.is_ascii_digit() || "[]".contains(c)).into());
    }
    kinds.sort();
    Ok(kinds)
}

/// Of all programs.
fn shared() -> Result<usize> {
    Ok(std::fs::read_dir("/dev/shm")?.count())
}

/// What there is more of when so many have been killed, publishers and subscribers by turns.
fn residue(kills: u32) -> Result<Vec<Fact>> {
    let topic = publisher()?;
    let news: Topic<u64> = Topic::new(NEWS)?;
    news.subscribe()?;
    news.send(&2)?;
    // Threads and connections that are made once.
    holder(&topic)?.kill()?;
    settle(&topic)?;
    let (before, shared_before) = (Count::at_rest()?, shared()?);
    for kill in 0..kills {
        if kill.is_multiple_of(2) {
            holder(&topic)?.kill()?;
        } else {
            let mut other = Other::start(GROUP)?;
            other.order(Task::Publish, 0, 0)?;
            until(|| Ok(news.recv() == Some(0)))?;
            other.kill()?;
        }
    }
    settle(&topic)?;
    // Whoever comes next removes what it comes across.
    Topic::<u64>::new(NEWS)?.send(&3)?;
    // What the dead have sent can still be received, and they are let go of after that.
    let start = Instant::now();
    let mut after = Count::now()?;
    while after != before && start.elapsed() < PATIENCE {
        while news.recv().is_some() {}
        after = Count::now()?;
    }
    let fact = |what: &str, before: usize, after: usize| Fact {
        group: GROUP,
        what: format!("{what} left by {kills} kills"),
        value: after as f64 - before as f64,
        unit: "",
        from: format!("{before} before, {after} after"),
    };
    if before.descriptors != after.descriptors {
        eprintln!("{:?} before, {:?} after", before.descriptors, after.descriptors);
    }
    Ok(vec![
        fact("file descriptors", before.descriptors.len(), after.descriptors.len()),
        fact("files", before.files, after.files),
        fact("sockets", before.sockets, after.sockets),
        fact("entries of /dev/shm", shared_before, shared()?),
    ])
}

/// Until nobody is attached or subscribes, and what the dead held is free.
fn settle(topic: &Topic<Tensor>) -> Result<()> {
    until(|| Ok(topic.pool()?.stats()?.attachers == 0 && topic.stats().subscribers == 0))
}

/// What the process does that will be killed.
pub(crate) fn other(page: &Page) -> Result<()> {
    loop {
        let word = page.order();
        match Order::from_word(word).task {
            Task::Quit => return Ok(()),
            Task::Hold => {
                let topic: Topic<Tensor> = Topic::new(FRAMES)?;
                topic.subscribe()?;
                page.set_seen(word);
                let _kept = topic.wait()?;
                page.set_arrived(1, clock());
                rest(page, word);
            }
            Task::Publish => {
                let topic: Topic<u64> = Topic::new(NEWS)?;
                topic.advertise()?;
                page.set_seen(word);
                while page.order() == word {
                    topic.send(&0)?;
                    thread::sleep(Duration::from_micros(200));
                }
            }
            _ => {
                page.set_seen(word);
                rest(page, word);
            }
        }
    }
}

fn rest(page: &Page, order: u64) {
    while page.order() == order {
        thread::sleep(Duration::from_micros(200));
    }
}
