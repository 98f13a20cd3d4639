//! `cenote topic snap`

use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use cenote::{Content, DepthImage, Error, Observer, PointCloud};
use serde::Serialize;

use crate::argument;
use crate::commands::topic::presence;
use crate::failure::{Failure, Outcome};
use crate::files::{npy, ply, png};
use crate::output::unit;
use crate::output::{Output, Page, Report};

/// The time between two attempts to read the newest message.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// How long to wait for a message without `--timeout`, in seconds.
const DEFAULT_TIMEOUT: f64 = 5.0;

/// Save the newest message to a file: PNG, PLY or NPY
///
/// The extension selects the format. .png: images, and depth images in millimetres (0 if unknown, at most
/// 65.535 m). .ply: point clouds with coordinates and colours, and depth images with camera intrinsics. .npy: any
/// message, unchanged.
///
/// Example: cenote topic snap camera.rgb frame.png
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The topic: camera.rgb or /camera/rgb
    topic: String,

    /// The file to write; an existing file is replaced
    file: PathBuf,

    /// Wait this many seconds for a publisher and a message; without it, wait 5 s for a message, and fail if there
    /// is no publisher
    #[arg(short, long, value_parser = argument::seconds)]
    timeout: Option<f64>,
}

/// The format of a file, by its extension.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "lowercase")]
enum Format {
    Png,
    Ply,
    Npy,
}

impl Format {
    fn of(path: &Path) -> Outcome<Format> {
        let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or("");
        match extension.to_ascii_lowercase().as_str() {
            "png" => Ok(Format::Png),
            "ply" => Ok(Format::Ply),
            "npy" => Ok(Format::Npy),
            _ => Err(Failure::Invalid(format!(
                "{}: the file's extension is none of .png, .ply and .npy",
                path.display()
            ))),
        }
    }

    fn save(self, content: &Content, path: &Path) -> Outcome {
        match (self, content) {
            (Format::Png, Content::Image(image)) => png::save(image, path),
            (Format::Png, Content::Depth(depth)) => png::save_depth(depth, path),
            (Format::Ply, Content::Cloud(cloud)) => ply::save(cloud, path),
            (Format::Ply, Content::Depth(depth)) => ply::save(&points(depth, path)?, path),
            (Format::Npy, Content::Plain(bytes)) => npy::save_bytes(bytes, path),
            (Format::Npy, Content::Cloud(cloud)) => npy::save_cloud(cloud, path),
            (Format::Npy, other) => other.tensor().map_or(Ok(()), |tensor| npy::save(tensor, path)),
            _ => Err(Failure::Failed(format!(
                "{}: this format does not fit the type of the messages; .npy always works",
                path.display()
            ))),
        }
    }
}

/// The points of a depth image. Returns an error if it has no camera intrinsics.
fn points(depth: &DepthImage, path: &Path) -> Outcome<PointCloud> {
    depth.to_point_cloud().map_err(|error| match error {
        Error::NoIntrinsics => Failure::Failed(format!(
            "{}: the depth image has no camera intrinsics, so its points are unknown; save it as .png or .npy, \
             or set the intrinsics in its publisher",
            path.display()
        )),
        other => Failure::from(other).about(path),
    })
}

impl Args {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        let format = Format::of(&self.file)?;
        let name = presence::find(&self.topic, self.timeout)?.topic;
        let (sequence, content) = self.newest(&name)?;
        format.save(&content, &self.file)?;
        let bytes = std::fs::metadata(&self.file)?.len();
        let file = self.file.display().to_string();
        output.report(&Snap { topic: name, sequence, file, format, bytes })
    }

    /// Waits for a message that can be read, and returns a copy of the newest. A copy, because files may be slow,
    /// and the publisher needs its memory back.
    fn newest(&self, name: &str) -> Outcome<(u64, Content)> {
        let mut observer = Observer::new(name)?;
        let timeout = self.timeout.unwrap_or(DEFAULT_TIMEOUT);
        let text = format!("no message of `{name}` was available for {timeout} s");
        let mut failure = Failure::TimedOut(text);
        let start = Instant::now();
        while start.elapsed().as_secs_f64() < timeout {
            match try_newest(&mut observer) {
                Ok(Some(newest)) => return Ok(newest),
                Ok(None) => {}
                // The next message, or one of another publisher, may be readable.
                Err(error) => failure = error.into(),
            }
            thread::sleep(POLL_INTERVAL);
        }
        Err(failure)
    }
}

fn try_newest(observer: &mut Observer) -> cenote::Result<Option<(u64, Content)>> {
    let Some(seen) = observer.newest()? else { return Ok(None) };
    let Some(content) = observer.content(&seen)? else { return Ok(None) };
    Ok(Some((seen.sequence, content.copied_out()?)))
}

#[derive(Debug, Serialize)]
struct Snap {
    topic: String,
    sequence: u64,
    file: String,
    format: Format,
    bytes: u64,
}

impl Report for Snap {
    fn write(&self, page: &mut Page) {
        let Snap { topic, sequence, file, .. } = self;
        let bytes = unit::bytes(self.bytes);
        page.line(format!("saved message #{sequence} of {topic} to {file} ({bytes})"));
    }
}
