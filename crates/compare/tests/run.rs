//! The program as it is run, but for how long: whatever the times are, what it prints must be whole.

use std::collections::BTreeSet;
use std::process::{Command, Output};
use std::sync::{Mutex, PoisonError};

use serde_json::Value;

/// One at a time: they keep two cores busy.
static TURN: Mutex<()> = Mutex::new(());

fn compare(arguments: &[&str]) -> Output {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    Command::new(env!("CARGO_BIN_EXE_compare")).args(arguments).output().expect("it runs")
}

fn json(output: &Output) -> Value {
    let error = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|bad| panic!("{bad}: {error}"))
}

fn texts<'a>(list: &'a Value, field: &str) -> BTreeSet<&'a str> {
    list.as_array().expect("a list").iter().filter_map(|each| each[field].as_str()).collect()
}

#[test]
fn a_quick_run_has_all_core_groups_and_a_verdict_on_every_bar() {
    let output = compare(&["--quick", "--json", "--rounds", "1", "--take", "1"]);
    let found = json(&output);
    let groups = texts(&found["rows"], "group");
    for group in ["hand-off", "fan-out", "set-up", "pool", "memory", "buffers"] {
        assert!(groups.contains(group), "no {group} in {groups:?}");
    }
    for row in found["rows"].as_array().expect("rows") {
        let time = |field: &str| row[field].as_f64().expect(field);
        assert!(time("p50") <= time("p99") && time("p999") <= time("max"), "{row}");
        assert!(time("p50") > 0.0 && row["rounds"].as_u64() >= Some(1), "{row}");
    }
    let verdicts = texts(&found["bars"], "verdict");
    let code = match (verdicts.contains("missed"), verdicts.contains("unmeasured")) {
        (true, _) => 1,
        (false, true) => 3,
        _ => 0,
    };
    assert_eq!(output.status.code(), Some(code), "{verdicts:?}");
    assert!(verdicts.contains("left"), "Python was not run, and that must be said");
}

#[test]
fn processes_that_are_killed_leave_nothing() {
    let output = compare(&["--only", "recovery", "--json", "--rounds", "2", "--take", "1"]);
    let found = json(&output);
    let facts = found["facts"].as_array().expect("facts");
    assert_eq!(facts.len(), 4, "{facts:?}");
    // Other programs have files in /dev/shm, too.
    for fact in facts.iter().filter(|fact| fact["what"] != "entries of /dev/shm left by 20 kills") {
        assert_eq!(fact["value"], 0.0, "{fact}");
    }
}

#[test]
fn bars_of_the_user_decide_the_exit_code() {
    let file = std::env::temp_dir().join(format!("compare-bars-{}.toml", std::process::id()));
    let run = |max: &str| {
        let bar = format!(
            "[[bar]]\nname = \"x\"\nof = \"memory/clone a handle/cenote\"\n\
             to = \"memory/map_mut, shm/cenote\"\nmax = {max}\nwhen = \"one\"\n"
        );
        std::fs::write(&file, bar).expect("a file");
        let path = file.to_str().expect("a path");
        compare(&["--only", "memory", "--rounds", "1", "--take", "1", "--bars", path])
    };
    let (held, missed) = (run("1e9"), run("1e-9"));
    std::fs::remove_file(&file).expect("it is there");
    assert_eq!((held.status.code(), missed.status.code()), (Some(0), Some(1)));
    assert!(String::from_utf8_lossy(&held.stdout).contains("held"));
    assert!(String::from_utf8_lossy(&missed.stdout).contains("MISSED"));
}

#[test]
fn what_cannot_be_is_told_and_ends_with_two() {
    let unknown = compare(&["--only", "nonsense"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(
        String::from_utf8_lossy(&unknown.stderr).contains("hand-off"),
        "it names those there are"
    );
    let no_python = compare(&["--only", "python"]);
    assert_eq!(no_python.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&no_python.stderr).contains("--python"));
}
