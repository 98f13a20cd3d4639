//! iceoryx2: one service in each direction; frames are loaned, sent and received. Wake-ups use its event.
#![allow(unsafe_code, reason = "iceoryx2 has no safe way to send a frame that was not filled")]

use std::time::Instant;

use iceoryx2::port::listener::Listener;
use iceoryx2::port::notifier::Notifier;
use iceoryx2::port::publisher::Publisher;
use iceoryx2::port::subscriber::Subscriber;
use iceoryx2::prelude::*;

use super::endpoint::{Endpoint, Link, Peer};
use super::wake::{TIMEOUT, Waker};
use crate::Result;
use crate::run_dir;

/// The name of the subject.
pub(crate) const NAME: &str = "iceoryx2";

/// A node whose files are in the directory for temporary files, the default of iceoryx2.
pub(crate) fn node() -> Result<Node<ipc::Service>> {
    node_in(&run_dir::peers()?)
}

/// A node whose files are in this directory. The names of its segments contain the number of this run.
pub(crate) fn node_in(dir: &std::path::Path) -> Result<Node<ipc::Service>> {
    set_log_level(LogLevel::Fatal);
    let mut config = Config::default();
    let dir = dir.join("iceoryx2");
    let dir = dir.to_str().ok_or("the path is not UTF-8")?;
    config.global.set_root_path(&Path::new(dir.as_bytes())?);
    let prefix = format!("compare{}_", run_dir::id()?);
    config.global.prefix = FileName::new(prefix.as_bytes())?;
    Ok(NodeBuilder::new().config(&config).create::<ipc::Service>()?)
}

/// A service of slices for this many subscribers.
pub(crate) fn service(
    node: &Node<ipc::Service>,
    name: &str,
    subscribers: usize,
) -> Result<iceoryx2::service::port_factory::publish_subscribe::PortFactory<ipc::Service, [u64], ()>>
{
    let builder = node.service_builder(&name.try_into()?).publish_subscribe::<[u64]>();
    Ok(builder.max_publishers(1).max_subscribers(subscribers).open_or_create()?)
}

/// Sends a slice of words, of which only the first is written.
pub(crate) fn send(
    publisher: &Publisher<ipc::Service, [u64], ()>,
    words: usize,
    value: u64,
) -> Result<()> {
    let mut sample = publisher.loan_slice_uninit(words)?;
    sample.payload_mut()[0].write(value);
    // SAFETY: the words are in a shared memory file, whose bytes are all initialized, and any bytes are a valid u64.
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

/// Opens an endpoint for round trips.
pub(crate) fn open(link: Link) -> Result<Box<dyn Peer>> {
    Ok(Box::new(frames(link)?))
}

impl Endpoint for Frames {
    fn send(&mut self, value: u64) -> Result<()> {
        send(&self.to, self.words, value)
    }

    fn recv(&mut self) -> Result<Option<u64>> {
        Ok(self.from.receive()?.map(|sample| sample.payload()[0]))
    }
}

/// One event in each direction, without frames.
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

/// Opens an endpoint for wake-ups without a frame.
pub(crate) fn event_waker(link: Link) -> Result<Box<dyn Waker>> {
    Ok(Box::new(events(link, "event")?))
}

impl Waker for Events {
    fn wake(&mut self) -> Result<()> {
        self.to.notify()?;
        Ok(())
    }

    fn sleep(&mut self) -> Result<()> {
        let mut woken = false;
        let until = Instant::now() + TIMEOUT;
        // The wait may return without an event.
        while !woken {
            if Instant::now() > until {
                return Err("no wake-up arrived".into());
            }
            self.from.timed_wait(|_| woken = true, TIMEOUT)?;
        }
        Ok(())
    }
}

/// A frame, and an event that announces it.
struct Both(Frames, Events);

/// Opens an endpoint for wake-ups with a frame.
pub(crate) fn frame_waker(link: Link) -> Result<Box<dyn Waker>> {
    Ok(Box::new(Both(frames(link)?, events(link, "both")?)))
}

impl Waker for Both {
    fn wake(&mut self) -> Result<()> {
        self.0.send(1)?;
        self.1.wake()
    }

    fn sleep(&mut self) -> Result<()> {
        self.1.sleep()?;
        while self.0.recv()?.is_none() {}
        Ok(())
    }
}

/// Creates a publisher and a subscriber, sends a message if requested, and drops both.
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

/// A publisher without subscribers, for loans.
pub(crate) struct Loans {
    publisher: Publisher<ipc::Service, [u64], ()>,
    words: usize,
    _node: Node<ipc::Service>,
}

impl Loans {
    /// Opens a publisher for loans of this many bytes.
    pub(crate) fn new(bytes: usize) -> Result<Loans> {
        let (node, words) = (node()?, bytes / 8);
        let service = service(&node, &format!("loans.{bytes}"), 1)?;
        let publisher = service.publisher_builder().initial_max_slice_len(words).create()?;
        Ok(Loans { publisher, words, _node: node })
    }

    /// Loans a slice, and drops it without writing.
    pub(crate) fn loan_and_drop(&self) -> Result<()> {
        std::hint::black_box(self.publisher.loan_slice_uninit(self.words)?);
        Ok(())
    }

    /// Loans a slice, writes a word to every page, and drops it.
    pub(crate) fn loan_touch_and_drop(&self) -> Result<()> {
        let mut sample = self.publisher.loan_slice_uninit(self.words)?;
        sample.payload_mut().iter_mut().step_by(512).for_each(|word| _ = word.write(1));
        std::hint::black_box(sample);
        Ok(())
    }
}
