//! The example of the README, unchanged.

use cenote::{Image, PixelFormat, Topic};

fn main() -> cenote::Result<()> {
    let viewer: Topic<Image> = Topic::new("camera.rgb")?; // in any process
    viewer.subscribe()?;

    let camera: Topic<Image> = Topic::new("camera.rgb")?; // in any other
    let mut frame = camera.image(1920, 1080, PixelFormat::Rgb8)?;
    frame.fill(&[255, 0, 0])?;
    camera.send(&frame)?; // no pixel is copied

    let frame = viewer.wait()?; // or: for frame in viewer.iter()
    println!("{} x {}: {:?}", frame.width(), frame.height(), frame.pixel(0, 0)?);
    Ok(())
}
