//! `hz`, `bw`, `top` without a terminal, and `bench`.

use std::fs;
use std::io::{BufRead, BufReader};

use rustix::process::Signal;
use serde_json::Value;

use crate::Test;
use crate::sandbox::{CAMERA, Sandbox, eventually};

pub(crate) const TESTS: &[Test] = tests![
    hz_and_bw_measure_a_publisher,
    hz_counts_every_message_as_seen_or_missed,
    hz_and_bw_end_after_the_given_seconds,
    observers_lease_nothing_and_are_no_subscribers,
    top_prints_readings_without_a_terminal,
    top_measures_no_latency_of_messages_that_arrive_while_it_lists,
    top_shows_how_pools_grow,
    bench_measures_five_operations,
];

fn hz_and_bw_measure_a_publisher() {
    let sandbox = Sandbox::new();
    let _camera = sandbox.publisher(CAMERA);
    let readings = sandbox.json_lines(&["topic", "hz", "/camera/rgb", "-c", "2", "-i", "0.5"]);
    assert_eq!(readings.len(), 2);
    let reading = &readings[1];
    let number = |name: &str| reading[name].as_f64().unwrap();
    // A busy machine may make it slower, but it never sends faster than requested.
    assert!(number("hz") > 1.0 && number("hz") < 120.0, "{reading}");
    let sent = number("messages") + number("missed");
    assert!((number("hz") * number("seconds") - sent).abs() < 1e-6, "{reading}");
    let bytes = number("bytes_per_second") * number("seconds");
    assert!((bytes - sent * 64.0 * 48.0 * 3.0).abs() < 1e-3, "{reading}");
    let period = |name: &str| reading["period_ms"][name].as_f64().unwrap();
    assert!(period("min") <= period("mean") && period("mean") <= period("max"), "{reading}");
    assert!(period("mean") * number("messages") <= number("seconds") * 2000.0, "{reading}");
    assert!(reading["latency"]["p50_us"].as_f64().unwrap() > 0.0, "{reading}");
    assert!(reading["period_ms"]["mean"].as_f64().unwrap() > 1.0, "{reading}");
    assert_eq!(number("bytes"), number("messages") * 64.0 * 48.0 * 3.0);
    let text = sandbox.cenote(&["topic", "bw", "camera.rgb", "-c", "1", "-i", "0.3"]).stdout;
    assert!(text.contains("9.22 kB each") && text.contains("/s"), "{text}");
    assert!(sandbox.cenote(&["topic", "hz", "camera.rgb", "-c", "1"]).stdout.contains("latency"));
    // The observers were no subscribers.
    assert_eq!(
        sandbox.json(&["topic", "info", "camera.rgb"])["publishers"][0]["subscribers"],
        Value::Array(vec![])
    );
}

fn hz_counts_every_message_as_seen_or_missed() {
    let sandbox = Sandbox::new();
    let mut publisher = sandbox.stepped_child("batch publisher");
    let mut observer = sandbox.start(&["topic", "hz", "batch", "-i", "0.05", "--json"]);
    let mut lines = BufReader::new(observer.0.stdout.take().unwrap()).lines();
    let mut count = || {
        let reading: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        let number = |name: &str| reading[name].as_u64().unwrap();
        number("messages") + number("missed")
    };
    assert_eq!(count(), 0, "nothing was sent");
    let mut total = 0;
    for sent in [40, 80] {
        publisher.step();
        eventually("all messages are counted", || {
            total += count();
            total >= sent
        });
        assert_eq!(total + count() + count(), sent);
    }
}

fn hz_and_bw_end_after_the_given_seconds() {
    let sandbox = Sandbox::new();
    let _camera = sandbox.publisher(CAMERA);
    for command in ["hz", "bw"] {
        let args = ["topic", command, "camera.rgb", "-i", "0.2", "--seconds", "0.5"];
        let readings = sandbox.json_lines(&args);
        let lengths = readings.iter().map(|reading| reading["seconds"].as_f64().unwrap());
        assert!((1..=3).contains(&readings.len()) && lengths.sum::<f64>() >= 0.4, "{readings:?}");
    }
}

