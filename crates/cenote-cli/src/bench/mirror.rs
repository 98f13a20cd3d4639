//! Sends a frame back for each that comes.

use cenote::{Image, PixelFormat, Topic};

use crate::children::Parent;
use crate::failure::Outcome;
use crate::pattern::Size;

pub(crate) fn run(parent: &Parent, size: Size) -> Outcome {
    let (there, back): (Topic<Image>, Topic<Image>) =
        (Topic::new("bench.there")?, Topic::new("bench.back")?);
    back.advertise()?;
    there.subscribe()?;
    // Looked at each time: where others want this core, each yield takes milliseconds.
    while parent.wants_more() {
        match there.recv() {
            Some(frame) => {
                let mut answer = back.image(size.width, size.height, PixelFormat::Rgb8)?;
                answer.set_seq(frame.seq());
                back.send(&answer)?;
            }
            // The other one may need this very core.
            None => std::thread::yield_now(),
        }
    }
    Ok(())
}
