//! `cenote topic echo`

use std::thread;
use std::time::{Duration, Instant};

use cenote::{Content, Observer, Sighting};
use serde::Serialize;

use crate::failure::{self, Failure, Outcome};
use crate::files::values::{self, Shown};
use crate::output::{Output, Page, Report};
use crate::topic::{kind, watching};

/// So many values are read at once.
const BRIEF: usize = 4096;

/// How long to sleep between two looks.
const NAP: Duration = Duration::from_millis(1);

/// What is sent, message by message
///
/// With --values the first elements are shown, too, those of structs and of mixed points by name. For that
/// each message is leased while it is read, one at a time; without, none is. In JSON, what is no number there
/// is text: "NaN", "Infinity", "-Infinity".
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The topic, as in camera.rgb or /camera/rgb
    topic: String,

    /// End after so many messages; without it, go on until interrupted
    #[arg(short, long, value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,

    /// Give up if nothing comes for so many seconds; without it, that nobody publishes is an error
    #[arg(short, long, value_parser = watching::seconds)]
    timeout: Option<f64>,

    /// Show so many elements of each message, as in --values=8; 16, if it is not said how many
    // With an equals sign, so that a topic that follows is not taken for their number.
    #[arg(short, long, value_name = "COUNT", default_value_t = 0, hide_default_value = true)]
    #[arg(default_missing_value = "16", num_args = 0..=1, require_equals = true)]
    values: usize,
}

impl Args {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        // It looks before it is known whether anybody publishes, so that it misses nothing of who comes.
        let observer = Observer::new(&self.topic);
        let mut presence = watching::find(&self.topic, self.timeout)?;
        let (mut observer, name) = (observer?, presence.topic.clone());
        let mut garbled = Garbled::default();
        let mut left = self.count;
        let mut last = Instant::now();
        while left != Some(0) {
            let seen = match observer.look() {
                Ok(Some(seen)) => seen,
                nothing => {
                    // One who sends nonsense hides no other.
                    garbled.note(nothing.err().map(Failure::from));
                    presence.note(observer.publishers());
                    self.check_patience(&name, last)?;
                    thread::sleep(NAP);
                    continue;
                }
            };
            output.one_of_many(&self.read(&observer, &seen, &mut garbled))?;
            left = left.map(|left| left - 1);
            last = Instant::now();
        }
        Ok(())
    }

    fn check_patience(&self, name: &str, last: Instant) -> Outcome {
        match self.timeout {
            Some(timeout) if last.elapsed().as_secs_f64() > timeout => {
                Err(Failure::Silence(format!("nothing was sent on `{name}` for {timeout} s")))
            }
            _ => Ok(()),
        }
    }

    /// A message, without its values if they cannot be had.
    fn read(&self, observer: &Observer, seen: &Sighting, garbled: &mut Garbled) -> Echo {
        let mut echo = Echo::new(seen);
        if self.values > 0 {
            match self.values(observer, seen) {
                Ok(values) => echo.values = values,
                Err(failure) => garbled.note(Some(failure)),
            }
        }
        echo
    }

    /// The first values; `None` if they are gone.
    fn values(&self, observer: &Observer, seen: &Sighting) -> Outcome<Option<Vec<Shown>>> {
        let Some(content) = observer.content(seen)? else { return Ok(None) };
        // Many take their time to read, for which nobody is to wait.
        let content = if self.values > BRIEF { content.copied_out()? } else { content };
        first(&seen.carries, &content, self.values).map(Some)
    }
}

/// What could not be read. It is told once.
#[derive(Debug, Default)]
struct Garbled(bool);

impl Garbled {
    fn note(&mut self, failure: Option<Failure>) {
        if let Some(failure) = failure.filter(|_| !std::mem::replace(&mut self.0, true)) {
            failure::say(&format!("some messages cannot be read: {failure}"));
        }
    }
}

fn first(carries: &str, content: &Content, count: usize) -> Outcome<Vec<Shown>> {
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
    /// The first of them; none if they were not asked for, gone already, or not to be had.
    #[serde(skip_serializing_if = "Option::is_none")]
    values: Option<Vec<Shown>>,
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
        let mut line = format!("#{} {}", self.sequence, kind::brief(&self.carries));
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
            let values: Vec<String> = values.iter().map(Shown::to_string).collect();
            page.aside(&format!("  {}", values.join(" ")));
        }
    }
}
