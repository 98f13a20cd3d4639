//! A publisher with several subscribers in other processes: what each subscriber that does not receive costs the
//! publisher, and how long it takes until the last of several sleeping subscribers has received a frame.

use std::thread;
use std::time::Duration;

use cenote::{DType, Tensor, Topic, TopicConfig};

use crate::measure::helper::{Helper, Order, SpinWait, Task};
use crate::measure::rounds::{Schedule, Subject, interleave, time_each};
use crate::measure::series::{Series, Take};
use crate::measure::shared_page::{SharedPage, clock};
use crate::{Failure, Result};

/// The name of the group.
pub(crate) const GROUP: &str = "fan-out";

/// The numbers of subscribers.
const COUNTS: [u8; 3] = [1, 2, 4];

/// The interval at which a sleeping subscriber checks for a new order.
const CHECK_INTERVAL: Duration = Duration::from_millis(5);

/// A publisher of one library.
trait Sender {
    /// Sends a frame without waking subscribers.
    fn publish(&self, value: u64) -> Result<()>;

    /// Sends a frame, and wakes all subscribers.
    fn publish_and_wake(&self, value: u64) -> Result<()>;
}

/// A subscriber of one library.
trait Receiver {
    /// Sleeps until a frame arrives, at most for [`CHECK_INTERVAL`]. Returns its first word.
    fn recv(&mut self) -> Result<Option<u64>>;
}

type OpenSender = fn(u8) -> Result<Box<dyn Sender>>;
type OpenReceiver = fn(u8) -> Result<Box<dyn Receiver>>;

const PEERS: &[(&str, OpenSender, OpenReceiver)] = &[
    ("cenote", |count| Ok(Box::new(publisher(count)?)), |count| Ok(Box::new(subscriber(count)?))),
    #[cfg(feature = "peers")]
    ("iceoryx2", iceoryx2::sender, iceoryx2::receiver),
];

/// Measures the group.
pub(crate) fn run(schedule: Schedule) -> Result<Vec<Series>> {
    let schedule =
        Schedule { warm_up: schedule.long_warm_up(Duration::from_millis(300)), ..schedule };
    let mut all = Vec::new();
    for count in COUNTS {
        let mut helpers = sleeping_subscribers(count)?;
        let senders = PEERS.iter().map(|(_, open, _)| open(count)).collect::<Result<Vec<_>>>()?;
        all.extend(send_cost(schedule, count, &senders)?);
        all.extend(delivery_time(schedule, &senders, &mut helpers)?);
    }
    Ok(all)
}

/// The cost of a send if no subscriber receives.
fn send_cost(schedule: Schedule, count: u8, senders: &[Box<dyn Sender>]) -> Result<Vec<Series>> {
    let peers = PEERS.iter().zip(senders);
    let subjects =
        peers.map(|((who, ..), sender)| Subject::new(who, || sender.publish(1))).collect();
    interleave(schedule, GROUP, &format!("send 1080p to {count}, not received"), subjects)
}

/// The time until the last sleeping subscriber has received the frame.
fn delivery_time(
    schedule: Schedule,
    senders: &[Box<dyn Sender>],
    helpers: &mut [Helper],
) -> Result<Vec<Series>> {
    let work = format!("send 1080p to {} sleeping, until the last receives it", helpers.len());
    let mut all: Vec<Series> =
        PEERS.iter().map(|(who, ..)| Series::new(GROUP, &work, who)).collect();
    for round in 0..schedule.rounds {
        for ((who, sender), series) in (0..).zip(senders).zip(&mut all) {
            order(helpers, Task::Wake, who)?;
            let samples = time_each(schedule.take, |value| {
                let began = clock();
                sender.publish_and_wake(value)?;
                let last = helpers.iter_mut().try_fold(0, |last, helper| {
                    let (page, wait) = helper.page_and_wait();
                    Ok::<u64, Failure>(arrival(page, wait, value)?.max(last))
                })?;
                Ok(last.saturating_sub(began) as f64)
            })?;
            order(helpers, Task::Close, who)?;
            series.takes.push(Take { round, floors: None, samples });
        }
    }
    Ok(all)
}

/// Waits until the subscriber has received this value. Returns when that was.
fn arrival(page: &SharedPage, mut wait: SpinWait<'_>, value: u64) -> Result<u64> {
    loop {
        match page.arrived(value) {
            Some(at) => return Ok(at),
            None => wait.spin()?,
        }
    }
}

/// Gives all helpers an order, and waits until they have started it.
fn order(helpers: &mut [Helper], task: Task, who: u8) -> Result<()> {
    let words: Vec<u64> = helpers.iter_mut().map(|helper| helper.announce(task, who, 0)).collect();
    helpers.iter_mut().zip(words).try_for_each(|(helper, word)| helper.await_started(word))
}

/// Starts processes that subscribe, and receive nothing until they are ordered to.
pub(crate) fn sleeping_subscribers(count: u8) -> Result<Vec<Helper>> {
    let subscriber = |_| {
        let mut helper = Helper::start(GROUP)?;
        helper.order(Task::Subscribe, 0, count)?;
        Ok(helper)
    };
    (0..count).map(subscriber).collect()
}

