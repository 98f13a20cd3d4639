//! `cenote topic info`

use cenote::{PublisherInfo, SubscriberInfo};
use serde::Serialize;

use crate::failure::Outcome;
use crate::output::{NO_ANSWER, Output, Page, Report, Table};
use crate::topic;

/// Who publishes a topic and who subscribes
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The topic, as in camera.rgb or /camera/rgb
    topic: String,
}

impl Args {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        let found = topic::find_any(&self.topic)?;
        let publishers = found.publishers.iter().map(Publisher::new).collect();
        let waiting = found.waiting.iter().map(Subscriber::new).collect();
        output.report(&Info { name: found.name, publishers, waiting })
    }
}

#[derive(Debug, Serialize)]
struct Info {
    name: String,
    publishers: Vec<Publisher>,
    /// Where nobody publishes: who waits.
    waiting: Vec<Subscriber>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Publisher {
    pub(crate) pid: i32,
    pub(crate) program: String,
    pub(crate) uid: String,
    #[serde(rename = "type")]
    pub(crate) carries: Option<String>,
    pub(crate) closed: bool,
    pub(crate) sent: u64,
    pub(crate) depth: usize,
    pub(crate) waits_for_subscribers: bool,
    pub(crate) subscribers: Vec<Subscriber>,
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
        let subscribers = info.subscribers.iter().map(Subscriber::new);
        Publisher {
            pid: info.pid,
            program: info.program.clone(),
            uid: format!("{:016x}", info.uid),
            carries: info.carries.clone(),
            closed: info.closed,
            sent: info.sent,
            depth: info.depth,
            waits_for_subscribers: info.waits,
            subscribers: subscribers.collect(),
        }
    }

    fn policy(&self) -> &'static str {
        match self.waits_for_subscribers {
            true => "waits for, or refuses, who is slower",
            false => "pushes out what was not taken",
        }
    }
}

impl Report for Info {
    fn write(&self, page: &mut Page) {
        for publisher in &self.publishers {
            let Publisher { pid, program, sent, depth, .. } = publisher;
            page.heading(&format!("{} from {program} (pid {pid})", self.name));
            let Some(carries) = &publisher.carries else {
                page.warning(&match publisher.closed {
                    true => "it is closed to this user".to_owned(),
                    false => format!("it {NO_ANSWER}"),
                });
                continue;
            };
            page.line(format!("type: {carries}"));
            page.line(format!("sent: {sent}"));
            page.line(format!("keeps {depth} messages, and {}", publisher.policy()));
            page.table(&subscribers(&publisher.subscribers), "no subscribers");
        }
        if !self.waiting.is_empty() {
            page.warning(&format!("{}: nobody publishes it; who waits for it:", self.name));
            page.table(&subscribers(&self.waiting), "");
        }
    }
}

fn subscribers(subscribers: &[Subscriber]) -> Table {
    let mut table = Table::new(&[">PID", "SUBSCRIBER", ">BEHIND"]);
    for Subscriber { pid, program, behind } in subscribers {
        table.row([pid.to_string(), program.clone(), behind.to_string()]);
    }
    table
}
