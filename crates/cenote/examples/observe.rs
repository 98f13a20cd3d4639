//! Observes a topic. Its publisher refuses to send faster than its subscribers receive, but an observer is not a
//! subscriber, so the publisher never waits for it.

use std::error::Error;
use std::{env, fs, process};

use cenote::{Content, Image, Observer, PixelFormat, Policy, Topic, TopicConfig};

fn main() -> Result<(), Box<dyn Error>> {
    if env::var_os("CENOTE_DIR").is_none() {
        return run_isolated();
    }
    let config = TopicConfig { depth: 2, policy: Policy::Reject, ..TopicConfig::default() };
    let camera: Topic<Image> = Topic::with_config("camera.rgb", config)?;
    camera.advertise()?;
    let mut observer = Observer::new("/camera/rgb")?;
    for number in 0..5_u8 {
        let mut frame = camera.image(64, 48, PixelFormat::Rgb8)?;
        frame.fill(&[number; 3])?;
        frame.set_seq(number.into());
        camera.send(&frame)?; // never refused: there is no subscriber
    }
    println!("the camera has {} subscribers", camera.stats().subscribers);
    while let Some(seen) = observer.look()? {
        let seq = seen.header.map(|header| header.seq);
        println!("observed {seen}, seq {seq:?}, of process {}", seen.pid);
    }
    println!("{} messages were overwritten before they were read", observer.missed());
    let newest = observer.newest()?.ok_or("nothing was sent")?;
    if let Some(Content::Image(frame)) = observer.content(&newest)? {
        println!("the first pixel of the newest message is {:?}", frame.pixel(0, 0)?);
    }
    Ok(())
}

/// Runs this program again with a temporary socket directory, which no other process uses.
fn run_isolated() -> Result<(), Box<dyn Error>> {
    let dir = env::temp_dir().join(format!("cenote-observe-{}", process::id()));
    fs::create_dir(&dir)?;
    let status = process::Command::new(env::current_exe()?).env("CENOTE_DIR", &dir).status()?;
    fs::remove_dir_all(&dir)?;
    status.success().then_some(()).ok_or_else(|| "the example failed".into())
}
