//! `cenote demo`, and how it and `bench` end.

use std::path::Path;
use std::process::Stdio;

use rustix::process::Signal;
use serde_json::Value;

use crate::Test;
use crate::sandbox::{CENOTE, Finished, Process, Sandbox, eventually};

pub(crate) const TESTS: &[Test] = tests![
    the_demo_survives_its_kills_and_copies_nothing,
    the_processes_of_a_killed_demo_end_and_gc_removes_its_namespace,
    an_interrupted_demo_leaves_nothing,
    an_interrupted_bench_leaves_nothing,
    the_demo_detects_wrong_bytes,
];

fn the_demo_survives_its_kills_and_copies_nothing() {
    let sandbox = Sandbox::new();
    let summary = sandbox.json(&["demo", "--seconds", "4", "--size", "480x270"]);
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
    assert_eq!(std::fs::read_dir(&sandbox.0).unwrap().count(), 0, "it leaves no files");
}

/// Starts a demo, waits until its four processes are connected, and returns it with its namespace.
fn start_demo(sandbox: &Sandbox) -> (Process, String) {
    let mut command = sandbox.command(CENOTE);
    command.args(["demo", "--size", "64x48", "--json"]).stdout(Stdio::null());
    let demo = Process(command.stderr(Stdio::piped()).spawn().unwrap());
    eventually("it has a namespace", || sandbox.names().len() == 1);
    let namespace = sandbox.names().remove(0);
    eventually("all processes are connected", || processes(sandbox, &namespace).len() == 4);
    (demo, namespace)
}

/// The process ids of the publishers and subscribers in a namespace.
fn processes(sandbox: &Sandbox, namespace: &str) -> Vec<u64> {
    let mut ls = sandbox.command(CENOTE);
    let ls = Finished::of(ls.args(["ls", "--json"]).env("CENOTE_NAMESPACE", namespace));
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

fn exists(pid: &u64) -> bool {
    Path::new("/proc").join(pid.to_string()).exists()
}

fn the_processes_of_a_killed_demo_end_and_gc_removes_its_namespace() {
    let sandbox = Sandbox::new();
    let (demo, namespace) = start_demo(&sandbox);
    let pids = processes(&sandbox, &namespace);
    assert_eq!(sandbox.json(&["gc"])["removed"], Value::Array(vec![]), "they are alive");
    demo.kill();
    eventually("all processes have ended", || !pids.iter().any(exists));
    let removed = sandbox.json(&["gc"]);
    let removed = removed["removed"][0].as_str().unwrap();
    assert!(removed.ends_with(&namespace), "{removed}");
    assert_eq!(sandbox.names(), [""; 0]);
}

fn an_interrupted_demo_leaves_nothing() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let sandbox = Sandbox::new();
        let (mut demo, namespace) = start_demo(&sandbox);
        let pids = processes(&sandbox, &namespace);
        demo.signal(signal);
        assert_eq!(demo.wait().code(), Some(code));
        assert!(!pids.iter().any(exists), "all of them have ended");
        assert_eq!(sandbox.names(), [""; 0], "it leaves no files");
        let text = std::io::read_to_string(demo.0.stderr.take().unwrap()).unwrap();
        assert_eq!(text, "cenote: interrupted\n");
    }
}

fn an_interrupted_bench_leaves_nothing() {
    let sandbox = Sandbox::new();
    let mut command = sandbox.command(CENOTE);
    command.args(["bench", "--seconds", "600"]).stdout(Stdio::null()).stderr(Stdio::null());
    let mut bench = Process(command.spawn().unwrap());
    eventually("it has a namespace", || sandbox.names().len() == 1);
    bench.signal(Signal::TERM);
    assert_eq!((bench.wait().code(), sandbox.names().len()), (Some(143), 0));
}

fn the_demo_detects_wrong_bytes() {
    let sandbox = Sandbox::new();
    let args = ["demo", "--seconds", "3", "--size", "64x48", "--spoil", "--json"];
    let done = sandbox.cenote(&args);
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
