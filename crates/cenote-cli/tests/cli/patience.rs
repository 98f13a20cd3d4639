//! Publishers and subscribers that are waited for, that come, and that go.

use std::fs;
use std::io::{BufRead, BufReader, Read};

use rustix::process::Signal;
use serde_json::Value;

use super::Test;
use crate::looking::{CAMERA, going_on};
use crate::scene::{Scene, eventually};

pub(crate) const TESTS: &[Test] = &[
    ("who_looks_at_a_topic_is_told_when_its_publisher_dies", dies),
    ("who_is_patient_waits_for_somebody_to_publish", patience),
    ("hz_tells_of_a_publisher_that_died_and_came_back_between_two_readings", between),
    ("pub_that_waits_ends_in_good_order_when_asked_to", waits),
];

fn dies() {
    let scene = Scene::new();
    for command in ["hz", "bw", "echo"] {
        let camera = scene.publisher(CAMERA);
        let args: &[&str] = if command == "echo" { &[] } else { &["-i", "0.1"] };
        let mut looks = going_on(&scene, &[&["topic", command, "camera.rgb"], args].concat());
        let mut lines = BufReader::new(looks.0.stdout.take().unwrap()).lines();
        lines.next().unwrap().unwrap();
        // It is read on, so that nothing waits for room.
        let rest = std::thread::spawn(move || lines.count());
        camera.kill();
        let mut said = String::new();
        BufReader::new(looks.0.stderr.take().unwrap()).read_line(&mut said).unwrap();
        assert!(said.contains("camera.rgb") && said.contains("any more"), "{command}: {said}");
        drop(looks);
        rest.join().unwrap();
    }
}

fn patience() {
    let scene = Scene::new();
    let file = scene.path("x.npy");
    let _waiter = scene.role("waiter");
    for topic in ["nobody", "camera.rgb"] {
        for args in [&["hz", topic][..], &["bw", topic], &["echo", topic], &["snap", topic, &file]]
        {
            let done = scene.cenote(&[&["topic"], args].concat());
            assert_eq!((done.code, done.stderr.lines().count()), (3, 1), "{args:?}: {done:?}");
            let done = scene.cenote(&[&["topic"], args, &["--timeout", "0.2"]].concat());
            assert_eq!((done.code, done.stderr.lines().count()), (4, 2), "{args:?}: {done:?}");
            assert!(done.stderr.contains("yet; waiting"), "{args:?}: {done:?}");
        }
    }
    for args in [
        &["hz", "robot.pose", "-c", "1"][..],
        &["bw", "robot.pose", "-c", "1"],
        &["echo", "robot.pose", "-c", "1"],
        &["snap", "robot.pose", &file],
    ] {
        let mut looks = going_on(&scene, &[&["topic"], args, &["--timeout", "600"]].concat());
        let mut said = BufReader::new(looks.0.stderr.take().unwrap()).lines();
        assert!(said.next().unwrap().unwrap().contains("yet; waiting"), "{args:?}");
        let mut publisher = scene.told("pose publisher");
        let mut ended = None;
        eventually("it has seen something", || {
            publisher.tell();
            ended = looks.0.try_wait().unwrap();
            ended.is_some()
        });
        assert!(ended.unwrap().success(), "{args:?}");
        if args[0] == "echo" {
            // It was there first, and sees the first message.
            let mut shown = String::new();
            looks.0.stdout.take().unwrap().read_to_string(&mut shown).unwrap();
            assert!(shown.starts_with("#0 Pose, 56 bytes"), "{shown}");
        }
    }
    assert!(fs::metadata(&file).unwrap().len() > 128);
}

fn between() {
    let scene = Scene::new();
    let args = ["topic", "hz", "camera.rgb", "--timeout", "600", "--interval", "3600"];
    let mut looks = going_on(&scene, &args);
    let mut said = BufReader::new(looks.0.stderr.take().unwrap()).lines();
    let mut says = |words: &str| {
        let line = said.next().unwrap().unwrap();
        assert!(line.ends_with(words), "{words}: {line}");
    };
    says("topic `camera.rgb` has no publisher yet; waiting");
    let camera = scene.publisher(CAMERA);
    says("topic `camera.rgb` has a publisher");
    camera.kill();
    says("topic `camera.rgb` has no publisher that answers any more; waiting");
    let _successor = scene.publisher(CAMERA);
    says("topic `camera.rgb` has a publisher again");
}

fn waits() {
    let scene = Scene::new();
    for signal in [Signal::INT, Signal::TERM] {
        let args = ["topic", "pub", "camera.rgb", "--wait", "1", "--timeout", "3600", "--json"];
        let mut waits = going_on(&scene, &args);
        eventually("it is there", || {
            scene.cenote(&["topic", "list", "-q"]).stdout == "camera.rgb\n"
        });
        waits.signal(signal);
        assert_eq!(waits.ends().code(), Some(0));
        let sent: Value = serde_json::from_reader(waits.0.stdout.take().unwrap()).unwrap();
        assert_eq!(sent["sent"], 0);
    }
}
