//! `cenote topic list`

use cenote::{TopicInfo, topics};
use serde::Serialize;

use crate::commands::socket_dir;
use crate::commands::topic::type_name;
use crate::failure::Outcome;
use crate::output::unit;
use crate::output::{NO_ANSWER_CELL, Output, Page, Report, Table};

/// List the topics that have a publisher or a waiting subscriber
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print only the names
    #[arg(short, long)]
    quiet: bool,
}

impl Args {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        socket_dir::check_namespace()?;
        let topics = topics()?.iter().map(TopicLine::new).collect();
        output.report(&List { topics, quiet: self.quiet })
    }
}

#[derive(Debug, Serialize)]
struct List {
    topics: Vec<TopicLine>,
    #[serde(skip)]
    quiet: bool,
}

/// A topic in a list.
#[derive(Debug, Serialize)]
pub(crate) struct TopicLine {
    pub(crate) name: String,
    #[serde(rename = "type")]
    carries: Option<String>,
    /// Whether all publishers answer.
    answers: bool,
    /// Whether this user may connect to none of them.
    closed: bool,
    /// This and the fields below are `None` if unknown.
    publishers: Option<usize>,
    subscribers: Option<usize>,
    sent: Option<u64>,
}

impl TopicLine {
    pub(crate) fn new(topic: &TopicInfo) -> TopicLine {
        let publishers = &topic.publishers;
        let answering = publishers.iter().filter(|publisher| publisher.carries.is_some());
        let known = !topic.closed && (publishers.is_empty() || answering.clone().count() > 0);
        // Most subscribers are in the list of every publisher, so the longest list is the best count.
        let most = publishers.iter().map(|publisher| publisher.subscribers.len()).max();
        let sent = unit::sum(publishers.iter().map(|publisher| publisher.sent));
        TopicLine {
            name: topic.name.clone(),
            carries: publishers.iter().find_map(|publisher| publisher.carries.clone()),
            answers: !topic.closed && answering.count() == publishers.len(),
            closed: is_closed(topic),
            publishers: (!topic.closed).then_some(publishers.len()),
            subscribers: known.then(|| most.unwrap_or(topic.waiting.len())),
            sent: known.then_some(sent),
        }
    }

    /// The type of the messages, or why it is unknown.
    pub(crate) fn show_type(&self) -> String {
        match &self.carries {
            Some(carries) => type_name::short(carries),
            None if self.closed => "(closed)".to_owned(),
            None if self.publishers == Some(0) => "(no publisher)".to_owned(),
            None => NO_ANSWER_CELL.to_owned(),
        }
    }

    pub(crate) fn show_publishers(&self) -> String {
        unit::or_dash(self.publishers)
    }

    pub(crate) fn show_subscribers(&self) -> String {
        unit::or_dash(self.subscribers)
    }
}

/// Whether this user may connect to none of the publishers.
pub(crate) fn is_closed(topic: &TopicInfo) -> bool {
    let mut publishers = topic.publishers.iter();
    topic.closed || (!topic.publishers.is_empty() && publishers.all(|publisher| publisher.closed))
}

/// Topics as a table.
pub(crate) fn topic_table<'a>(topics: impl IntoIterator<Item = &'a TopicLine>) -> Table {
    let mut table = Table::new(&["TOPIC", "TYPE", ">PUBLISHERS", ">SUBSCRIBERS", ">SENT"]);
    for topic in topics {
        let (publishers, subscribers) = (topic.show_publishers(), topic.show_subscribers());
        let (name, sent) = (topic.name.clone(), unit::or_dash(topic.sent));
        table.row([name, topic.show_type(), publishers, subscribers, sent]);
    }
    table
}

impl Report for List {
    fn write(&self, page: &mut Page) {
        match self.quiet {
            true => self.topics.iter().for_each(|topic| page.line(&topic.name)),
            false => page.table(&topic_table(&self.topics), "no topics"),
        }
    }
}