fn topic(count: u8) -> Result<Topic<Tensor>> {
    let config = TopicConfig { ignore_own: true, ..TopicConfig::default() };
    Ok(Topic::with_config(&format!("fan.{count}"), config)?)
}

/// A publisher that is connected to this many subscribers.
pub(crate) fn publisher(count: u8) -> Result<Topic<Tensor>> {
    let topic = topic(count)?;
    topic.advertise()?;
    let found = topic.wait_for_subscribers(count.into(), Duration::from_secs(10))?;
    if found < count.into() { Err("not all subscribers connected".into()) } else { Ok(topic) }
}

fn subscriber(count: u8) -> Result<Topic<Tensor>> {
    let topic = topic(count)?;
    topic.subscribe()?;
    Ok(topic)
}

/// Allocates a frame, writes its first word, and sends it.
pub(crate) fn send(topic: &Topic<Tensor>, value: u64) -> Result<()> {
    let mut frame = topic.alloc_tensor(&[crate::FRAME / 8], DType::U64)?;
    frame.map_mut()?.as_mut_slice::<u64>()?[0] = value;
    Ok(topic.send(&frame)?)
}

impl Sender for Topic<Tensor> {
    fn publish(&self, value: u64) -> Result<()> {
        send(self, value)
    }

    fn publish_and_wake(&self, value: u64) -> Result<()> {
        send(self, value)
    }
}

impl Receiver for Topic<Tensor> {
    fn recv(&mut self) -> Result<Option<u64>> {
        let Some(frame) = self.recv_timeout(CHECK_INTERVAL)? else { return Ok(None) };
        Ok(Some(frame.map()?.as_slice::<u64>()?[0]))
    }
}

/// Runs the helper process: a subscriber.
pub(crate) fn run_helper(page: &SharedPage) -> Result<()> {
    let mut receivers = Vec::new();
    loop {
        let word = page.order();
        let Order { task, who, size, .. } = Order::from_word(word);
        match task {
            Task::Quit => return Ok(()),
            Task::Wake => {
                let receiver: &mut Box<dyn Receiver> =
                    receivers.get_mut(usize::from(who)).ok_or("not subscribed")?;
                page.set_started(word);
                serve(receiver.as_mut(), page, word)?;
            }
            Task::Subscribe => {
                for (.., open) in PEERS {
                    receivers.push(open(size)?);
                }
                sleep(page, word);
            }
            _ => sleep(page, word),
        }
    }
}

fn serve(receiver: &mut dyn Receiver, page: &SharedPage, order: u64) -> Result<()> {
    while page.order() == order {
        if let Some(value) = receiver.recv()? {
            page.set_arrived(value, clock());
        }
    }
    Ok(())
}

fn sleep(page: &SharedPage, order: u64) {
    page.set_started(order);
    while page.order() == order {
        thread::sleep(CHECK_INTERVAL);
    }
}

#[cfg(feature = "peers")]
mod iceoryx2 {
    use iceoryx2::port::listener::Listener;
    use iceoryx2::port::notifier::Notifier;
    use iceoryx2::port::publisher::Publisher;
    use iceoryx2::port::subscriber::Subscriber;
    use iceoryx2::prelude::*;

    use super::{CHECK_INTERVAL, Receiver, Sender};
    use crate::Result;
    use crate::groups::hand_off::iceoryx2::{node, send, service};

    struct IceoryxSender {
        frames: Publisher<ipc::Service, [u64], ()>,
        event: Notifier<ipc::Service>,
        _node: Node<ipc::Service>,
    }

    struct IceoryxReceiver {
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
        Ok(Box::new(IceoryxSender { frames, event, _node: node }))
    }

    pub(super) fn receiver(count: u8) -> Result<Box<dyn Receiver>> {
        let node = node()?;
        let service = service(&node, &name(count), count.into())?;
        let frames = service.subscriber_builder().create()?;
        let event =
            node.service_builder(&name(count).as_str().try_into()?).event().open_or_create()?;
        let event = event.listener_builder().create()?;
        Ok(Box::new(IceoryxReceiver { frames, event, _node: node }))
    }

    impl Sender for IceoryxSender {
        fn publish(&self, value: u64) -> Result<()> {
            send(&self.frames, crate::FRAME / 8, value)
        }

        fn publish_and_wake(&self, value: u64) -> Result<()> {
            self.publish(value)?;
            self.event.notify()?;
            Ok(())
        }
    }

    impl Receiver for IceoryxReceiver {
        fn recv(&mut self) -> Result<Option<u64>> {
            self.event.timed_wait(|_| {}, CHECK_INTERVAL)?;
            // Returns the newest frame, and skips the frames before it.
            let mut newest = None;
            while let Some(sample) = self.frames.receive()? {
                newest = Some(sample.payload()[0]);
            }
            Ok(newest)
        }
    }
}
