//! A publisher with several subscribers in other processes, which push nothing back: what each
//! more of them costs the publisher.

use std::thread;
use std::time::Duration;

use cenote::{DType, Tensor, Topic, TopicConfig};

use crate::Result;
use crate::other::{Order, Other, Task};
use crate::pace::{Pace, Subject, interleave};
use crate::page::Page;
use crate::series::Series;

/// What it is called.
pub(crate) const GROUP: &str = "fan-out";

const COUNTS: [u8; 3] = [1, 2, 4];

/// All of it.
pub(crate) fn run(pace: Pace) -> Result<Vec<Series>> {
    // Until every slot that will be used has been.
    let pace = Pace { warm_up: Duration::from_millis(300), ..pace };
    let mut all = Vec::new();
    for count in COUNTS {
        let work = format!("1080p to {count}");
        let others = sleepers(count)?;
        let topic = publisher(count)?;
        let mut subjects = vec![Subject::new("cenote", move || send(&topic))];
        #[cfg(feature = "peers")]
        {
            let theirs = theirs::publisher(count)?;
            subjects.push(Subject::new("iceoryx2", move || theirs.send()));
        }
        all.extend(interleave(pace, GROUP, &work, subjects)?);
        drop(others);
    }
    Ok(all)
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

/// A fresh frame.
pub(crate) fn send(topic: &Topic<Tensor>) -> Result<()> {
    let mut frame = topic.alloc_tensor(&[crate::FRAME / 8], DType::U64)?;
    frame.map_mut()?.as_mut_slice::<u64>()?[0] = 1;
    Ok(topic.send(&frame)?)
}

/// What a sleeper does.
pub(crate) fn other(page: &Page) -> Result<()> {
    let mut joined = Vec::new();
    loop {
        let word = page.order();
        let Order { task, size, .. } = Order::from_word(word);
        match task {
            Task::Quit => return Ok(()),
            Task::Join => {
                let topic = topic(size)?;
                topic.subscribe()?;
                joined.push(topic);
                #[cfg(feature = "peers")]
                let _theirs = theirs::subscriber(size)?;
                page.set_seen(word);
                sleep(page, word);
            }
            _ => {
                page.set_seen(word);
                sleep(page, word);
            }
        }
    }
}

fn sleep(page: &Page, order: u64) {
    while page.order() == order {
        thread::sleep(Duration::from_millis(20));
    }
}

#[cfg(feature = "peers")]
mod theirs {
    use iceoryx2::port::publisher::Publisher;
    use iceoryx2::port::subscriber::Subscriber;
    use iceoryx2::prelude::*;

    use crate::Result;
    use crate::hand_off::iceoryx2::{node, send, service};

    /// With the node that it needs.
    pub(crate) struct Theirs<Port>(
        Port,
        #[allow(dead_code, reason = "kept alive")] Node<ipc::Service>,
    );

    pub(crate) fn publisher(count: u8) -> Result<Theirs<Publisher<ipc::Service, [u64], ()>>> {
        let node = node()?;
        let service = service(&node, &format!("fan.{count}"), count.into())?;
        let builder = service.publisher_builder().initial_max_slice_len(crate::FRAME / 8);
        Ok(Theirs(builder.create()?, node))
    }

    pub(crate) fn subscriber(count: u8) -> Result<Theirs<Subscriber<ipc::Service, [u64], ()>>> {
        let node = node()?;
        let service = service(&node, &format!("fan.{count}"), count.into())?;
        Ok(Theirs(service.subscriber_builder().create()?, node))
    }

    impl Theirs<Publisher<ipc::Service, [u64], ()>> {
        pub(crate) fn send(&self) -> Result<()> {
            send(&self.0, crate::FRAME / 8, 1)
        }
    }
}
