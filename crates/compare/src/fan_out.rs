//! A publisher with several subscribers in other processes: what each more of them costs the publisher
//! when they take nothing, and how long it takes until the last of them was woken and has the frame.

use std::thread;
use std::time::Duration;

use cenote::{DType, Tensor, Topic, TopicConfig};

use crate::other::{Order, Other, Task, Wait};
use crate::pace::{Pace, Subject, interleave, repeat};
use crate::page::{Page, clock};
use crate::series::{Series, Take};
use crate::{Failure, Result};

/// What it is called.
pub(crate) const GROUP: &str = "fan-out";

const COUNTS: [u8; 3] = [1, 2, 4];

/// How often those who wait look whether there is another order.
const LOOK: Duration = Duration::from_millis(5);

/// One who sends frames to those who subscribed.
trait Sender {
    /// Without waking anybody.
    fn publish(&self, value: u64) -> Result<()>;

    /// And wakes everybody.
    fn deliver(&self, value: u64) -> Result<()>;
}

/// One who subscribed.
trait Receiver {
    /// Sleeps until there is a frame, but not for long.
    fn recv(&mut self) -> Result<Option<u64>>;
}

type OpenSender = fn(u8) -> Result<Box<dyn Sender>>;
type OpenReceiver = fn(u8) -> Result<Box<dyn Receiver>>;

const PEERS: &[(&str, OpenSender, OpenReceiver)] = &[
    ("cenote", |count| Ok(Box::new(publisher(count)?)), |count| Ok(Box::new(subscriber(count)?))),
    #[cfg(feature = "peers")]
    ("iceoryx2", theirs::sender, theirs::receiver),
];

/// All of it.
pub(crate) fn run(pace: Pace) -> Result<Vec<Series>> {
    let pace = Pace { warm_up: pace.touched(Duration::from_millis(300)), ..pace };
    let mut all = Vec::new();
    for count in COUNTS {
        let mut others = sleepers(count)?;
        let senders = PEERS.iter().map(|(_, open, _)| open(count)).collect::<Result<Vec<_>>>()?;
        all.extend(published(pace, count, &senders)?);
        all.extend(delivered(pace, &senders, &mut others)?);
    }
    Ok(all)
}

fn published(pace: Pace, count: u8, senders: &[Box<dyn Sender>]) -> Result<Vec<Series>> {
    let peers = PEERS.iter().zip(senders);
    let subjects =
        peers.map(|((who, ..), sender)| Subject::new(who, || sender.publish(1))).collect();
    interleave(pace, GROUP, &format!("send 1080p to {count}, nobody takes it"), subjects)
}

fn delivered(pace: Pace, senders: &[Box<dyn Sender>], others: &mut [Other]) -> Result<Vec<Series>> {
    let work = format!("1080p to {}, asleep, until the last has it", others.len());
    let mut all: Vec<Series> =
        PEERS.iter().map(|(who, ..)| Series::new(GROUP, &work, who)).collect();
    for round in 0..pace.rounds {
        for ((who, sender), series) in (0..).zip(senders).zip(&mut all) {
            order(others, Task::Wake, who)?;
            let samples = repeat(pace.take, |value| {
                let began = clock();
                sender.deliver(value)?;
                let last = others.iter_mut().try_fold(0, |last, other| {
                    let (page, wait) = other.watch();
                    Ok::<u64, Failure>(arrival(page, wait, value)?.max(last))
                })?;
                Ok(last.saturating_sub(began) as f64)
            })?;
            order(others, Task::Close, who)?;
            series.takes.push(Take { round, floors: None, samples });
        }
    }
    Ok(all)
}

fn arrival(page: &Page, mut wait: Wait<'_>, value: u64) -> Result<u64> {
    loop {
        match page.arrived(value) {
            Some(at) => return Ok(at),
            None => wait.spin()?,
        }
    }
}

fn order(others: &mut [Other], task: Task, who: u8) -> Result<()> {
    let words: Vec<u64> = others.iter_mut().map(|other| other.announce(task, who, 0)).collect();
    others.iter_mut().zip(words).try_for_each(|(other, word)| other.await_seen(word))
}

/// Processes that have subscribed and take nothing.
pub(crate) fn sleepers(count: u8) -> Result<Vec<Other>> {
    let sleeper = |_| {
        let mut other = Other::start(GROUP)?;
        other.order(Task::Join, 0, count)?;
        Ok(other)
    };
    (0..count).map(sleeper).collect()
}

fn topic(count: u8) -> Result<Topic<Tensor>> {
    let config = TopicConfig { ignore_own: true, ..TopicConfig::default() };
    Ok(Topic::with_config(&format!("fan.{count}"), config)?)
}

