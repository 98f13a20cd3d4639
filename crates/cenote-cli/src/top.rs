//! `cenote top`

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use cenote::{TopicInfo, pools, topics};
use serde::Serialize;

use crate::failure::Outcome;
use crate::ls;
use crate::meter::{Meter, NAP, Reading};
use crate::output::{Output, Page, Report, Table};
use crate::percentile::Percentiles;
use crate::pool::{PoolLine, pool_table};
use crate::screen::{Screen, Section};
use crate::topic::watching;
use crate::unit;

/// How often topics are looked at, and keys.
const LOOK: Duration = Duration::from_millis(20);

/// How many readings of the past are shown.
const PAST: usize = 512;

/// Topics and pools, live: rates, latency, memory, leases
///
/// Ends with q. Without a terminal, or with --json, it prints reading after reading.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Seconds between two readings
    #[arg(short, long, default_value_t = 1.0, value_parser = watching::seconds)]
    interval: f64,

    /// End after so many readings
    #[arg(short, long, value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
}

impl Args {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        ls::check_namespace()?;
        let mut screen = if output.is_live() { Some(Screen::open()?) } else { None };
        let mut watch = Watch::default();
        let mut left = self.count;
        while left != Some(0) {
            if !self.watch_a_while(&mut watch, screen.as_ref())? {
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
    fn watch_a_while(&self, watch: &mut Watch, screen: Option<&Screen>) -> Outcome<bool> {
        let (start, interval) = (Instant::now(), Duration::from_secs_f64(self.interval));
        watch.find()?;
        while let Some(left) = interval.checked_sub(start.elapsed()) {
            watch.look(left.min(LOOK));
            if screen.map_or(Ok(false), Screen::is_quit)? {
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
    /// Bytes that were in use, reading after reading.
    past: Vec<u64>,
}

impl Watch {
    /// Finds topics that came, and forgets those that went.
    fn find(&mut self) -> Outcome {
        self.topics = topics()?;
        let here = |name: &String| self.topics.iter().any(|topic| topic.name == *name);
        self.meters.retain(|name, _| here(name));
        for topic in &self.topics {
            if !self.meters.contains_key(&topic.name) {
                self.meters.insert(topic.name.clone(), Meter::new(&topic.name)?);
            }
        }
        Ok(())
    }

    /// A topic that makes no sense is looked at anew the next time, and hides no other.
    fn look(&mut self, time: Duration) {
        let start = Instant::now();
        while start.elapsed() < time {
            self.meters.retain(|_, meter| meter.look().is_ok());
            std::thread::sleep(NAP);
        }
    }

    fn read(&mut self) -> Outcome<Top> {
        let topics = self.topics.iter();
        let topics = topics
            .filter_map(|topic| Some(Topic::new(topic, self.meters.get_mut(&topic.name)?.read())));
        let topics: Vec<Topic> = topics.collect();
        let pools = pools()?;
        let stats = || pools.iter().filter_map(|pool| pool.account.as_ref()).map(|it| &it.stats);
        let bytes_in_use = stats().map(|stats| stats.bytes_in_use as u64).sum();
        let bytes_reserved = stats().map(|stats| stats.bytes_reserved as u64).sum();
        self.past.push(bytes_in_use);
        self.past.drain(..self.past.len().saturating_sub(PAST));
        let pools = pools.iter().map(PoolLine::new).collect();
        Ok(Top { topics, pools, bytes_in_use, bytes_reserved })
    }
}

#[derive(Debug, Serialize)]
struct Top {
    topics: Vec<Topic>,
    pools: Vec<PoolLine>,
    bytes_in_use: u64,
    bytes_reserved: u64,
}

#[derive(Debug, Serialize)]
struct Topic {
    name: String,
    #[serde(rename = "type")]
    carries: Option<String>,
    publishers: usize,
    subscribers: usize,
    /// Of the subscriber that is furthest behind.
    behind: u64,
    #[serde(flatten)]
    reading: Reading,
}

impl Topic {
    fn new(topic: &TopicInfo, reading: Reading) -> Topic {
        let publishers = &topic.publishers;
        let subscribers = || publishers.iter().flat_map(|publisher| &publisher.subscribers);
        let most = publishers.iter().map(|publisher| publisher.subscribers.len()).max();
        Topic {
            name: topic.name.clone(),
            carries: publishers.iter().find_map(|publisher| publisher.carries.clone()),
            publishers: publishers.len(),
            subscribers: most.unwrap_or(0),
            behind: subscribers().map(|subscriber| subscriber.behind).max().unwrap_or(0),
            reading,
        }
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
                topic.name.clone(),
                topic.carries.clone().unwrap_or_else(|| "(no answer)".to_owned()),
                unit::rate(topic.reading.hz),
                unit::bandwidth(topic.reading.bytes_per_second),
                Percentiles::show(topic.reading.latency.as_ref()),
                topic.publishers.to_string(),
                topic.subscribers.to_string(),
                topic.behind.to_string(),
            ]);
        }
        table
    }

    fn memory(&self) -> String {
        let leases: usize = self.pools.iter().map(|pool| pool.leases).sum();
        let (in_use, reserved) = (unit::bytes(self.bytes_in_use), unit::bytes(self.bytes_reserved));
        format!("memory: {in_use} in use of {reserved} reserved; {leases} leases")
    }

    fn sections(&self, past: &[u64]) -> [Section; 3] {
        [
            Section::table(&self.topics()),
            Section::table(&pool_table(&self.pools)),
            Section::Curve { title: self.memory(), values: past.to_vec() },
        ]
    }
}

impl Report for Top {
    fn write(&self, page: &mut Page) {
        page.table(&self.topics(), "no topics");
        page.table(&pool_table(&self.pools), "no pools");
        page.line(self.memory());
    }
}
