//! `cenote topic pub`

use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use cenote::{
    DType, DepthImage, Image, Message, PixelFormat, PointCloud, Tensor, Topic, TopicStats,
};
use clap::ValueEnum;
use serde::Serialize;

use crate::argument;
use crate::failure::{Failure, Outcome};
use crate::files::{npy, png};
use crate::measure::clock;
use crate::output::{Output, Page, Report};
use crate::process::interrupt::Interrupt;
use crate::test_pattern;

/// The time between two checks for an interrupt.
const INTERRUPT_CHECK: Duration = Duration::from_millis(50);

/// Sets the sequence number and the time stamp of a message.
macro_rules! stamp {
    ($message:ident, $number:expr) => {{
        $message.set_seq($number);
        $message.set_stamp_ns(clock::now_ns());
        Ok($message)
    }};
}

/// Publish a PNG or NPY file, or a moving test pattern
///
/// Messages other than tensors have a sequence number and a stamp of the monotonic clock. Ctrl-C ends it, with exit
/// code 0.
///
/// Example: cenote topic pub test.rgb --size 1080p --rate 60
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The topic: camera.rgb or /camera/rgb
    topic: String,

    /// A .png or .npy file; a moving test pattern if omitted
    file: Option<PathBuf>,

    /// The message type for a .npy file [default: tensor]
    #[arg(long = "as", value_enum, requires = "file")]
    kind: Option<Kind>,

    /// The size of the test pattern: WIDTHxHEIGHT, 480p, 720p, 1080p or 4k [default: 640x480]
    #[arg(long, conflicts_with = "file")]
    size: Option<test_pattern::Size>,

    /// Messages per second
    #[arg(short, long, default_value_t = 30.0, value_parser = rate)]
    rate: f64,

    /// Stop after this many messages; without it, run until interrupted
    #[arg(short, long, value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,

    /// Wait for this many subscribers before the first message
    #[arg(short, long, default_value_t = 0)]
    wait: usize,

    /// Seconds to wait for those subscribers
    #[arg(short, long, default_value_t = 10.0, value_parser = argument::seconds)]
    timeout: f64,
}

/// The message type that an array is sent as.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Kind {
    Tensor,
    Depth,
    Cloud,
}

fn rate(given: &str) -> Result<f64, String> {
    argument::number_within(0.001..=1e6, given)
}

