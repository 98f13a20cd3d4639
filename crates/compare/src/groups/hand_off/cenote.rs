//! cenote: one topic in each direction.

use std::time::Duration;

use cenote::{DType, Image, Message, PixelFormat, Tensor, Topic, TopicConfig};

use super::endpoint::{Endpoint, Link, Peer, Side};
use super::wake::{TIMEOUT, Waker};
use crate::Result;

/// Frames of one size.
struct Frames {
    to: Topic<Tensor>,
    from: Topic<Tensor>,
    shape: [usize; 1],
    side: Side,
}

/// A topic on which this process does not receive its own messages.
fn topic<T: Message>(name: &str) -> Result<Topic<T>> {
    let config = TopicConfig { ignore_own: true, ..TopicConfig::default() };
    Ok(Topic::with_config(name, config)?)
}

fn frames(link: Link) -> Result<Frames> {
    let (to, from) = link.names();
    let (to, from) = (topic(&to)?, topic(&from)?);
    to.advertise()?;
    from.subscribe()?;
    Ok(Frames { to, from, shape: [link.words()], side: link.side })
}

/// Opens an endpoint for round trips.
pub(crate) fn open(link: Link) -> Result<Box<dyn Peer>> {
    Ok(Box::new(frames(link)?))
}

/// Opens an endpoint for wake-ups.
pub(crate) fn waker(link: Link) -> Result<Box<dyn Waker>> {
    Ok(Box::new(frames(link)?))
}

impl Endpoint for Frames {
    fn ready(&mut self) -> Result<()> {
        one_subscriber(&self.to)
    }

    fn send(&mut self, value: u64) -> Result<()> {
        let mut frame = self.to.alloc_tensor(&self.shape, DType::U64)?;
        frame.map_mut()?.as_mut_slice::<u64>()?[0] = value;
        Ok(self.to.send(&frame)?)
    }

    fn recv(&mut self) -> Result<Option<u64>> {
        Ok(self.from.recv().map(|frame| first_word(&frame)).transpose()?)
    }
}

/// Frames that are images.
struct Images {
    to: Topic<Image>,
    from: Topic<Image>,
    size: (usize, usize),
    format: PixelFormat,
}

/// Opens an endpoint for round trips of images.
pub(crate) fn open_images(link: Link) -> Result<Box<dyn Peer>> {
    let (to, from) = link.names();
    let (to, from) = (topic(&format!("{to}.image"))?, topic(&format!("{from}.image"))?);
    to.advertise()?;
    from.subscribe()?;
    let (size, format) = match link.bytes {
        crate::FRAME => ((1920, 1080), PixelFormat::Rgb8),
        bytes => ((64, bytes / 64), PixelFormat::Grey),
    };
    Ok(Box::new(Images { to, from, size, format }))
}

impl Endpoint for Images {
    fn ready(&mut self) -> Result<()> {
        one_subscriber(&self.to)
    }

    fn send(&mut self, value: u64) -> Result<()> {
        let mut image = self.to.image(self.size.0, self.size.1, self.format)?;
        image.map_mut()?.as_mut_slice::<u8>()?[..8].copy_from_slice(&value.to_ne_bytes());
        Ok(self.to.send(&image)?)
    }

    fn recv(&mut self) -> Result<Option<u64>> {
        let Some(image) = self.from.recv() else { return Ok(None) };
        let first = image.map()?.as_slice::<u8>()?.first_chunk().copied();
        Ok(Some(u64::from_ne_bytes(first.ok_or("the image is too small")?)))
    }
}

fn one_subscriber<T: Message>(topic: &Topic<T>) -> Result<()> {
    match topic.wait_for_subscribers(1, Duration::from_secs(10))? {
        1 => Ok(()),
        _ => Err("the other process did not subscribe".into()),
    }
}

fn first_word(frame: &Tensor) -> cenote::Result<u64> {
    Ok(frame.map()?.as_slice::<u64>()?[0])
}

impl Waker for Frames {
    fn ready(&mut self) -> Result<()> {
        match self.side {
            Side::Parent => Endpoint::ready(self),
            Side::Helper => Ok(()),
        }
    }

    fn wake(&mut self) -> Result<()> {
        self.send(1)
    }

    fn sleep(&mut self) -> Result<()> {
        let frame = self.from.recv_timeout(TIMEOUT)?.ok_or("no wake-up arrived")?;
        first_word(&frame)?;
        Ok(())
    }
}
