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
use crate::files::npy;
use crate::output::{Output, Page, Report};
use crate::pattern;
use crate::topic::watching;

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
/// Messages are stamped with the time since the machine was started, and numbered.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The topic, as in camera.rgb or /camera/rgb
    topic: String,

    /// A .png or .npy file; without it, a moving test pattern
    file: Option<PathBuf>,

    /// What an array is sent as
    #[arg(long = "as", value_enum, default_value_t = Kind::Tensor)]
    kind: Kind,

    /// The size of the test pattern
    #[arg(long, default_value = "640x480")]
    size: pattern::Size,

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
    let rate: f64 = given.parse().map_err(|_| "not a number".to_owned())?;
    match (0.001..=1e6).contains(&rate) {
        true => Ok(rate),
        false => Err("it must be from 0.001 to 1000000".to_owned()),
    }
}

impl Args {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        let stats = match &self.file {
            None => self.send_pattern()?,
            Some(path) if has_extension(path, "png") => self.send_picture(path)?,
            Some(path) if has_extension(path, "npy") => self.send_array(&npy::load(path)?)?,
            Some(path) => {
                let text = format!("{}: it ends in none of .png and .npy", path.display());
                return Err(Failure::Failed(text));
            }
        };
        let copied = stats.copies.iter().map(|copies| copies.bytes).sum();
        let (sent, subscribers) = (stats.sent, stats.subscribers);
        output.report(&Published { topic: self.topic.clone(), sent, subscribers, copied })
    }

    fn send_pattern(&self) -> Outcome<TopicStats> {
        let topic: Topic<Image> = Topic::new(&self.topic)?;
        self.send(&topic, |number| {
            let pattern::Size { width, height } = self.size;
            let mut image = topic.image(width, height, PixelFormat::Rgb8)?;
            pattern::draw(&mut image, number)?;
            stamp!(image, number)
        })
    }

    fn send_picture(&self, path: &Path) -> Outcome<TopicStats> {
        let picture = Image::load_png(path)?;
        let topic: Topic<Image> = Topic::new(&self.topic)?;
        self.send(&topic, |number| {
            let mut image = topic.image(picture.width(), picture.height(), picture.format())?;
            image.copy_from(&picture)?;
            stamp!(image, number)
        })
    }

    fn send_array(&self, array: &npy::Array) -> Outcome<TopicStats> {
        match self.kind {
            Kind::Tensor => {
                let topic: Topic<Tensor> = Topic::new(&self.topic)?;
                self.send(&topic, |_| {
                    array.copy_into(topic.alloc_tensor(&array.shape, array.dtype)?)
                })
            }
            Kind::Depth => {
                let topic: Topic<DepthImage> = Topic::new(&self.topic)?;
                self.send(&topic, |number| {
                    let tensor = topic.pool()?.alloc(&array.shape, array.dtype)?;
                    let mut depth = DepthImage::from_tensor(array.copy_into(tensor)?)?;
                    stamp!(depth, number)
                })
            }
            Kind::Cloud => {
                let topic: Topic<PointCloud> = Topic::new(&self.topic)?;
                self.send(&topic, |number| {
                    let tensor = topic.pool()?.alloc(&array.shape, array.dtype)?;
                    let mut cloud = PointCloud::from_tensor(array.copy_into(tensor)?)?;
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
        topic.advertise()?;
        self.wait_for_subscribers(topic)?;
        let (start, period) = (Instant::now(), Duration::from_secs_f64(1.0 / self.rate));
        for number in 0..self.count.unwrap_or(u64::MAX) {
            let due = period.saturating_mul(u32::try_from(number).unwrap_or(u32::MAX));
            thread::sleep(due.saturating_sub(start.elapsed()));
            topic.send(&make(number)?)?;
        }
        Ok(topic.stats())
    }

    fn wait_for_subscribers<T: Message>(&self, topic: &Topic<T>) -> Outcome {
        let patience = Duration::from_secs_f64(self.timeout);
        let came = topic.wait_for_subscribers(self.wait, patience)?;
        match came < self.wait {
            true => {
                let (wait, timeout) = (self.wait, self.timeout);
                Err(Failure::Silence(format!("{came} of {wait} subscribers came in {timeout} s")))
            }
            false => Ok(()),
        }
    }
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
