//! Frames that other processes receive without a copy. One of these processes is killed half-way.

use std::collections::HashSet;
use std::time::Duration;

use cenote::{Camera, CameraConfig, Error, Image, Topic, TopicConfig};

use super::{CAMERAS, LONG, Role, Test, digest, frames, into, next, small, with_driver_buffers};
use crate::support::peer::{Peer, serve};
use crate::support::unique;

pub(super) const TESTS: &[Test] = &[
    ("a_hundred_frames_of_the_drivers_reach_two_processes", of_the_drivers),
    ("a_hundred_frames_of_our_own_reach_two_processes", of_our_own),
    ("frames_of_a_protected_pool_reach_two_processes", of_a_protected_pool),
    ("a_frame_that_others_hold_outlives_its_topic", outlives_its_topic),
];

const FRAMES: usize = 100;

pub(super) const ROLES: &[Role] = &[("viewer", view)];

/// The child: answers with the next frame, and keeps the last two.
fn view(words: &[&str]) {
    let name = words[0];
    let topic: Topic<Image> = Topic::new(name).unwrap();
    topic.subscribe().unwrap();
    let mut topic = Some(topic);
    let mut held: [Option<Image>; 2] = [None, None];
    serve(|words| match *words {
        ["ready"] => "ok".into(),
        ["next"] => {
            let topic = topic.as_ref().expect("it was not left");
            let frame = topic.recv_timeout(LONG).unwrap().expect("a frame");
            let still = held[1].as_ref().map_or(0, digest);
            let tensor = frame.tensor();
            let said = format!(
                "{} {} {} {} {still}",
                frame.seq(),
                digest(&frame),
                tensor.memory(),
                tensor.protection()
            );
            held.rotate_left(1);
            held[1] = Some(frame);
            said
        }
        ["leave"] => {
            topic = None;
            "ok".into()
        }
        ["look"] => held[1].as_ref().map_or(0, digest).to_string(),
        ["drop"] => {
            held = [None, None];
            "ok".into()
        }
        _ => panic!("{words:?}"),
    });
}

fn of_the_drivers() {
    show(&mut with_driver_buffers(CAMERAS[0]), FRAMES, "dma convention");
}

fn of_our_own() {
    let pool = frames(true, 24);
    show(&mut into(CAMERAS[0], &pool), FRAMES, "dma convention");
}

fn of_a_protected_pool() {
    let pool = frames(false, 24);
    show(&mut into(CAMERAS[1], &pool), 20, "shm kernel");
}

/// Sends frames to two processes, which must read the same bytes. The second is killed half-way.
fn show(camera: &mut Camera, count: usize, expected: &str) {
    let name = unique();
    let config = TopicConfig { depth: 2, ignore_own: true, ..TopicConfig::default() };
    let topic: Topic<Image> = Topic::with_config(&name, config).unwrap();
    topic.advertise().unwrap();
    let mut viewers: Vec<Peer> = (0..2).map(|_| Peer::start(&format!("viewer {name}"))).collect();
    viewers.iter_mut().for_each(|viewer| assert_eq!(viewer.request("ready"), "ok"));
    assert_eq!(topic.wait_for_subscribers(2, LONG).unwrap(), 2);

    let (mut last, mut seen) = (0, HashSet::new());
    for number in 0..count {
        if number == count / 2 {
            // It holds two frames, which return to the driver when it dies.
            viewers.pop().unwrap().kill();
        }
        let frame = next(camera);
        let here = digest(&frame);
        topic.send(&frame).unwrap();
        // The subscriber still holds the frame before, which must not have changed.
        let said = format!("{} {here} {expected} {last}", frame.seq());
        for viewer in &mut viewers {
            assert_eq!(viewer.request("next"), said, "frame {number}");
        }
        last = here;
        seen.insert(here);
    }
    assert!(seen.len() > count / 10, "the picture has a clock in it: {}", seen.len());
    assert_eq!(topic.stats().copies, [], "nothing was copied");
    assert_eq!(topic.stats().sent, count as u64);
}

/// The pool of the topic counts the holders of a frame, so it must live until the last one releases it.
fn outlives_its_topic() {
    let config = CameraConfig { buffers: 3, ..small() };
    let mut camera = Camera::open(CAMERAS[0], config).unwrap();
    let name = unique();
    let config = TopicConfig { depth: 1, ignore_own: true, ..TopicConfig::default() };
    let topic: Topic<Image> = Topic::with_config(&name, config).unwrap();
    topic.advertise().unwrap();
    let mut viewer = Peer::start(&format!("viewer {name}"));
    assert_eq!(viewer.request("ready"), "ok");
    assert_eq!(topic.wait_for_subscribers(1, LONG).unwrap(), 1);
    let frame = next(&mut camera);
    let here = digest(&frame);
    topic.send(&frame).unwrap();
    assert!(viewer.request("next").contains(&here.to_string()));
    drop(frame);
    assert_eq!(viewer.request("leave"), "ok");
    drop(topic);
    for _ in 0..12 {
        next(&mut camera);
    }
    assert_eq!(viewer.request("look"), here.to_string(), "the frame has changed under its reader");
    // Its buffer returns to the driver when it is released.
    let held = [next(&mut camera), next(&mut camera)];
    let starved = camera.capture(Duration::from_millis(300));
    assert!(matches!(starved, Err(Error::CameraStarved { .. })), "{starved:?}");
    assert_eq!(viewer.request("drop"), "ok");
    next(&mut camera);
    drop(held);
}