/// A publisher for as many sleepers as there are.
pub(crate) fn publisher(count: u8) -> Result<Topic<Tensor>> {
    let topic = topic(count)?;
    topic.advertise()?;
    let found = topic.wait_for_subscribers(count.into(), Duration::from_secs(10))?;
    if found < count.into() { Err("not everybody subscribed".into()) } else { Ok(topic) }
}

fn subscriber(count: u8) -> Result<Topic<Tensor>> {
    let topic = topic(count)?;
    topic.subscribe()?;
    Ok(topic)
}

/// A fresh frame.
pub(crate) fn send(topic: &Topic<Tensor>, value: u64) -> Result<()> {
    let mut frame = topic.alloc_tensor(&[crate::FRAME / 8], DType::U64)?;
    frame.map_mut()?.as_mut_slice::<u64>()?[0] = value;
    Ok(topic.send(&frame)?)
}

impl Sender for Topic<Tensor> {
    fn publish(&self, value: u64) -> Result<()> {
        send(self, value)
    }

    fn deliver(&self, value: u64) -> Result<()> {
        send(self, value)
    }
}

impl Receiver for Topic<Tensor> {
    fn recv(&mut self) -> Result<Option<u64>> {
        let Some(frame) = self.recv_timeout(LOOK)? else { return Ok(None) };
        Ok(Some(frame.map()?.as_slice::<u64>()?[0]))
    }
}

/// What a subscriber does.
pub(crate) fn other(page: &Page) -> Result<()> {
    let mut receivers = Vec::new();
    loop {
        let word = page.order();
        let Order { task, who, size, .. } = Order::from_word(word);
        match task {
            Task::Quit => return Ok(()),
            Task::Wake => {
                let receiver: &mut Box<dyn Receiver> =
                    receivers.get_mut(usize::from(who)).ok_or("nobody joined")?;
                page.set_seen(word);
                serve(receiver.as_mut(), page, word)?;
            }
            Task::Join => {
                for (.., open) in PEERS {
                    receivers.push(open(size)?);
                }
                sleep(page, word);
            }
            _ => sleep(page, word),
        }
    }
}

fn serve(receiver: &mut dyn Receiver, page: &Page, order: u64) -> Result<()> {
    while page.order() == order {
        if let Some(value) = receiver.recv()? {
            page.set_arrived(value, clock());
        }
    }
    Ok(())
}

fn sleep(page: &Page, order: u64) {
    page.set_seen(order);
    while page.order() == order {
        thread::sleep(LOOK);
    }
}

#[cfg(feature = "peers")]
mod theirs {
    use iceoryx2::port::listener::Listener;
    use iceoryx2::port::notifier::Notifier;
    use iceoryx2::port::publisher::Publisher;
    use iceoryx2::port::subscriber::Subscriber;
    use iceoryx2::prelude::*;

    use super::{LOOK, Receiver, Sender};
    use crate::Result;
    use crate::hand_off::iceoryx2::{node, send, service};

    struct Sends {
        frames: Publisher<ipc::Service, [u64], ()>,
        event: Notifier<ipc::Service>,
        _node: Node<ipc::Service>,
    }

    struct Receives {
        frames: Subscriber<ipc::Service, [u64], ()>,
        event: Listener<ipc::Service>,
        _node: Node<ipc::Service>,
    }

    fn name(count: u8) -> String {
        format!("fan.{count}")
    }

    pub(super) fn sender(count: u8) -> Result<Box<dyn Sender>> {
        let node = node()?;
        let service = service(&node, &name(count), count.into())?;
        let frames =
            service.publisher_builder().initial_max_slice_len(crate::FRAME / 8).create()?;
        let event =
            node.service_builder(&name(count).as_str().try_into()?).event().open_or_create()?;
        let event = event.notifier_builder().create()?;
        Ok(Box::new(Sends { frames, event, _node: node }))
    }

    pub(super) fn receiver(count: u8) -> Result<Box<dyn Receiver>> {
        let node = node()?;
        let service = service(&node, &name(count), count.into())?;
        let frames = service.subscriber_builder().create()?;
        let event =
            node.service_builder(&name(count).as_str().try_into()?).event().open_or_create()?;
        let event = event.listener_builder().create()?;
        Ok(Box::new(Receives { frames, event, _node: node }))
    }

    impl Sender for Sends {
        fn publish(&self, value: u64) -> Result<()> {
            send(&self.frames, crate::FRAME / 8, value)
        }

        fn deliver(&self, value: u64) -> Result<()> {
            self.publish(value)?;
            self.event.notify()?;
            Ok(())
        }
    }

    impl Receiver for Receives {
        fn recv(&mut self) -> Result<Option<u64>> {
            self.event.timed_wait(|_| {}, LOOK)?;
            // The newest: what came while nobody looked has been counted.
            let mut newest = None;
            while let Some(sample) = self.frames.receive()? {
                newest = Some(sample.payload()[0]);
            }
            Ok(newest)
        }
    }
}
