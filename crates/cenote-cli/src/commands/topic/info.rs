//! `cenote topic info`

use cenote::{PublisherInfo, SubscriberInfo};
use serde::Serialize;

use crate::commands::topic::find;
use crate::failure::Outcome;
use crate::output::unit;
use crate::output::{NO_ANSWER, Output, Page, Report, Table};

/// Show the publishers and subscribers of a topic
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The topic: camera.rgb or /camera/rgb
    topic: String,
}

impl Args {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        let found = find::topic(&self.topic)?;
        let publishers = found.publishers.iter().map(Publisher::new).collect();
        let waiting = found.waiting.iter().map(Subscriber::new).collect();
        output.report(&Info { name: found.name, publishers, waiting })
    }
}

#[derive(Debug, Serialize)]
struct Info {
    name: String,
    publishers: Vec<Publisher>,
    /// The subscribers that wait, if the topic has no publisher.
    waiting: Vec<Subscriber>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Publisher {
    pub(crate) pid: i32,
    pub(crate) program: String,
    pub(crate) uid: String,
    #[serde(rename = "type")]
    pub(crate) carries: Option<String>,
    pub(crate) answers: bool,
    pub(crate) closed: bool,
    /// This and the fields below are `None` if the publisher does not answer.
    pub(crate) sent: Option<u64>,
    pub(crate) depth: Option<usize>,
    pub(crate) waits_for_subscribers: Option<bool>,
    pub(crate) subscribers: Option<Vec<Subscriber>>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Subscriber {
    pub(crate) pid: i32,
    pub(crate) program: String,
    pub(crate) behind: u64,
}

impl Subscriber {
    pub(crate) fn new(info: &SubscriberInfo) -> Subscriber {
        Subscriber { pid: info.pid, program: info.program.clone(), behind: info.behind }
    }
}

impl Publisher {
    pub(crate) fn new(info: &PublisherInfo) -> Publisher {
        let subscribers = || info.subscribers.iter().map(Subscriber::new).collect();
        let answers = info.carries.is_some();
        Publisher {
            pid: info.pid,
            program: info.program.clone(),
            uid: format!("{:016x}", info.uid),
            carries: info.carries.clone(),
            answers,
            closed: info.closed,
            sent: answers.then_some(info.sent),
            depth: answers.then_some(info.depth),
            waits_for_subscribers: answers.then_some(info.waits),
            subscribers: answers.then(subscribers),
        }
    }

    fn policy(&self) -> &'static str {
        match self.waits_for_subscribers.unwrap_or(false) {
            true => "waits for slow subscribers, or refuses to send",
            false => "drops the oldest if subscribers are slow",
        }
    }
}

impl Report for Info {
    fn write(&self, page: &mut Page) {
        for publisher in &self.publishers {
            let Publisher { pid, program, .. } = publisher;
            page.heading(&format!("{} from {program} (pid {pid})", self.name));
            let Some(carries) = &publisher.carries else {
                page.warning(&match publisher.closed {
                    true => "it is closed to this user".to_owned(),
                    false => format!("it {NO_ANSWER}"),
                });
                continue;
            };
            page.line(format!("type: {carries}"));
            page.line(format!("sent: {}", unit::or_dash(publisher.sent)));
            let depth = unit::or_dash(publisher.depth);
            page.line(format!("keeps {depth} messages, and {}", publisher.policy()));
            let subscribers = publisher.subscribers.as_deref().unwrap_or_default();
            page.table(&table(subscribers), "no subscribers");
        }
        if !self.waiting.is_empty() {
            page.warning(&format!("{}: no publisher; waiting subscribers:", self.name));
            page.table(&table(&self.waiting), "");
        }
    }
}

fn table(subscribers: &[Subscriber]) -> Table {
    let mut table = Table::new(&[">PID", "SUBSCRIBER", ">BEHIND"]);
    for Subscriber { pid, program, behind } in subscribers {
        table.row([pid.to_string(), program.clone(), behind.to_string()]);
    }
    table
}
