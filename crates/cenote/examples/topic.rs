//! A camera in one process, a viewer in another, and a topic between them: no pixel is copied.
//!
//! Without an argument it starts both. Or start them yourself, in two terminals and in any order, with
//! the argument `camera` or `viewer`.

use std::process::Command;
use std::time::Duration;
use std::{env, error::Error, fs, process};

use cenote::{Image, PixelFormat, Topic};

const FRAMES: u8 = 10; // fewer than a topic keeps, so that a slow viewer misses none
const PATIENCE: Duration = Duration::from_secs(60);

fn main() -> Result<(), Box<dyn Error>> {
    match env::args().nth(1).as_deref() {
        Some("camera") => camera(),
        Some("viewer") => viewer(),
        _ => both(),
    }
}

fn camera() -> Result<(), Box<dyn Error>> {
    let topic: Topic<Image> = Topic::new("camera.rgb")?;
    let viewers = topic.wait_for_subscribers(1, PATIENCE)?;
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
        let frame = topic.recv_timeout(PATIENCE)?.ok_or("no frame came")?;
        assert_eq!((frame.width(), frame.height(), frame.seq()), (1920, 1080, shade.into()));
        assert_eq!(frame.pixel_as::<[u8; 3]>(1919, 1079)?, [shade; 3]);
        println!("viewer: frame {} of {:?}", frame.seq(), frame.tensor().shape());
    }
    assert_eq!((topic.missed(), cenote::copies().iter().map(|copies| copies.bytes).sum()), (0, 0));
    Ok(())
}

/// Starts both, where they meet nobody else.
fn both() -> Result<(), Box<dyn Error>> {
    let dir = env::temp_dir().join(format!("cenote-example-{}", process::id()));
    fs::create_dir(&dir)?;
    let program = env::current_exe()?;
    let start = |role| Command::new(&program).arg(role).env("CENOTE_DIR", &dir).spawn();
    let (mut viewer, mut camera) = (start("viewer")?, start("camera")?);
    let fine = camera.wait()?.success() & viewer.wait()?.success();
    fs::remove_dir_all(&dir)?;
    fine.then_some(()).ok_or_else(|| "one of them failed".into())
}