impl Args {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        let stats = match &self.file {
            None => self.send_pattern()?,
            Some(path) if has_extension(path, "png") => self.send_picture(path)?,
            Some(path) if has_extension(path, "npy") => self.send_array(path)?,
            Some(path) => {
                let text =
                    format!("{}: the file's extension is none of .png and .npy", path.display());
                return Err(Failure::Invalid(text));
            }
        };
        let copied = stats.copies.iter().map(|copies| copies.bytes).sum();
        let (sent, subscribers) = (stats.sent, stats.subscribers);
        output.report(&Published { topic: self.topic.clone(), sent, subscribers, copied })
    }

    fn send_pattern(&self) -> Outcome<TopicStats> {
        let topic: Topic<Image> = Topic::new(&self.topic)?;
        self.send(&topic, |number| {
            let test_pattern::Size { width, height } = self.size.unwrap_or(test_pattern::VGA);
            let mut image = topic.image(width, height, PixelFormat::Rgb8)?;
            test_pattern::draw(&mut image, number)?;
            stamp!(image, number)
        })
    }

    fn send_picture(&self, path: &Path) -> Outcome<TopicStats> {
        if self.kind.is_some() {
            let text = format!(
                "{}: --as is for .npy files; a .png file is always sent as an image",
                path.display()
            );
            return Err(Failure::Invalid(text));
        }
        let picture = png::load(path)?;
        let topic: Topic<Image> = Topic::new(&self.topic)?;
        self.send(&topic, |number| {
            let mut image = topic.image(picture.width(), picture.height(), picture.format())?;
            image.copy_from(&picture)?;
            stamp!(image, number)
        })
    }

    fn send_array(&self, path: &Path) -> Outcome<TopicStats> {
        let array = npy::load(path)?;
        let about = |failure: Failure| failure.about(path);
        match self.kind.unwrap_or(Kind::Tensor) {
            Kind::Tensor => {
                let topic: Topic<Tensor> = Topic::new(&self.topic)?;
                let make = || array.copy_into(topic.alloc_tensor(&array.shape, array.dtype)?);
                self.send(&topic, |_| make().map_err(about))
            }
            Kind::Depth => {
                let topic: Topic<DepthImage> = Topic::new(&self.topic)?;
                let make = || {
                    let tensor = topic.pool()?.alloc(&array.shape, array.dtype)?;
                    Ok(DepthImage::from_tensor(array.copy_into(tensor)?)?)
                };
                self.send(&topic, |number| {
                    let mut depth = make().map_err(about)?;
                    stamp!(depth, number)
                })
            }
            Kind::Cloud => {
                let topic: Topic<PointCloud> = Topic::new(&self.topic)?;
                let make = || {
                    let tensor = topic.pool()?.alloc(&array.shape, array.dtype)?;
                    Ok(PointCloud::from_tensor(array.copy_into(tensor)?)?)
                };
                self.send(&topic, |number| {
                    let mut cloud = make().map_err(about)?;
                    stamp!(cloud, number)
                })
            }
        }
    }

    /// Sends messages at the given rate until there are enough, or a signal arrives.
    fn send<T: Message>(
        &self,
        topic: &Topic<T>,
        make: impl Fn(u64) -> Outcome<T>,
    ) -> Outcome<TopicStats> {
        let interrupt = Interrupt::register_without_hang_up()?;
        topic.advertise()?;
        let ready = self.wait_for_subscribers(topic, &interrupt)?;
        let count = if ready { self.count.unwrap_or(u64::MAX) } else { 0 };
        let start = Instant::now();
        for number in 0..count {
            if !sleep_until(start, self.due(number), &interrupt) {
                break;
            }
            topic.send(&make(number)?)?;
        }
        Ok(topic.stats())
    }

    /// The time at which to send a message, after the first.
    #[allow(clippy::cast_precision_loss, reason = "at this rate 2^52 messages take centuries")]
    fn due(&self, number: u64) -> Duration {
        Duration::try_from_secs_f64(number as f64 / self.rate).unwrap_or(Duration::MAX)
    }

    /// Waits for subscribers. Returns false if a signal arrived, and an error if the timeout passed.
    fn wait_for_subscribers<T: Message>(
        &self,
        topic: &Topic<T>,
        interrupt: &Interrupt,
    ) -> Outcome<bool> {
        let (start, timeout) = (Instant::now(), Duration::from_secs_f64(self.timeout));
        loop {
            let left = timeout.saturating_sub(start.elapsed());
            let connected = topic.wait_for_subscribers(self.wait, left.min(INTERRUPT_CHECK))?;
            if interrupt.arrived() || connected >= self.wait {
                return Ok(!interrupt.arrived());
            }
            if left.is_zero() {
                let (wait, timeout) = (self.wait, self.timeout);
                let text =
                    format!("{connected} of {wait} subscribers connected within {timeout} s");
                return Err(Failure::TimedOut(text));
            }
        }
    }
}

/// Sleeps until a time after the start. Returns false if a signal arrived.
fn sleep_until(start: Instant, due: Duration, interrupt: &Interrupt) -> bool {
    while let Some(left) = due.checked_sub(start.elapsed()).filter(|left| !left.is_zero()) {
        if interrupt.arrived() {
            return false;
        }
        thread::sleep(left.min(INTERRUPT_CHECK));
    }
    !interrupt.arrived()
}

fn has_extension(path: &Path, wanted: &str) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case(wanted))
}

impl npy::Array {
    /// Copies the elements into a tensor of the same shape and dtype.
    fn copy_into(&self, mut tensor: Tensor) -> Outcome<Tensor> {
        tensor.map_mut()?.as_mut_bytes()?.copy_from_slice(&self.bytes);
        if self.dtype == DType::Bool {
            let mut map = tensor.map_mut()?;
            map.as_mut_bytes()?.iter_mut().for_each(|byte| *byte = u8::from(*byte != 0));
        }
        Ok(tensor)
    }
}

#[derive(Debug, Serialize)]
struct Published {
    topic: String,
    sent: u64,
    subscribers: usize,
    #[serde(rename = "bytes_copied")]
    copied: u64,
}

impl Report for Published {
    fn write(&self, page: &mut Page) {
        let Published { topic, sent, subscribers, copied } = self;
        page.line(format!(
            "sent {sent} messages on {topic} to {subscribers} subscribers; {copied} bytes were \
             copied before sending"
        ));
    }
}
