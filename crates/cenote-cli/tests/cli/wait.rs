//! Commands that wait for publishers or subscribers, and report when they come and die.

use std::fs;
use std::io::{BufRead, BufReader, Read};

use rustix::process::Signal;
use serde_json::Value;

use crate::Test;
use crate::sandbox::{CAMERA, Sandbox, eventually};

pub(crate) const TESTS: &[Test] = tests![
    hz_bw_and_echo_report_the_death_of_the_publisher,
    with_a_timeout_commands_wait_for_a_publisher,
    hz_reports_a_publisher_that_died_and_one_that_came_between_readings,
    pub_that_waits_for_subscribers_exits_with_0_when_a_signal_ends_it,
];

fn hz_bw_and_echo_report_the_death_of_the_publisher() {
    let sandbox = Sandbox::new();
    for command in ["hz", "bw", "echo"] {
        let camera = sandbox.publisher(CAMERA);
        let args: &[&str] = if command == "echo" { &[] } else { &["-i", "0.1"] };
        let mut observer = sandbox.start(&[&["topic", command, "camera.rgb"], args].concat());
        let mut lines = BufReader::new(observer.0.stdout.take().unwrap()).lines();
        lines.next().unwrap().unwrap();
        // Keeps reading, so that the command does not block on a full pipe.
        let rest = std::thread::spawn(move || lines.count());
        camera.kill();
        let mut line = String::new();
        BufReader::new(observer.0.stderr.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.contains("camera.rgb") && line.contains("any more"), "{command}: {line}");
        drop(observer);
        rest.join().unwrap();
    }
}

fn with_a_timeout_commands_wait_for_a_publisher() {
    let sandbox = Sandbox::new();
    let file = sandbox.path("x.npy");
    let _subscriber = sandbox.child("subscriber");
    for topic in ["unknown", "camera.rgb"] {
        for args in [&["hz", topic][..], &["bw", topic], &["echo", topic], &["snap", topic, &file]]
        {
            let done = sandbox.cenote(&[&["topic"], args].concat());
            assert_eq!((done.code, done.stderr.lines().count()), (3, 1), "{args:?}: {done:?}");
            let done = sandbox.cenote(&[&["topic"], args, &["--timeout", "0.2"]].concat());
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
        let mut observer = sandbox.start(&[&["topic"], args, &["--timeout", "600"]].concat());
        let mut warnings = BufReader::new(observer.0.stderr.take().unwrap()).lines();
        assert!(warnings.next().unwrap().unwrap().contains("yet; waiting"), "{args:?}");
        let mut publisher = sandbox.stepped_child("pose publisher");
        let mut ended = None;
        eventually("the command has read a message", || {
            publisher.step();
            ended = observer.0.try_wait().unwrap();
            ended.is_some()
        });
        assert!(ended.unwrap().success(), "{args:?}");
        if args[0] == "echo" {
            // It waited before the publisher started, so it misses no message.
            let mut shown = String::new();
            observer.0.stdout.take().unwrap().read_to_string(&mut shown).unwrap();
            assert!(shown.starts_with("#0 Pose, 56 bytes"), "{shown}");
        }
    }
    assert!(fs::metadata(&file).unwrap().len() > 128);
}

fn hz_reports_a_publisher_that_died_and_one_that_came_between_readings() {
    let sandbox = Sandbox::new();
    let args = ["topic", "hz", "camera.rgb", "--timeout", "600", "--interval", "3600"];
    let mut observer = sandbox.start(&args);
    let mut warnings = BufReader::new(observer.0.stderr.take().unwrap()).lines();
    let mut assert_warning = |words: &str| {
        let line = warnings.next().unwrap().unwrap();
        assert!(line.ends_with(words), "{words}: {line}");
    };
    assert_warning("topic `camera.rgb` has no publisher yet; waiting");
    let camera = sandbox.publisher(CAMERA);
    assert_warning("topic `camera.rgb` has a publisher");
    camera.kill();
    assert_warning("topic `camera.rgb` has no publisher that answers any more; waiting");
    let _successor = sandbox.publisher(CAMERA);
    assert_warning("topic `camera.rgb` has a publisher again");
}

fn pub_that_waits_for_subscribers_exits_with_0_when_a_signal_ends_it() {
    let sandbox = Sandbox::new();
    for signal in [Signal::INT, Signal::TERM] {
        let args = ["topic", "pub", "camera.rgb", "--wait", "1", "--timeout", "3600", "--json"];
        let mut publisher = sandbox.start(&args);
        eventually("the publisher is listed", || {
            sandbox.cenote(&["topic", "list", "-q"]).stdout == "camera.rgb\n"
        });
        publisher.signal(signal);
        assert_eq!(publisher.wait().code(), Some(0));
        let sent: Value = serde_json::from_reader(publisher.0.stdout.take().unwrap()).unwrap();
        assert_eq!(sent["sent"], 0);
    }
}
