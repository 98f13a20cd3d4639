//! A camera in one process sends images to a viewer in another over a topic; no pixel is copied.
//!
//! Without an argument, the program starts both. With the argument `camera` or `viewer` it runs one of them: start them in
//! two terminals, in any order.

use std::process::Command;
use std::time::Duration;
use std::{env, error::Error, fs, process};

use cenote::{Image, PixelFormat, Topic};

const FRAMES: u8 = 10; // fewer than the topic queues, so that a slow viewer misses none
const TIMEOUT: Duration = Duration::from_secs(60);

fn main() -> Result<(), Box<dyn Error>> {
    match env::args().nth(1).as_deref() {
        Some("camera") => camera(),
        Some("viewer") => viewer(),
        _ => run_both(),
    }
}

fn camera() -> Result<(), Box<dyn Error>> {
    let topic: Topic<Image> = Topic::new("camera.rgb")?;
    let viewers = topic.wait_for_subscribers(1, TIMEOUT)?;
    println!("camera: {viewers} viewer");
    for shade in 0..FRAMES {
        let mut frame = topic.image(1920, 1080, PixelFormat::Rgb8)?;
        frame.fill(&[shade; 3])?;
        frame.set_seq(shade.into());
        topic.send(&frame)?;
    }
    assert!(topic.stats().copies.is_empty(), "a frame was copied");
    Ok(())
}

fn viewer() -> Result<(), Box<dyn Error>> {
    let topic: Topic<Image> = Topic::new("camera.rgb")?;
    for shade in 0..FRAMES {
        let frame = topic.recv_timeout(TIMEOUT)?.ok_or("no frame arrived")?;
        assert_eq!((frame.width(), frame.height(), frame.seq()), (1920, 1080, shade.into()));
        assert_eq!(frame.pixel_as::<[u8; 3]>(1919, 1079)?, [shade; 3]);
        println!("viewer: frame {} of {:?}", frame.seq(), frame.tensor().shape());
    }
    assert_eq!((topic.missed(), cenote::copies().iter().map(|copies| copies.bytes).sum()), (0, 0));
    Ok(())
}

/// Starts both with a temporary socket directory, which no other process uses.
fn run_both() -> Result<(), Box<dyn Error>> {
    let dir = env::temp_dir().join(format!("cenote-example-{}", process::id()));
    fs::create_dir(&dir)?;
    let program = env::current_exe()?;
    let start = |role| Command::new(&program).arg(role).env("CENOTE_DIR", &dir).spawn();
    let (mut viewer, mut camera) = (start("viewer")?, start("camera")?);
    let succeeded = camera.wait()?.success() & viewer.wait()?.success();
    fs::remove_dir_all(&dir)?;
    succeeded.then_some(()).ok_or_else(|| "the camera or the viewer failed".into())
}
