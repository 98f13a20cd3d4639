//! Looking at a topic without taking part: its publisher refuses to outrun its subscribers, and knows
//! nothing of who looks.

use std::error::Error;
use std::{env, fs, process};

use cenote::{Content, Image, Observer, PixelFormat, Policy, Topic, TopicConfig};

fn main() -> Result<(), Box<dyn Error>> {
    if env::var_os("CENOTE_DIR").is_none() {
        return alone();
    }
    let config = TopicConfig { depth: 2, policy: Policy::Reject, ..TopicConfig::default() };
    let camera: Topic<Image> = Topic::with_config("camera.rgb", config)?;
    camera.advertise()?;
    let mut observer = Observer::new("/camera/rgb")?;
    for number in 0..5_u8 {
        let mut frame = camera.image(64, 48, PixelFormat::Rgb8)?;
        frame.fill(&[number; 3])?;
        frame.set_seq(number.into());
        camera.send(&frame)?; // never refused
    }
    println!("{} subscribers, so says the camera", camera.stats().subscribers);
    while let Some(seen) = observer.look()? {
        let seq = seen.header.map(|header| header.seq);
        println!("saw {seen}, seq {seq:?}, of process {}", seen.pid);
    }
    println!("{} were gone before they were looked at", observer.missed());
    let newest = observer.newest()?.ok_or("nothing was sent")?;
    if let Some(Content::Image(frame)) = observer.content(&newest)? {
        println!("the newest has pixels {:?}", frame.pixel(0, 0)?);
    }
    Ok(())
}

/// Runs it where it meets nobody else.
fn alone() -> Result<(), Box<dyn Error>> {
    let dir = env::temp_dir().join(format!("cenote-observe-{}", process::id()));
    fs::create_dir(&dir)?;
    let status = process::Command::new(env::current_exe()?).env("CENOTE_DIR", &dir).status()?;
    fs::remove_dir_all(&dir)?;
    status.success().then_some(()).ok_or_else(|| "it failed".into())
}
