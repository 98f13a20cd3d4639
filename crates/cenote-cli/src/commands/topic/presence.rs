//! Whether a topic has a publisher. A command that waits reports when that changes.

use cenote::{PublisherInfo, Tensor, Topic};

use crate::commands::topic::find;
use crate::failure::{self, Failure, Outcome};
use crate::output::NO_ANSWER;

/// Whether publishers of a topic were seen, and warns on standard error when that changes.
#[derive(Debug)]
pub(crate) struct Presence {
    pub(crate) topic: String,
    /// Whether the topic ever had a publisher.
    pub(crate) was_published: bool,
    is_published: bool,
}

/// Finds a topic with a publisher. Warns of publishers that do not answer if none does.
///
/// With a timeout a missing topic is no error, because a publisher may still come.
pub(crate) fn find(given: &str, timeout: Option<f64>) -> Outcome<Presence> {
    let found = match find::published_topic(given) {
        Err(Failure::NotFound(_)) if timeout.is_some() => {
            let topic: Topic<Tensor> = Topic::new(given)?;
            let name = topic.name().to_owned();
            failure::warn(&format!("topic `{name}` has no publisher yet; waiting"));
            return Ok(Presence { topic: name, was_published: false, is_published: false });
        }
        found => found?,
    };
    let any_answers = found.publishers.iter().any(|publisher| publisher.carries.is_some());
    for publisher in found.publishers.iter().filter(|one| !any_answers && !one.closed) {
        let PublisherInfo { program, pid, .. } = publisher;
        let name = &found.name;
        failure::warn(&format!("the publisher of `{name}`, {program} (pid {pid}), {NO_ANSWER}"));
    }
    Ok(Presence { topic: found.name, was_published: true, is_published: any_answers })
}

impl Presence {
    /// Records the current number of publishers that answer.
    pub(crate) fn update(&mut self, publishers: usize) {
        let (is_published, topic) = (publishers > 0, &self.topic);
        let was_published = self.was_published;
        self.was_published |= is_published;
        if is_published != std::mem::replace(&mut self.is_published, is_published) {
            failure::warn(&match is_published {
                true if was_published => format!("topic `{topic}` has a publisher again"),
                true => format!("topic `{topic}` has a publisher"),
                false => format!("topic `{topic}` has no publisher that answers any more; waiting"),
            });
        }
    }
}