fn observers_lease_nothing_and_are_no_subscribers() {
    let sandbox = Sandbox::new();
    let _camera = sandbox.publisher(CAMERA);
    for args in [&["top", "-i", "0.1"][..], &["topic", "hz", "camera.rgb", "-i", "0.1"]] {
        let mut observer = sandbox.start(args);
        let mut lines = BufReader::new(observer.0.stdout.take().unwrap()).lines();
        lines.next().unwrap().unwrap();
        assert_eq!(sandbox.slots_held_by(observer.pid()), None, "{args:?} is not attached");
        let info = sandbox.json(&["topic", "info", "camera.rgb"]);
        assert_eq!(info["publishers"][0]["subscribers"], Value::Array(vec![]), "{args:?}");
    }
    // A subscriber that holds an image is counted.
    let holder = sandbox.child("image holder");
    assert_eq!(sandbox.slots_held_by(holder.pid()), Some(1));
    let tops = sandbox.json_lines(&["top", "-c", "1", "-i", "0.1"]);
    assert_eq!(tops[0]["pools"][0]["leases"], 1);
}

fn top_prints_readings_without_a_terminal() {
    let sandbox = Sandbox::new();
    let camera = sandbox.publisher(CAMERA);
    let readings = sandbox.json_lines(&["top", "-c", "2", "-i", "0.3"]);
    assert_eq!(readings.len(), 2);
    let top = &readings[1];
    assert_eq!(top["topics"][0]["name"], "camera.rgb");
    assert!(top["topics"][0]["messages"].as_u64().unwrap() > 0, "{top}");
    assert_eq!(top["pools"][0]["pid"], camera.pid());
    assert_eq!(top["pools"][0]["leases"], 0);
    assert!(top["bytes_reserved"].as_u64() > Some(0));
    let text = sandbox.cenote(&["top", "-c", "1", "-i", "0.1"]).stdout;
    assert!(text.contains("camera.rgb") && text.contains("memory:") && !text.contains('\x1b'));
}

/// While `top` waits for the reply of a stopped publisher, which takes the whole interval, the ring of the other
/// publisher fills.
fn top_measures_no_latency_of_messages_that_arrive_while_it_lists() {
    let sandbox = Sandbox::new();
    let stopped = sandbox.publisher(&["stopped", "--size", "16x16"]);
    let _camera = sandbox.publisher(CAMERA);
    stopped.signal(Signal::STOP);
    let mut observer = sandbox.start(&["top", "-i", "0.2", "--json"]);
    let mut lines = BufReader::new(observer.0.stdout.take().unwrap()).lines();
    // The first reading contains no earlier messages. Each later one, unless the machine is too busy, has the latency
    // only of messages that `top` read as soon as they arrived.
    lines.next().unwrap().unwrap();
    eventually("the latency excludes the time of listing", || {
        let top: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        let topics = top["topics"].as_array().unwrap();
        let camera = topics.iter().find(|topic| topic["name"] == "camera.rgb").unwrap();
        assert!(camera["messages"].as_u64().unwrap() > 0, "{top}");
        camera["latency"]["max_us"].as_f64().is_some_and(|max| max < 50_000.0)
    });
}

fn top_shows_how_pools_grow() {
    let sandbox = Sandbox::new();
    let mut owner = sandbox.stepped_child("growing pool owner");
    let mut top = sandbox.start(&["top", "-i", "0.1", "--json"]);
    let lines = BufReader::new(top.0.stdout.take().unwrap()).lines();
    let mut tops = lines.map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
    let grown = |top: &Value| top["pools"][0]["grown_bytes"].as_i64();
    assert_eq!(tops.find_map(|top| grown(&top)), Some(0));
    owner.step();
    let top = tops.find(|top| grown(top).is_some_and(|grown| grown > 0)).unwrap();
    assert!(grown(&top) >= Some(5 << 20), "{top}");
    assert_eq!(top["bytes_reserved"], top["pools"][0]["stats"]["bytes_reserved"]);
}

fn bench_measures_five_operations() {
    let sandbox = Sandbox::new();
    let measured = sandbox.json(&["bench", "--seconds", "0.5", "--size", "64x48"]);
    assert_eq!(measured["frame_bytes"], 64 * 48 * 3);
    let results = measured["results"].as_array().unwrap();
    assert_eq!(results.len(), 5);
    for result in results {
        assert!(result["times"].as_u64().unwrap() > 0, "{result}");
        assert!(result["time"]["p50_us"].as_f64().unwrap() > 0.0, "{result}");
    }
    assert_eq!(fs::read_dir(&sandbox.0).unwrap().count(), 0, "it leaves no files");
}
