//! DMA-BUFs through topics: to other processes, without a copy.

use std::time::Duration;

use cenote::{
    DType, Image, PixelFormat, PlaneDescriptor, StagedBecause, Tensor, TensorMemory,
    TensorPoolConfig, Topic, TopicConfig,
};
use rustix::fs::OFlags;

use super::share::foreign;
use super::{Role, Test, counting, over_both};
use crate::support::peer::{Peer, serve};
use crate::support::unique;

pub(super) const TESTS: &[Test] = &[
    (
        "allocated_and_imported_buffers_are_not_copied",
        allocated_and_imported_buffers_are_not_copied,
    ),
    ("memory_is_protected_without_a_request", memory_is_protected_without_a_request),
    ("a_topic_can_have_a_pool_of_dmabufs", a_topic_can_have_a_pool_of_dmabufs),
    ("received_buffers_can_be_sent_on", received_buffers_can_be_sent_on),
];

pub(super) const ROLES: &[Role] = &[("subscriber", subscriber)];

const LONG: Duration = Duration::from_secs(60);

/// Answers `next` with the next message, and keeps all messages.
fn subscriber(words: &[&str]) {
    let topic: Topic<Tensor> = Topic::new(words[0]).unwrap();
    topic.subscribe().unwrap();
    let mut held = Vec::new();
    serve(|words| match *words {
        ["ready"] => "ok".into(),
        ["next"] => {
            let tensor = topic.recv_timeout(LONG).unwrap().expect("a message");
            let sum: u64 = tensor.to_vec::<u8>().unwrap().into_iter().map(u64::from).sum();
            let said = format!("{} {} {sum}", tensor.memory(), tensor.protection());
            held.push(tensor);
            said
        }
        _ => panic!("{words:?}"),
    });
}

fn sum(tensor: &Tensor) -> u64 {
    tensor.to_vec::<u8>().unwrap().into_iter().map(u64::from).sum()
}

/// A topic with two subscribers in other processes.
fn with_subscribers(config: TopicConfig) -> (Topic<Tensor>, [Peer; 2]) {
    let name = unique();
    let topic: Topic<Tensor> =
        Topic::with_config(&name, TopicConfig { ignore_own: true, ..config }).unwrap();
    topic.advertise().unwrap();
    let mut peers = [(); 2].map(|()| Peer::start(&format!("subscriber {name}")));
    peers.iter_mut().for_each(|peer| assert_eq!(peer.request("ready"), "ok"));
    assert_eq!(topic.wait_for_subscribers(2, LONG).unwrap(), 2);
    (topic, peers)
}

fn staged(topic: &Topic<Tensor>) -> Vec<(StagedBecause, u64)> {
    topic.stats().copies.iter().map(|each| (each.reason, each.count)).collect()
}

fn allocated_and_imported_buffers_are_not_copied() {
    over_both(|heap| {
        let (topic, mut peers) = with_subscribers(TopicConfig::default());
        let expected = if heap == "system" { "dma convention" } else { "shm kernel" };
        let tensor = counting(&[300, 400]);
        let region = tensor.roi(10, 10, 100, 100).unwrap();
        for tensor in [&tensor, &region, &tensor] {
            topic.send(tensor).unwrap();
            for peer in &mut peers {
                assert_eq!(peer.request("next"), format!("{expected} {}", sum(tensor)));
            }
        }
        let other = Tensor::from_fd(foreign(10_000, OFlags::RDWR), &[100, 100], DType::U8).unwrap();
        topic.send(&other).unwrap();
        for peer in &mut peers {
            assert_eq!(peer.request("next"), "dma convention 0");
        }
        assert_eq!(staged(&topic), []);
    });
}

fn memory_is_protected_without_a_request() {
    let (topic, mut peers) = with_subscribers(TopicConfig::default());
    let tensor = Tensor::from_slice(&[1u8, 2, 3], &[3]).unwrap();
    assert_eq!(tensor.memory(), TensorMemory::Dma);
    topic.send(&tensor).unwrap();
    for peer in &mut peers {
        assert_eq!(peer.request("next"), "shm kernel 6");
    }
    assert_eq!(staged(&topic), []);

    // Planes that are not contiguous are copied and counted, in any memory.
    let plane = |len| PlaneDescriptor::new(foreign(len, OFlags::RDWR)).unwrap();
    let planes = [plane(4096), plane(4096)];
    let far = Tensor::from_planes(32, 32, PixelFormat::Nv12, planes).unwrap();
    topic.send(&far).unwrap();
    for peer in &mut peers {
        assert_eq!(peer.request("next"), "shm kernel 0");
    }
    assert_eq!(staged(&topic), [(StagedBecause::FarPlanes, 1)]);
}

fn a_topic_can_have_a_pool_of_dmabufs() {
    for (unprotected, expected) in [(false, "shm kernel"), (true, "dma convention")] {
        let memory = TensorMemory::Dma;
        let pool = TensorPoolConfig { memory, unprotected, ..TensorPoolConfig::small() };
        let (topic, mut peers) = with_subscribers(TopicConfig { pool, ..TopicConfig::default() });
        for round in 1..5_u64 {
            let mut tensor = topic.alloc_tensor(&[1000], DType::U8).unwrap();
            assert_eq!(tensor.memory(), TensorMemory::Dma);
            tensor.map_mut().unwrap().as_mut_slice::<u8>().unwrap().fill(round.to_le_bytes()[0]);
            topic.send(&tensor).unwrap();
            for peer in &mut peers {
                assert_eq!(peer.request("next"), format!("{expected} {}", 1000 * round));
            }
        }
        assert_eq!(staged(&topic), []);

        let memory = TensorMemory::Dma;
        let pool = TensorPoolConfig { memory, unprotected, ..TensorPoolConfig::small() };
        let images: Topic<Image> =
            Topic::with_config(&unique(), TopicConfig { pool, ..TopicConfig::default() }).unwrap();
        let image = images.image(100, 10, PixelFormat::Rgb8).unwrap();
        assert_eq!(image.tensor().row_stride(), Some(320), "rows as hardware wants them");
    }
}

fn received_buffers_can_be_sent_on() {
    let (topic, mut peers) = with_subscribers(TopicConfig::default());
    let first: Topic<Tensor> = Topic::new(&unique()).unwrap();
    first.subscribe().unwrap();
    let tensor = counting(&[300]);
    first.send(&tensor).unwrap();
    let received = first.recv_timeout(LONG).unwrap().unwrap();
    assert_eq!(received.memory(), TensorMemory::Dma);
    topic.send(&received).unwrap();
    for peer in &mut peers {
        assert_eq!(peer.request("next"), format!("dma convention {}", sum(&tensor)));
    }
    assert_eq!(staged(&topic), []);
}
