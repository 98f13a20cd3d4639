//! `cenote topic echo`

mod layout;
mod shown_value;
mod values;

use std::thread;
use std::time::{Duration, Instant};

use cenote::{Content, Observer, Sighting};
use serde::Serialize;

use crate::failure::{self, Failure, Outcome};
use crate::output::{Output, Page, Report};

use crate::argument;
use crate::commands::topic::{presence, type_name};
use shown_value::ShownValue;

/// Up to this many values are read while the message is leased. More are read from a copy.
const MAX_LEASED_VALUES: usize = 4096;

/// The time between two polls of the ring.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Print the messages of a topic
///
/// --values also prints the first elements of each message. Structs, and points whose fields have several types,
/// are printed with field names. The command leases one message at a time to read its elements; without --values
/// it leases none. JSON has no NaN or infinity: they become the strings "NaN", "Infinity" and "-Infinity".
///
/// Example: cenote topic echo camera.rgb --values=8
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The topic: camera.rgb or /camera/rgb
    topic: String,

    /// Stop after this many messages; without it, run until interrupted
    #[arg(short, long, value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,

    /// Fail if nothing arrives for this many seconds; without it, a topic without a publisher is an error
    #[arg(short, long, value_parser = argument::seconds)]
    timeout: Option<f64>,

    /// Print this many elements of each message, as in --values=8; 16 without a number
    // The equals sign is required, so that a topic that follows is not parsed as the number.
    #[arg(short, long, value_name = "COUNT", default_value_t = 0, hide_default_value = true)]
    #[arg(default_missing_value = "16", num_args = 0..=1, require_equals = true)]
    values: usize,
}

impl Args {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        // Observes before it checks for a publisher, so that it misses nothing of one that comes in between.
        let observer = Observer::new(&self.topic);
        let mut presence = presence::find(&self.topic, self.timeout)?;
        let (mut observer, name) = (observer?, presence.topic.clone());
        let mut unreadable = Unreadable::default();
        let mut left = self.count;
        let mut last = Instant::now();
        while left != Some(0) {
            let seen = match observer.look() {
                Ok(Some(seen)) => seen,
                nothing => {
                    // An invalid message of one publisher must not hide the others.
                    unreadable.warn_once(nothing.err().map(Failure::from));
                    presence.update(observer.publishers());
                    self.check_timeout(&name, last)?;
                    thread::sleep(POLL_INTERVAL);
                    continue;
                }
            };
            output.report_line(&self.read(&observer, &seen, &mut unreadable))?;
            left = left.map(|left| left - 1);
            last = Instant::now();
        }
        Ok(())
    }

    fn check_timeout(&self, name: &str, last: Instant) -> Outcome {
        match self.timeout {
            Some(timeout) if last.elapsed().as_secs_f64() > timeout => {
                Err(Failure::TimedOut(format!("nothing was sent on `{name}` for {timeout} s")))
            }
            _ => Ok(()),
        }
    }

    /// Describes a message, without its values if they cannot be read.
    fn read(&self, observer: &Observer, seen: &Sighting, unreadable: &mut Unreadable) -> Echo {
        let mut echo = Echo::new(seen);
        if self.values > 0 {
            match self.values(observer, seen) {
                Ok(values) => echo.values = values,
                Err(failure) => unreadable.warn_once(Some(failure)),
            }
        }
        echo
    }

    /// The first values; `None` if the publisher has dropped the message already.
    fn values(&self, observer: &Observer, seen: &Sighting) -> Outcome<Option<Vec<ShownValue>>> {
        let Some(content) = observer.content(seen)? else { return Ok(None) };
        // Reading many values takes long, and the publisher needs its memory back.
        let content = if self.values > MAX_LEASED_VALUES { content.copied_out()? } else { content };
        first(&seen.carries, &content, self.values).map(Some)
    }
}

/// Whether the warning of unreadable messages was printed.
#[derive(Debug, Default)]
struct Unreadable(bool);

impl Unreadable {
    fn warn_once(&mut self, failure: Option<Failure>) {
        if let Some(failure) = failure.filter(|_| !std::mem::replace(&mut self.0, true)) {
            failure::warn(&format!("some messages cannot be read: {failure}"));
        }
    }
}

fn first(carries: &str, content: &Content, count: usize) -> Outcome<Vec<ShownValue>> {
    match (content, content.tensor()) {
        (Content::Plain(bytes), _) => Ok(values::plain(carries, bytes, count)),
        (Content::Cloud(cloud), _) => values::points(cloud, count),
        (_, Some(tensor)) => values::first(tensor, count),
        _ => Ok(Vec::new()),
    }
}

#[derive(Debug, Serialize)]
struct Echo {
    sequence: u64,
    pid: i32,
    #[serde(rename = "type")]
    carries: String,
    dtype: Option<String>,
    shape: Vec<usize>,
    format: Option<String>,
    bytes: usize,
    stamp_ns: Option<u64>,
    seq: Option<u64>,
    frame_id: Option<String>,
    /// The first values; `None` if they were not requested, or could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    values: Option<Vec<ShownValue>>,
}

impl Echo {
    fn new(seen: &Sighting) -> Echo {
        let header = seen.header.as_ref();
        Echo {
            sequence: seen.sequence,
            pid: seen.pid,
            carries: seen.carries.clone(),
            dtype: seen.dtype.map(|dtype| dtype.to_string()),
            shape: seen.shape.clone(),
            format: seen.format.map(|format| format.to_string()),
            bytes: seen.nbytes,
            stamp_ns: header.map(|header| header.stamp_ns),
            seq: header.map(|header| header.seq),
            frame_id: header.map(|header| header.frame_id().to_owned()),
            values: None,
        }
    }
}

impl Report for Echo {
    fn write(&self, page: &mut Page) {
        let mut line = format!("#{} {}", self.sequence, type_name::short(&self.carries));
        if let Some(dtype) = &self.dtype {
            line += &format!(" {dtype} {:?}", self.shape);
        }
        if let Some(format) = &self.format {
            line += &format!(" {format}");
        }
        line += &format!(", {} bytes", self.bytes);
        if let (Some(stamp), Some(seq)) = (self.stamp_ns, self.seq) {
            line += &format!(", seq {seq}, stamp {stamp}");
        }
        if let Some(frame) = self.frame_id.as_ref().filter(|frame| !frame.is_empty()) {
            line += &format!(", frame {frame}");
        }
        page.line(line);
        if let Some(values) = &self.values {
            let values: Vec<String> = values.iter().map(ShownValue::to_string).collect();
            page.aside(&format!("  {}", values.join(" ")));
        }
    }
}
