//! `cenote top`

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use cenote::{PoolInfo, TopicInfo, pools, topics};
use serde::Serialize;

use crate::failure::{Failure, Outcome};
use crate::interrupt::Interrupt;
use crate::ls;
use crate::meter::{Meter, NAP, Reading};
use crate::output::{Output, Page, Report, Table};
use crate::percentile::Percentiles;
use crate::pool::{PoolLine, pool_table};
use crate::screen::{Screen, Section};
use crate::topic::{TopicLine, count, kind, watching};
use crate::unit::{self, sum};

/// How often topics are looked at, and keys.
const LOOK: Duration = Duration::from_millis(20);

/// How many readings of the past are shown.
const PAST: usize = 512;

/// The longest name of a type: rates are to have room beside it.
const TYPE_WIDTH: usize = 20;

/// Topics and pools, live: rates, latency, memory, leases, growth
///
/// Ends with q. Without a terminal, or with --json, it prints reading after reading.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Seconds between two readings, or more where listing takes longer
    #[arg(short, long, default_value_t = 1.0, value_parser = watching::seconds)]
    interval: f64,

    /// End after so many readings
    #[arg(short, long, value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
}

impl Args {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        if output.is_dumb() {
            let text = "this terminal (TERM=dumb) cannot show it: use --json, or `cenote topic hz`";
            return Err(Failure::Nonsense(text.to_owned()));
        }
        ls::check_namespace()?;
        ls::note_closed()?;
        let interrupt = Interrupt::listen()?;
        let mut screen = if output.is_live() { Some(Screen::open()?) } else { None };
        let mut watch = Watch::default();
        let mut left = self.count;
        while left != Some(0) {
            if !self.watch_a_while(&mut watch, screen.as_mut(), &interrupt)? {
                break;
            }
            let reading = watch.read()?;
            match &mut screen {
                Some(screen) => screen.draw("cenote top", &reading.sections(&watch.past))?,
                None => output.one_of_many(&reading)?,
            }
            left = left.map(|left| left - 1);
        }
        Ok(())
    }

    /// False if the user has had enough.
    fn watch_a_while(
        &self,
        watch: &mut Watch,
        mut screen: Option<&mut Screen>,
        interrupt: &Interrupt,
    ) -> Outcome<bool> {
        let (start, interval) = (Instant::now(), Duration::from_secs_f64(self.interval));
        watch.find()?;
        // Who lists for longer than that, on a busy machine or for want of an answer, still has to look.
        let time = interval.max(start.elapsed() + interval / 2);
        while let Some(left) = time.checked_sub(start.elapsed()) {
            watch.look(left.min(LOOK));
            interrupt.check()?;
            if screen.as_deref_mut().map_or(Ok(false), Screen::is_quit)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// All topics, each with its meter.
#[derive(Debug, Default)]
struct Watch {
    meters: BTreeMap<String, Meter>,
    topics: Vec<TopicInfo>,
    /// Topics that cannot be looked at, and why.
    unreadable: Vec<Unreadable>,
    /// Bytes that were reserved, reading after reading.
    past: Vec<u64>,
    /// What each pool had reserved when it was first seen.
    first: BTreeMap<u64, usize>,
}

#[derive(Debug, Clone, Serialize)]
struct Unreadable {
    topic: String,
    error: String,
}

impl Watch {
    /// Finds topics that came, and forgets those that went.
    fn find(&mut self) -> Outcome {
        self.topics = ls::visible(topics())?;
        let here = |name: &String| self.topics.iter().any(|topic| topic.name == *name);
        self.meters.retain(|name, _| here(name));
        self.unreadable.clear();
        for topic in self.topics.iter().filter(|topic| answers(topic)) {
            let name = || topic.name.clone();
            if self.meters.contains_key(&topic.name) {
                continue;
            }
            // One that cannot be looked at hides no other.
            match Meter::new(&topic.name) {
                Ok(meter) => drop(self.meters.insert(name(), meter)),
                Err(failure) => {
                    self.unreadable.push(Unreadable { topic: name(), error: failure.to_string() });
                }
            }
        }
        // All that took its time, and so did the pools and the screen before it.
        self.meters.values_mut().for_each(Meter::stall);
        Ok(())
    }

    fn look(&mut self, time: Duration) {
        let start = Instant::now();
        while start.elapsed() < time {
            self.meters.values_mut().for_each(Meter::look);
            std::thread::sleep(NAP);
        }
    }

    fn read(&mut self) -> Outcome<Top> {
        let topics = self.topics.iter();
        let topics = topics.map(|topic| {
            let meter = self.meters.get_mut(&topic.name);
            Topic::new(topic, meter.map_or_else(Reading::default, Meter::read))
        });
        let topics: Vec<Topic> = topics.collect();
        let pools = pools()?;
        let stats = || pools.iter().filter_map(|pool| pool.account.as_ref()).map(|it| &it.stats);
        let bytes_in_use = sum(stats().map(|stats| stats.bytes_in_use as u64));
        let bytes_reserved = sum(stats().map(|stats| stats.bytes_reserved as u64));
        self.past.push(bytes_reserved);
        self.past.drain(..self.past.len().saturating_sub(PAST));
        self.first.retain(|uid, _| pools.iter().any(|pool| pool.uid == *uid));
        let pools = pools.iter().map(|pool| self.pool(pool)).collect();
        let unreadable = self.unreadable.clone();
        Ok(Top { topics, pools, unreadable, bytes_in_use, bytes_reserved })
    }

    /// A pool, and by how much it has grown since it was first seen.
    fn pool(&mut self, info: &PoolInfo) -> Pool {
        let reserved = info.account.as_ref().map(|account| account.stats.bytes_reserved);
        let first = reserved.map(|now| *self.first.entry(info.uid).or_insert(now));
        let signed = |bytes: usize| i64::try_from(bytes).unwrap_or(i64::MAX);
        let grown = reserved.zip(first).map(|(now, first)| signed(now) - signed(first));
        Pool { line: PoolLine::new(info), grown_bytes: grown }
    }
}

/// Whether some publisher does: there is nothing to look at of one that is stopped.
fn answers(topic: &TopicInfo) -> bool {
    topic.publishers.iter().any(|publisher| publisher.carries.is_some())
}

#[derive(Debug, Serialize)]
struct Top {
    topics: Vec<Topic>,
    pools: Vec<Pool>,
    unreadable: Vec<Unreadable>,
    bytes_in_use: u64,
    bytes_reserved: u64,
}

#[derive(Debug, Serialize)]
struct Pool {
    #[serde(flatten)]
    line: PoolLine,
    /// By how much it reserves more, or less, than when it was first seen; `None` if its owner does not
    /// answer.
    grown_bytes: Option<i64>,
}

#[derive(Debug, Serialize)]
struct Topic {
    #[serde(flatten)]
    line: TopicLine,
    /// Of the subscriber that is furthest behind; `None` if nobody tells.
    behind: Option<u64>,
    #[serde(flatten)]
    reading: Reading,
}

impl Topic {
    fn new(topic: &TopicInfo, reading: Reading) -> Topic {
        let subscribers = topic.publishers.iter().flat_map(|publisher| &publisher.subscribers);
        let behind = subscribers.map(|subscriber| subscriber.behind).max().unwrap_or(0);
        Topic { line: TopicLine::new(topic), behind: answers(topic).then_some(behind), reading }
    }
}

impl Top {
    fn topics(&self) -> Table {
        let heads = [
            "TOPIC",
            "TYPE",
            ">RATE",
            ">BANDWIDTH",
            ">LATENCY p50 / p99",
            ">PUB",
            ">SUB",
            ">BEHIND",
        ];
        let mut table = Table::new(&heads);
        for topic in &self.topics {
            table.row([
                topic.line.name.clone(),
                kind::cut(&topic.line.show_type(), TYPE_WIDTH),
                unit::rate(topic.reading.hz),
                unit::bandwidth(topic.reading.bytes_per_second),
                Percentiles::show(topic.reading.latency.as_ref()),
                topic.line.show_publishers(),
                topic.line.show_subscribers(),
                count(topic.behind),
            ]);
        }
        table
    }

    fn pools(&self) -> Table {
        let mut table = pool_table(self.pools.iter().map(|pool| &pool.line));
        let grown = |pool: &Pool| pool.grown_bytes.map(growth).unwrap_or_default();
        table.column("GROWN", self.pools.iter().map(grown));
        table
    }

    fn memory(&self) -> String {
        let leases = sum(self.pools.iter().map(|pool| pool.line.leases.unwrap_or(0) as u64));
        let grown = self.pools.iter().filter_map(|pool| pool.grown_bytes);
        let grown = growth(grown.fold(0, i64::saturating_add));
        let (in_use, reserved) = (unit::bytes(self.bytes_in_use), unit::bytes(self.bytes_reserved));
        format!("memory: {in_use} in use of {reserved} reserved, grown by {grown}; {leases} leases")
    }

    fn unreadable(&self) -> Vec<String> {
        let line = |it: &Unreadable| format!("{} cannot be looked at: {}", it.topic, it.error);
        self.unreadable.iter().map(line).collect()
    }

    fn sections(&self, past: &[u64]) -> Vec<Section> {
        let mut sections = vec![
            Section::table(&self.topics()),
            Section::table(&self.pools()),
            Section::Curve { title: self.memory(), values: past.to_vec() },
        ];
        if !self.unreadable.is_empty() {
            sections.push(Section::lines("trouble", &self.unreadable()));
        }
        sections
    }
}

/// `+4.2 MB`.
fn growth(bytes: i64) -> String {
    let sign = if bytes < 0 { "-" } else { "+" };
    format!("{sign}{}", unit::bytes(bytes.unsigned_abs()))
}

impl Report for Top {
    fn write(&self, page: &mut Page) {
        page.table(&self.topics(), "no topics");
        page.table(&self.pools(), "no pools");
        page.line(self.memory());
        self.unreadable().iter().for_each(|line| page.warning(line));
    }
}
