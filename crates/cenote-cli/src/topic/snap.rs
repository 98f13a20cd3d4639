//! `cenote topic snap`

use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use cenote::{Content, DepthImage, Error, Observer, PointCloud};
use serde::Serialize;

use crate::failure::{Failure, Outcome};
use crate::files::{npy, picture, ply};
use crate::output::{Output, Page, Report};
use crate::topic::watching;
use crate::unit;

/// How long to sleep between two looks.
const NAP: Duration = Duration::from_millis(1);

/// How long to wait, in seconds, if nothing is said.
const PATIENCE: f64 = 5.0;

/// Writes the newest message to a file: PNG, PLY or NPY
///
/// The name of the file says which: .png for images and depth images (in millimetres up to 65.5 m; what is
/// farther is cut, what is no distance is 0), .ply for point clouds (x, y, z as floats, and colours) and depth
/// images that know their camera, .npy for everything as it is.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The topic, as in camera.rgb or /camera/rgb
    topic: String,

    /// The file to write, which is overwritten
    file: PathBuf,

    /// Give up if there is nothing for so many seconds; without it, after 5, or at once if nobody publishes
    #[arg(short, long, value_parser = watching::seconds)]
    timeout: Option<f64>,
}

/// The formats.
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
            _ => Err(Failure::Nonsense(format!(
                "{}: the file's name ends in none of .png, .ply and .npy",
                path.display()
            ))),
        }
    }

    fn save(self, content: &Content, path: &Path) -> Outcome {
        match (self, content) {
            (Format::Png, Content::Image(image)) => picture::save(image, path),
            (Format::Png, Content::Depth(depth)) => picture::save_depth(depth, path),
            (Format::Ply, Content::Cloud(cloud)) => ply::save(cloud, path),
            (Format::Ply, Content::Depth(depth)) => ply::save(&points(depth, path)?, path),
            (Format::Npy, Content::Plain(bytes)) => npy::save_bytes(bytes, path),
            (Format::Npy, Content::Cloud(cloud)) => npy::save_cloud(cloud, path),
            (Format::Npy, other) => other.tensor().map_or(Ok(()), |tensor| npy::save(tensor, path)),
            _ => Err(Failure::Failed(format!(
                "{}: what is sent is not of that kind; .npy always works",
                path.display()
            ))),
        }
    }
}

/// The points of a depth image, which only one has that tells of its camera.
fn points(depth: &DepthImage, path: &Path) -> Outcome<PointCloud> {
    depth.to_point_cloud().map_err(|error| match error {
        Error::NoIntrinsics => Failure::Failed(format!(
            "{}: what is sent has no intrinsics of its camera, so no points can be had; save it as .png \
             or .npy, or have its publisher set them",
            path.display()
        )),
        other => Failure::from(other).about(path),
    })
}

impl Args {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        let format = Format::of(&self.file)?;
        let name = watching::find(&self.topic, self.timeout)?.topic;
        let (sequence, content) = self.newest(&name)?;
        format.save(&content, &self.file)?;
        let bytes = std::fs::metadata(&self.file)?.len();
        let file = self.file.display().to_string();
        output.report(&Snap { topic: name, sequence, file, format, bytes })
    }

    /// The newest message, as soon as there is one that can be had. It is copied out: files may be slow,
    /// and nobody is to wait for the memory.
    fn newest(&self, name: &str) -> Outcome<(u64, Content)> {
        let mut observer = Observer::new(name)?;
        let timeout = self.timeout.unwrap_or(PATIENCE);
        let text = format!("nothing was to be had of `{name}` for {timeout} s");
        let mut why_not = Failure::Silence(text);
        let start = Instant::now();
        while start.elapsed().as_secs_f64() < timeout {
            match try_newest(&mut observer) {
                Ok(Some(newest)) => return Ok(newest),
                Ok(None) => {}
                // The next, or another's, may make sense.
                Err(error) => why_not = error.into(),
            }
            thread::sleep(NAP);
        }
        Err(why_not)
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
        page.line(format!("message #{sequence} of {topic} is in {file} ({bytes})"));
    }
}
