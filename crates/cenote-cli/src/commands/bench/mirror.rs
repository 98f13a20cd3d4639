//! Sends a frame back for each that it receives.

use cenote::{Image, PixelFormat, Topic};

use crate::failure::Outcome;
use crate::process::child::Parent;
use crate::test_pattern::Size;

pub(crate) fn run(parent: &Parent, size: Size) -> Outcome {
    let (there, back): (Topic<Image>, Topic<Image>) =
        (Topic::new("bench.there")?, Topic::new("bench.back")?);
    back.advertise()?;
    there.subscribe()?;
    // Checked after every poll: on a busy core, each yield takes milliseconds.
    while parent.is_connected() {
        match there.recv() {
            Some(frame) => {
                let mut reply = back.image(size.width, size.height, PixelFormat::Rgb8)?;
                reply.set_seq(frame.seq());
                back.send(&reply)?;
            }
            // The other process may need this core.
            None => std::thread::yield_now(),
        }
    }
    Ok(())
}
