//! `cenote topic list`

use cenote::{TopicInfo, topics};
use serde::Serialize;

use crate::failure::Outcome;
use crate::ls;
use crate::output::{NO_ANSWER_CELL, Output, Page, Report, Table};
use crate::unit;

/// All topics that somebody publishes, or waits for
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Nothing but the names
    #[arg(short, long)]
    quiet: bool,
}

impl Args {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        ls::check_namespace()?;
        let topics = topics()?.iter().map(Line::new).collect();
        output.report(&List { topics, quiet: self.quiet })
    }
}

#[derive(Debug, Serialize)]
struct List {
    topics: Vec<Line>,
    #[serde(skip)]
    quiet: bool,
}

/// A topic in a list.
#[derive(Debug, Serialize)]
pub(crate) struct Line {
    name: String,
    #[serde(rename = "type")]
    carries: Option<String>,
    publishers: usize,
    subscribers: usize,
    sent: u64,
}

impl Line {
    pub(crate) fn new(topic: &TopicInfo) -> Line {
        let publishers = &topic.publishers;
        // Each publisher has its own list of those who subscribe: mostly the same ones.
        let most = publishers.iter().map(|publisher| publisher.subscribers.len()).max();
        Line {
            name: topic.name.clone(),
            carries: publishers.iter().find_map(|publisher| publisher.carries.clone()),
            publishers: publishers.len(),
            subscribers: most.unwrap_or(topic.waiting.len()),
            sent: unit::sum(publishers.iter().map(|publisher| publisher.sent)),
        }
    }
}

/// What is sent, or why that is not known.
pub(crate) fn show_type(carries: Option<&String>, publishers: usize) -> String {
    match (carries, publishers) {
        (Some(carries), _) => carries.clone(),
        (None, 0) => "(no publisher)".to_owned(),
        (None, _) => NO_ANSWER_CELL.to_owned(),
    }
}

/// Topics as a table.
pub(crate) fn table<'a>(topics: impl IntoIterator<Item = &'a Line>) -> Table {
    let mut table = Table::new(&["TOPIC", "TYPE", ">PUBLISHERS", ">SUBSCRIBERS", ">SENT"]);
    for Line { name, carries, publishers, subscribers, sent } in topics {
        let silent = carries.is_none() && *publishers > 0;
        let known = |count: String| if silent { "-".to_owned() } else { count };
        let counts =
            (publishers.to_string(), known(subscribers.to_string()), known(sent.to_string()));
        let carries = show_type(carries.as_ref(), *publishers);
        table.row([name.clone(), carries, counts.0, counts.1, counts.2]);
    }
    table
}

impl Report for List {
    fn write(&self, page: &mut Page) {
        match self.quiet {
            true => self.topics.iter().for_each(|topic| page.line(&topic.name)),
            false => page.table(&table(&self.topics), "no topics"),
        }
    }
}
