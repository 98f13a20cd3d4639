//! `cenote topic list`

use cenote::{TopicInfo, topics};
use serde::Serialize;

use crate::failure::Outcome;
use crate::ls;
use crate::output::{NO_ANSWER_CELL, Output, Page, Report, Table};
use crate::topic::kind;
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
    pub(crate) name: String,
    #[serde(rename = "type")]
    carries: Option<String>,
    /// Whether all who publish it do.
    answers: bool,
    /// Whether this user may ask none of them.
    closed: bool,
    /// `None` if it is not known, as are those below.
    publishers: Option<usize>,
    subscribers: Option<usize>,
    sent: Option<u64>,
}

impl Line {
    pub(crate) fn new(topic: &TopicInfo) -> Line {
        let publishers = &topic.publishers;
        let answering = publishers.iter().filter(|publisher| publisher.carries.is_some());
        let known = !topic.closed && (publishers.is_empty() || answering.clone().count() > 0);
        // Each publisher has its own list of those who subscribe: mostly the same ones.
        let most = publishers.iter().map(|publisher| publisher.subscribers.len()).max();
        let sent = unit::sum(publishers.iter().map(|publisher| publisher.sent));
        Line {
            name: topic.name.clone(),
            carries: publishers.iter().find_map(|publisher| publisher.carries.clone()),
            answers: !topic.closed && answering.count() == publishers.len(),
            closed: is_closed(topic),
            publishers: (!topic.closed).then_some(publishers.len()),
            subscribers: known.then(|| most.unwrap_or(topic.waiting.len())),
            sent: known.then_some(sent),
        }
    }

    /// What is sent, or why that is not known.
    pub(crate) fn show_type(&self) -> String {
        match &self.carries {
            Some(carries) => kind::brief(carries),
            None if self.closed => "(closed)".to_owned(),
            None if self.publishers == Some(0) => "(no publisher)".to_owned(),
            None => NO_ANSWER_CELL.to_owned(),
        }
    }

    pub(crate) fn show_publishers(&self) -> String {
        count(self.publishers)
    }

    pub(crate) fn show_subscribers(&self) -> String {
        count(self.subscribers)
    }
}

/// Whether nobody who publishes it can be asked by this user.
pub(crate) fn is_closed(topic: &TopicInfo) -> bool {
    let mut publishers = topic.publishers.iter();
    topic.closed || (!topic.publishers.is_empty() && publishers.all(|publisher| publisher.closed))
}

/// A number, if it is known.
pub(crate) fn count<T: ToString>(count: Option<T>) -> String {
    count.map_or_else(|| "-".to_owned(), |count| count.to_string())
}

/// Topics as a table.
pub(crate) fn table<'a>(topics: impl IntoIterator<Item = &'a Line>) -> Table {
    let mut table = Table::new(&["TOPIC", "TYPE", ">PUBLISHERS", ">SUBSCRIBERS", ">SENT"]);
    for topic in topics {
        let (publishers, subscribers) = (topic.show_publishers(), topic.show_subscribers());
        let (name, sent) = (topic.name.clone(), count(topic.sent));
        table.row([name, topic.show_type(), publishers, subscribers, sent]);
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
