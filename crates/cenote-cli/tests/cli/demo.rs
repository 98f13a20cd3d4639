//! The demo, from beginning to end.

use std::path::Path;
use std::process::Stdio;

use rustix::process::Signal;
use serde_json::Value;

use super::Test;
use crate::scene::{Background, CENOTE, Done, Scene, eventually};

pub(crate) const TESTS: &[Test] = &[
    ("the_demo_survives_its_kills_and_copies_nothing", demo),
    ("the_demo_notices_a_wrong_byte", spoiled),
    ("the_processes_of_a_demo_that_is_killed_end_and_gc_removes_the_rest", killed),
    ("a_demo_that_is_interrupted_leaves_nothing", interrupted),
    ("a_bench_that_is_ended_leaves_nothing", bench_ended),
];

fn demo() {
    let scene = Scene::new();
    let summary = scene.json(&["demo", "--seconds", "4", "--size", "480x270"]);
    assert_eq!(
        (&summary["corrupt"], &summary["bytes_copied"]),
        (&0.into(), &0.into()),
        "{summary}"
    );
    assert!(summary["bytes_moved"].as_u64().unwrap() > 10_000_000, "{summary}");
    let processes = summary["processes"].as_array().unwrap();
    let of = |role: &str| processes.iter().find(|process| process["role"] == role).unwrap();
    for (role, lives) in [("camera", 2), ("statistic", 1), ("projection", 1), ("slow", 2)] {
        assert_eq!(of(role)["lives"], lives, "{role}");
    }
    for role in ["statistic", "projection", "slow"] {
        assert!(of(role)["received"].as_u64().unwrap() > 0, "{role}: {summary}");
        assert!(of(role)["latency"]["p50_us"].as_f64().unwrap() > 0.0, "{role}: {summary}");
    }
    assert!(of("slow")["missed"].as_u64().unwrap() > 0, "it is slow: {summary}");
    assert_eq!(of("projection")["sent"], of("projection")["received"]);
    assert!(summary["after_the_kills"]["frames_held"].as_u64().unwrap() > 0, "{summary}");
    assert_eq!(std::fs::read_dir(&scene.0).unwrap().count(), 0, "it leaves nothing");
}

/// A demo that has begun, and its namespace.
fn running(scene: &Scene) -> (Background, String) {
    let mut command = scene.command(CENOTE);
    command.args(["demo", "--size", "64x48", "--json"]).stdout(Stdio::null());
    let demo = Background(command.stderr(Stdio::piped()).spawn().unwrap());
    eventually("it has a namespace", || scene.names().len() == 1);
    let namespace = scene.names().remove(0);
    eventually("all are there", || processes(scene, &namespace).len() == 4);
    (demo, namespace)
}

/// Who publishes or subscribes in a namespace.
fn processes(scene: &Scene, namespace: &str) -> Vec<u64> {
    let mut ls = scene.command(CENOTE);
    let ls = Done::of(ls.args(["ls", "--json"]).env("CENOTE_NAMESPACE", namespace));
    let Ok(listing) = serde_json::from_str::<Value>(&ls.stdout) else { return Vec::new() };
    let topics = listing["topics"].as_array().unwrap();
    let publishers = topics.iter().flat_map(|topic| topic["published_by"].as_array().unwrap());
    let subscribers = publishers.clone().flat_map(|it| it["subscribers"].as_array().unwrap());
    let mut pids: Vec<u64> =
        publishers.chain(subscribers).map(|it| it["pid"].as_u64().unwrap()).collect();
    pids.sort_unstable();
    pids.dedup();
    pids
}

fn is_there(pid: &u64) -> bool {
    Path::new("/proc").join(pid.to_string()).exists()
}

fn killed() {
    let scene = Scene::new();
    let (demo, namespace) = running(&scene);
    let pids = processes(&scene, &namespace);
    assert_eq!(scene.json(&["gc"])["removed"], Value::Array(vec![]), "they live");
    demo.kill();
    eventually("nobody is left", || !pids.iter().any(is_there));
    let removed = scene.json(&["gc"]);
    let removed = removed["removed"][0].as_str().unwrap();
    assert!(removed.ends_with(&namespace), "{removed}");
    assert_eq!(scene.names(), [""; 0]);
}

fn interrupted() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let scene = Scene::new();
        let (mut demo, namespace) = running(&scene);
        let pids = processes(&scene, &namespace);
        demo.signal(signal);
        assert_eq!(demo.ends().code(), Some(code));
        assert!(!pids.iter().any(is_there), "all of them have ended");
        assert_eq!(scene.names(), [""; 0], "it leaves nothing");
        let said = std::io::read_to_string(demo.0.stderr.take().unwrap()).unwrap();
        assert_eq!(said, "cenote: interrupted\n");
    }
}

fn bench_ended() {
    let scene = Scene::new();
    let mut command = scene.command(CENOTE);
    command.args(["bench", "--seconds", "600"]).stdout(Stdio::null()).stderr(Stdio::null());
    let mut bench = Background(command.spawn().unwrap());
    eventually("it has a namespace", || scene.names().len() == 1);
    bench.signal(Signal::TERM);
    assert_eq!((bench.ends().code(), scene.names().len()), (Some(143), 0));
}

fn spoiled() {
    let scene = Scene::new();
    let args = ["demo", "--seconds", "3", "--size", "64x48", "--spoil", "--json"];
    let done = scene.cenote(&args);
    let summary: Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!(done.code, 1, "{done:?}");
    let count = |role: &str, kind: &str| {
        let processes = summary["processes"].as_array().unwrap();
        let process = processes.iter().find(|process| process["role"] == role).unwrap();
        process["corrupt"][kind].as_u64().unwrap()
    };
    let seen =
        [("statistic", "rgb"), ("statistic", "cloud"), ("projection", "depth"), ("slow", "rgb")];
    let counts = seen.map(|(role, kind)| count(role, kind));
    assert!(counts.iter().all(|count| *count > 0), "{counts:?} {summary}");
    assert_eq!(summary["corrupt"], counts.iter().sum::<u64>());
}
