//! `cenote top`

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use cenote::{PoolInfo, TopicInfo, pools, topics};
use serde::Serialize;

use crate::argument;
use crate::commands::pool::{PoolLine, pool_table};
use crate::commands::socket_dir;
use crate::commands::topic::{TopicLine, type_name};
use crate::failure::{Failure, Outcome};
use crate::measure::meter::{Meter, POLL_INTERVAL, Reading};
use crate::measure::percentiles::Percentiles;
use crate::output::screen::{Screen, Section};
use crate::output::unit::{self, sum};
use crate::output::{Output, Page, Report, Table};
use crate::process::interrupt::Interrupt;

/// The time between two checks for keys and signals.
const INPUT_CHECK: Duration = Duration::from_millis(20);

/// How many readings the curve of reserved memory shows at most.
const MAX_HISTORY: usize = 512;

/// The longest type name, so that the rates fit beside it.
const TYPE_WIDTH: usize = 20;

/// Show topics and pools live: rates, latency, memory, leases, growth
///
/// Press q to quit. Without a terminal, or with --json, it prints one reading after another.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Seconds between two readings; more if listing topics and pools takes longer
    #[arg(short, long, default_value_t = 1.0, value_parser = argument::seconds)]
    interval: f64,

    /// Stop after this many readings
    #[arg(short, long, value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
}

impl Args {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        if output.is_dumb() {
            let text = "this terminal (TERM=dumb) cannot show a live view: use --json, or `cenote topic hz`";
            return Err(Failure::Invalid(text.to_owned()));
        }
        socket_dir::check_namespace()?;
        socket_dir::warn_of_closed_dirs()?;
        let interrupt = Interrupt::register()?;
        let mut screen = if output.is_live() { Some(Screen::open()?) } else { None };
        let mut monitor = Monitor::default();
        let mut left = self.count;
        while left != Some(0) {
            if !self.measure(&mut monitor, screen.as_mut(), &interrupt)? {
                break;
            }
            let reading = monitor.read()?;
            match &mut screen {
                Some(screen) => screen.draw("cenote top", &reading.sections(&monitor.history))?,
                None => output.report_line(&reading)?,
            }
            left = left.map(|left| left - 1);
        }
        Ok(())
    }

    /// Measures for one interval. Returns false if the user pressed q.
    fn measure(
        &self,
        monitor: &mut Monitor,
        mut screen: Option<&mut Screen>,
        interrupt: &Interrupt,
    ) -> Outcome<bool> {
        let (start, interval) = (Instant::now(), Duration::from_secs_f64(self.interval));
        monitor.find_topics()?;
        // Listing may take longer than the interval, on a busy machine or if a publisher does not answer. Half an
        // interval is still left for measuring.
        let time = interval.max(start.elapsed() + interval / 2);
        while let Some(left) = time.checked_sub(start.elapsed()) {
            monitor.poll(left.min(INPUT_CHECK));
            interrupt.check()?;
            if screen.as_deref_mut().map_or(Ok(false), Screen::is_quit)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// All topics, each with its meter, and the history of the pools.
#[derive(Debug, Default)]
struct Monitor {
    meters: BTreeMap<String, Meter>,
    topics: Vec<TopicInfo>,
    /// Topics that cannot be observed, and why.
    unreadable: Vec<Unreadable>,
    /// The reserved bytes of all pools at each reading.
    history: Vec<u64>,
    /// The reserved bytes of each pool when it was first seen.
    first_reserved: BTreeMap<u64, usize>,
}

#[derive(Debug, Clone, Serialize)]
struct Unreadable {
    topic: String,
    error: String,
}

impl Monitor {
    /// Starts meters for new topics, and drops those of topics that have ended.
    fn find_topics(&mut self) -> Outcome {
        self.topics = socket_dir::visible(topics())?;
        let exists = |name: &String| self.topics.iter().any(|topic| topic.name == *name);
        self.meters.retain(|name, _| exists(name));
        self.unreadable.clear();
        for topic in self.topics.iter().filter(|topic| answers(topic)) {
            let name = || topic.name.clone();
            if self.meters.contains_key(&topic.name) {
                continue;
            }
            // A topic that cannot be observed must not hide the others.
            match Meter::new(&topic.name) {
                Ok(meter) => drop(self.meters.insert(name(), meter)),
                Err(failure) => {
                    self.unreadable.push(Unreadable { topic: name(), error: failure.to_string() });
                }
            }
        }
        // Nothing was polled while topics and pools were listed and drawn.
        self.meters.values_mut().for_each(Meter::mark_stalled);
        Ok(())
    }

    fn poll(&mut self, time: Duration) {
        let start = Instant::now();
        while start.elapsed() < time {
            self.meters.values_mut().for_each(Meter::poll);
            std::thread::sleep(POLL_INTERVAL);
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
        self.history.push(bytes_reserved);
        self.history.drain(..self.history.len().saturating_sub(MAX_HISTORY));
        self.first_reserved.retain(|uid, _| pools.iter().any(|pool| pool.uid == *uid));
        let pools = pools.iter().map(|pool| self.pool(pool)).collect();
        let unreadable = self.unreadable.clone();
        Ok(Top { topics, pools, unreadable, bytes_in_use, bytes_reserved })
    }

    /// A pool, with its growth since it was first seen.
    fn pool(&mut self, info: &PoolInfo) -> Pool {
        let reserved = info.account.as_ref().map(|account| account.stats.bytes_reserved);
        let first = reserved.map(|now| *self.first_reserved.entry(info.uid).or_insert(now));
        let signed = |bytes: usize| i64::try_from(bytes).unwrap_or(i64::MAX);
        let grown = reserved.zip(first).map(|(now, first)| signed(now) - signed(first));
        Pool { line: PoolLine::new(info), grown_bytes: grown }
    }
}

/// Whether any publisher answers: the others cannot be observed.
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
    /// The change of its reserved bytes since it was first seen; `None` if its owner does not answer.
    grown_bytes: Option<i64>,
}

#[derive(Debug, Serialize)]
struct Topic {
    #[serde(flatten)]
    line: TopicLine,
    /// How far the slowest subscriber is behind; `None` if no publisher answers.
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
                type_name::truncate(&topic.line.show_type(), TYPE_WIDTH),
                unit::rate(topic.reading.hz),
                unit::bandwidth(topic.reading.bytes_per_second),
                Percentiles::show(topic.reading.latency.as_ref()),
                topic.line.show_publishers(),
                topic.line.show_subscribers(),
                unit::or_dash(topic.behind),
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
        let line = |it: &Unreadable| format!("{} cannot be observed: {}", it.topic, it.error);
        self.unreadable.iter().map(line).collect()
    }

    fn sections(&self, history: &[u64]) -> Vec<Section> {
        let mut sections = vec![
            Section::table(&self.topics()),
            Section::table(&self.pools()),
            Section::Curve { title: self.memory(), values: history.to_vec() },
        ];
        if !self.unreadable.is_empty() {
            sections.push(Section::lines("problems", &self.unreadable()));
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
