//! `cenote topic pub`

use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use cenote::{
    DType, DepthImage, Image, Message, PixelFormat, PointCloud, Tensor, Topic, TopicStats,
};
use clap::ValueEnum;
use serde::Serialize;

use crate::clock;
use crate::failure::{Failure, Outcome};
use crate::files::{npy, picture};
use crate::interrupt::Interrupt;
use crate::output::{Output, Page, Report};
use crate::pattern;
use crate::topic::watching;
use crate::unit;

/// How long to sleep before it is looked whether somebody has interrupted it.
const NAP: Duration = Duration::from_millis(50);

/// Says when a message was made, and which one it is.
macro_rules! stamp {
    ($message:ident, $number:expr) => {{
        $message.set_seq($number);
        $message.set_stamp_ns(clock::now_ns());
        Ok($message)
    }};
}
/// Sends a PNG or NPY file, or a moving test pattern
///
/// Messages are stamped with the time since the machine was started, and numbered. Ctrl-C ends it in good
/// order.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The topic, as in camera.rgb or /camera/rgb
    topic: String,

    /// A .png or .npy file; without it, a moving test pattern
    file: Option<PathBuf>,

    /// What the array of a .npy file is sent as: a tensor, if nothing is said
    #[arg(long = "as", value_enum, requires = "file")]
    kind: Option<Kind>,

    /// The size of the test pattern: 640x480, if nothing is said
    #[arg(long, conflicts_with = "file")]
    size: Option<pattern::Size>,

    /// Messages a second
    #[arg(short, long, default_value_t = 30.0, value_parser = rate)]
    rate: f64,

    /// End after so many messages; without it, go on until interrupted
    #[arg(short, long, value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,

    /// Begin when there are so many subscribers
    #[arg(short, long, default_value_t = 0)]
    wait: usize,

    /// Give up if they do not come for so many seconds
    #[arg(short, long, default_value_t = 10.0, value_parser = watching::seconds)]
    timeout: f64,
}

/// What an array is sent as.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Kind {
    Tensor,
    Depth,
    Cloud,
}

fn rate(given: &str) -> Result<f64, String> {
    unit::within(0.001..=1e6, given)
}

impl Args {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        let stats = match &self.file {
            None => self.send_pattern()?,
            Some(path) if has_extension(path, "png") => self.send_picture(path)?,
            Some(path) if has_extension(path, "npy") => self.send_array(path)?,
            Some(path) => {
                let text = format!("{}: it ends in none of .png and .npy", path.display());
                return Err(Failure::Nonsense(text));
            }
        };
        let copied = stats.copies.iter().map(|copies| copies.bytes).sum();
        let (sent, subscribers) = (stats.sent, stats.subscribers);
        output.report(&Published { topic: self.topic.clone(), sent, subscribers, copied })
    }

    fn send_pattern(&self) -> Outcome<TopicStats> {
        let topic: Topic<Image> = Topic::new(&self.topic)?;
        self.send(&topic, |number| {
            let pattern::Size { width, height } = self.size.unwrap_or(pattern::VGA);
            let mut image = topic.image(width, height, PixelFormat::Rgb8)?;
            pattern::draw(&mut image, number)?;
            stamp!(image, number)
        })
    }

    fn send_picture(&self, path: &Path) -> Outcome<TopicStats> {
        if self.kind.is_some() {
            let text = format!("{}: --as is for .npy files; a picture is an image", path.display());
            return Err(Failure::Nonsense(text));
        }
        let picture = picture::load(path)?;
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

    /// Sends message after message, each at its time.
    fn send<T: Message>(
        &self,
        topic: &Topic<T>,
        make: impl Fn(u64) -> Outcome<T>,
    ) -> Outcome<TopicStats> {
        let interrupt = Interrupt::listen_without_terminal()?;
        topic.advertise()?;
        let came = self.wait_for_subscribers(topic, &interrupt)?;
        let count = if came { self.count.unwrap_or(u64::MAX) } else { 0 };
        let start = Instant::now();
        for number in 0..count {
            if !sleep_until(start, self.due(number), &interrupt) {
                break;
            }
            topic.send(&make(number)?)?;
        }
        Ok(topic.stats())
    }

    /// When a message is to be sent, from the first.
    #[allow(clippy::cast_precision_loss, reason = "at this rate 2^52 messages take centuries")]
    fn due(&self, number: u64) -> Duration {
        Duration::try_from_secs_f64(number as f64 / self.rate).unwrap_or(Duration::MAX)
    }

    /// Whether they came, and nobody has interrupted it.
    fn wait_for_subscribers<T: Message>(
        &self,
        topic: &Topic<T>,
        interrupt: &Interrupt,
    ) -> Outcome<bool> {
        let (start, patience) = (Instant::now(), Duration::from_secs_f64(self.timeout));
        loop {
            let left = patience.saturating_sub(start.elapsed());
            let came = topic.wait_for_subscribers(self.wait, left.min(NAP))?;
            if interrupt.came() || came >= self.wait {
                return Ok(!interrupt.came());
            }
            if left.is_zero() {
                let (wait, timeout) = (self.wait, self.timeout);
                let text = format!("{came} of {wait} subscribers came in {timeout} s");
                return Err(Failure::Silence(text));
            }
        }
    }
}

/// Sleeps until so long after the start; whether nobody has interrupted it.
fn sleep_until(start: Instant, due: Duration, interrupt: &Interrupt) -> bool {
    while let Some(left) = due.checked_sub(start.elapsed()).filter(|left| !left.is_zero()) {
        if interrupt.came() {
            return false;
        }
        thread::sleep(left.min(NAP));
    }
    !interrupt.came()
}

fn has_extension(path: &Path, wanted: &str) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case(wanted))
}

impl npy::Array {
    /// Puts the elements into a tensor of the same shape and dtype.
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
             copied because they had to be"
        ));
    }
}
