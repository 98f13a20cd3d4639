//! iceoryx2: a service each way, frames loaned, sent and received; for waking up, its event.
#![allow(unsafe_code, reason = "iceoryx2 has no other way to send what was not filled")]

use std::time::Instant;

use iceoryx2::port::listener::Listener;
use iceoryx2::port::notifier::Notifier;
use iceoryx2::port::publisher::Publisher;
use iceoryx2::port::subscriber::Subscriber;
use iceoryx2::prelude::*;

use super::ends::{Ends, Link, Peer};
use super::wake::{Bell, PATIENCE};
use crate::Result;
use crate::run;

/// What it is called.
pub(crate) const WHO: &str = "iceoryx2";

/// Its files are where it keeps them unless it is told otherwise, under a name of this run.
pub(crate) fn node() -> Result<Node<ipc::Service>> {
    node_in(&run::peers()?)
}

/// The same, with its files in this directory. Segments are under names of this run, too.
pub(crate) fn node_in(dir: &std::path::Path) -> Result<Node<ipc::Service>> {
    set_log_level(LogLevel::Fatal);
    let mut config = Config::default();
    let dir = dir.join("iceoryx2");
    let dir = dir.to_str().ok_or("a path that is no text")?;
    config.global.set_root_path(&Path::new(dir.as_bytes())?);
    let prefix = format!("compare{}_", run::id()?);
    config.global.prefix = FileName::new(prefix.as_bytes())?;
    Ok(NodeBuilder::new().config(&config).create::<ipc::Service>()?)
}

/// A service of slices for so many subscribers.
pub(crate) fn service(
    node: &Node<ipc::Service>,
    name: &str,
    subscribers: usize,
) -> Result<iceoryx2::service::port_factory::publish_subscribe::PortFactory<ipc::Service, [u64], ()>>
{
    let builder = node.service_builder(&name.try_into()?).publish_subscribe::<[u64]>();
    Ok(builder.max_publishers(1).max_subscribers(subscribers).open_or_create()?)
}

/// Sends a slice of so many words, of which the first is written.
pub(crate) fn send(
    publisher: &Publisher<ipc::Service, [u64], ()>,
    words: usize,
    value: u64,
) -> Result<()> {
    let mut sample = publisher.loan_slice_uninit(words)?;
    sample.payload_mut()[0].write(value);
    // SAFETY: the words are in a shared memory file, which has bytes everywhere, and any are a u64.
    unsafe { sample.assume_init() }.send()?;
    Ok(())
}

struct Frames {
    to: Publisher<ipc::Service, [u64], ()>,
    from: Subscriber<ipc::Service, [u64], ()>,
    words: usize,
    _node: Node<ipc::Service>,
}

fn frames(link: Link) -> Result<Frames> {
    let node = node()?;
    let (to, from) = link.names();
    let words = link.words();
    let to = service(&node, &to, 1)?.publisher_builder().initial_max_slice_len(words).create()?;
    let from = service(&node, &from, 1)?.subscriber_builder().create()?;
    Ok(Frames { to, from, words, _node: node })
}

/// For round trips.
pub(crate) fn open(link: Link) -> Result<Box<dyn Peer>> {
    Ok(Box::new(frames(link)?))
}

impl Ends for Frames {
    fn send(&mut self, value: u64) -> Result<()> {
        send(&self.to, self.words, value)
    }

    fn recv(&mut self) -> Result<Option<u64>> {
        Ok(self.from.receive()?.map(|sample| sample.payload()[0]))
    }
}

/// An event each way, and nothing else.
struct Events {
    to: Notifier<ipc::Service>,
    from: Listener<ipc::Service>,
    _node: Node<ipc::Service>,
}

fn events(link: Link, kind: &str) -> Result<Events> {
    let node = node()?;
    let event = |name: &str| -> Result<_> {
        Ok(node
            .service_builder(&format!("{name}.{kind}").as_str().try_into()?)
            .event()
            .open_or_create()?)
    };
    let (to, from) = link.names();
    let to = event(&to)?.notifier_builder().create()?;
    let from = event(&from)?.listener_builder().create()?;
    Ok(Events { to, from, _node: node })
}

/// For waking up, without a message.
pub(crate) fn event_bell(link: Link) -> Result<Box<dyn Bell>> {
    Ok(Box::new(events(link, "event")?))
}

impl Bell for Events {
    fn ring(&mut self) -> Result<()> {
        self.to.notify()?;
        Ok(())
    }

    fn wait(&mut self) -> Result<()> {
        let mut rung = false;
        let until = Instant::now() + PATIENCE;
        // It may wake up for nothing.
        while !rung {
            if Instant::now() > until {
                return Err("nobody woke us".into());
            }
            self.from.timed_wait(|_| rung = true, PATIENCE)?;
        }
        Ok(())
    }
}

/// A frame, and an event that tells of it.
struct Both(Frames, Events);

/// For waking up with a frame.
pub(crate) fn frame_bell(link: Link) -> Result<Box<dyn Bell>> {
    Ok(Box::new(Both(frames(link)?, events(link, "both")?)))
}

impl Bell for Both {
    fn ring(&mut self) -> Result<()> {
        self.0.send(1)?;
        self.1.ring()
    }

    fn wait(&mut self) -> Result<()> {
        self.1.wait()?;
        while self.0.recv()?.is_none() {}
        Ok(())
    }
}

/// A publisher and a subscriber, made, perhaps used once, and dropped.
pub(crate) fn set_up(node: &Node<ipc::Service>, message: bool) -> Result<()> {
    let service = service(node, "set-up", 1)?;
    let publisher = service.publisher_builder().initial_max_slice_len(8).create()?;
    let subscriber = service.subscriber_builder().create()?;
    if message {
        send(&publisher, 8, 1)?;
        while subscriber.receive()?.is_none() {}
    }
    Ok(())
}

/// A publisher that nobody listens to, for loans.
pub(crate) struct Loans {
    publisher: Publisher<ipc::Service, [u64], ()>,
    words: usize,
    _node: Node<ipc::Service>,
}

impl Loans {
    /// Of so many bytes.
    pub(crate) fn new(bytes: usize) -> Result<Loans> {
        let (node, words) = (node()?, bytes / 8);
        let service = service(&node, &format!("loans.{bytes}"), 1)?;
        let publisher = service.publisher_builder().initial_max_slice_len(words).create()?;
        Ok(Loans { publisher, words, _node: node })
    }

    /// Nothing is written.
    pub(crate) fn loan_and_drop(&self) -> Result<()> {
        std::hint::black_box(self.publisher.loan_slice_uninit(self.words)?);
        Ok(())
    }

    /// A word in every page is written.
    pub(crate) fn loan_touch_and_drop(&self) -> Result<()> {
        let mut sample = self.publisher.loan_slice_uninit(self.words)?;
        sample.payload_mut().iter_mut().step_by(512).for_each(|word| _ = word.write(1));
        std::hint::black_box(sample);
        Ok(())
    }
}
