//! cenote: a topic each way.

use std::time::Duration;

use cenote::{DType, Image, Message, PixelFormat, Tensor, Topic, TopicConfig};

use super::ends::{Ends, Link, Peer, Side};
use super::wake::{Bell, PATIENCE};
use crate::Result;

/// Frames of one size.
struct Frames {
    to: Topic<Tensor>,
    from: Topic<Tensor>,
    shape: [usize; 1],
    side: Side,
}

/// Nobody hears what this process says itself.
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

/// For round trips.
pub(crate) fn open(link: Link) -> Result<Box<dyn Peer>> {
    Ok(Box::new(frames(link)?))
}

/// For waking up.
pub(crate) fn bell(link: Link) -> Result<Box<dyn Bell>> {
    Ok(Box::new(frames(link)?))
}

impl Ends for Frames {
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

/// The same as images.
struct Images {
    to: Topic<Image>,
    from: Topic<Image>,
    size: (usize, usize),
    format: PixelFormat,
}

/// For round trips of images.
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

impl Ends for Images {
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
        Ok(Some(u64::from_ne_bytes(first.ok_or("a small image")?)))
    }
}

fn one_subscriber<T: Message>(topic: &Topic<T>) -> Result<()> {
    match topic.wait_for_subscribers(1, Duration::from_secs(10))? {
        1 => Ok(()),
        _ => Err("nobody subscribed".into()),
    }
}

fn first_word(frame: &Tensor) -> cenote::Result<u64> {
    Ok(frame.map()?.as_slice::<u64>()?[0])
}

impl Bell for Frames {
    fn ready(&mut self) -> Result<()> {
        match self.side {
            Side::Here => Ends::ready(self),
            Side::There => Ok(()),
        }
    }

    fn ring(&mut self) -> Result<()> {
        self.send(1)
    }

    fn wait(&mut self) -> Result<()> {
        let frame = self.from.recv_timeout(PATIENCE)?.ok_or("nobody woke us")?;
        first_word(&frame)?;
        Ok(())
    }
}
