//! The demo, from beginning to end.

use std::process::Stdio;

use serde_json::Value;

use super::Test;
use crate::scene::{Background, CENOTE, Done, Scene, eventually};

pub(crate) const TESTS: &[Test] = &[
    ("the_demo_survives_its_kills_and_copies_nothing", demo),
    ("the_demo_notices_a_wrong_byte", spoiled),
    ("the_processes_of_a_demo_that_is_killed_end", killed),
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

fn killed() {
    let scene = Scene::new();
    let mut command = scene.command(CENOTE);
    command.args(["demo", "--size", "64x48", "--json"]).stdout(Stdio::null());
    let demo = Background(command.spawn().unwrap());
    let namespace = format!("demo-{}", demo.pid());
    let topics = || {
        let mut list = scene.command(CENOTE);
        let list = list.args(["topic", "list", "-q"]).env("CENOTE_NAMESPACE", &namespace);
        Done::of(list).stdout
    };
    eventually("all are there", || topics().lines().count() == 4);
    demo.kill();
    eventually("nobody is left", || topics().is_empty());
}

fn spoiled() {
    let scene = Scene::new();
    let args = ["demo", "--seconds", "3", "--size", "64x48", "--spoil", "--json"];
    let done = scene.cenote(&args);
    let summary: Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!(done.code, 1, "{done:?}");
    assert!(summary["corrupt"].as_u64().unwrap() > 0, "{summary}");
}
