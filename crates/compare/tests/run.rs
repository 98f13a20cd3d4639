//! Runs the program with very short takes. The times do not matter; the output must be complete.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// One run at a time, because a run keeps two cores busy.
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
    assert!(verdicts.contains("left"), "Python was not run, which must be reported");
    let rows = found["rows"].as_array().expect("rows");
    assert_eq!(unknown_keys(BARS, rows), [""; 0], "keys of bars that no run measures");
    for (right, wrong) in [
        ("memory/map, shm/cenote", "memory/map, shn/cenote"),
        ("memory/map, shm/edgefirst-tensor", "memory/map, shm/edgefirst"),
        ("hand-off/round trip, 1080p/iceoryx2", "hands-off/round trip, 1080p/iceoryx2"),
        ("of = \"pool/alloc + drop, 64 B/cenote\"", "of = \"pool/alloc + drop, 64 B/cenotes\""),
        ("python/image echo, 1080p/horus-robotics", "python/image echo, 1080p/horus"),
        ("to = \"floor\"", "to = \"flor\""),
    ] {
        assert!(BARS.contains(right), "{right}");
        assert_eq!(unknown_keys(&BARS.replace(right, wrong), rows).len(), 1, "{wrong}");
    }
}

const BARS: &str = include_str!("../bars.toml");

/// The sources of the groups. They contain the names of subjects that are not built in, or not run, in this test.
const SOURCES: [(&str, &str); 8] = [
    ("hand-off", include_str!("../src/groups/hand_off.rs")),
    ("hand-off", include_str!("../src/groups/hand_off/iceoryx2.rs")),
    ("fan-out", include_str!("../src/groups/fan_out.rs")),
    ("set-up", include_str!("../src/groups/set_up.rs")),
    ("pool", include_str!("../src/groups/pool.rs")),
    ("memory", include_str!("../src/groups/memory.rs")),
    ("buffers", include_str!("../src/groups/buffers.rs")),
    ("python", include_str!("../python/peers.py")),
];

/// The keys of bars that no run has, judged by the rows of a quick run and the sources.
fn unknown_keys(bars: &str, rows: &[Value]) -> Vec<String> {
    let bars: toml::Table = bars.parse().expect("bars");
    let bars = bars["bar"].as_array().expect("a list of bars");
    let keys = bars.iter().flat_map(|bar| [&bar["of"], &bar["to"]]);
    let keys: BTreeSet<&str> = keys.filter_map(toml::Value::as_str).collect();
    let unknown = keys.into_iter().filter(|key| *key != "floor" && !is_known(key, rows));
    unknown.map(str::to_owned).collect()
}

/// Whether a run has this key: the quick run has it, or one with more peers would.
fn is_known(key: &str, rows: &[Value]) -> bool {
    let mut parts = key.split('/');
    let (Some(group), Some(work), Some(who), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return false;
    };
    let is_in_source = |word: &str| {
        let quoted = format!("\"{word}\"");
        SOURCES.iter().any(|(of, text)| *of == group && text.contains(&quoted))
    };
    let mut of_work = rows.iter().filter(|row| row["group"] == group && row["work"] == work);
    match group {
        "python" => is_in_source(work) && is_in_source(who),
        _ if who == "cenote" => of_work.any(|row| row["who"] == who),
        _ => of_work.next().is_some() && is_in_source(who),
    }
}

/// A long run with its own directory for temporary files.
struct LongRun {
    child: Child,
    temp: PathBuf,
}

impl LongRun {
    /// Starts the run, waits until it measures, and returns it with its two processes.
    fn start(name: &str) -> (LongRun, Vec<Pid>) {
        let temp = std::env::temp_dir().join(format!("compare-test-{}-{name}", std::process::id()));
        fs::create_dir_all(&temp).expect("a directory");
        let child = run_in(&temp).args(["--only", "hand-off", "--rounds", "60000"]).spawn();
        let run = LongRun { child: child.expect("it runs"), temp };
        let mut family = Vec::new();
        // The measuring process and its helper.
        eventually("two processes measure", || {
            family = descendants(Pid::from_child(&run.child));
            family.len() == 2 && run.memory().join("default").exists()
        });
        (run, family)
    }

    fn dir(&self) -> PathBuf {
        self.temp.join(format!("cenote-compare-{}", self.child.id()))
    }

    fn memory(&self) -> PathBuf {
        PathBuf::from(format!("/dev/shm/cenote-compare-{}", self.child.id()))
    }

    fn end_by(&mut self, signal: Signal) -> ExitStatus {
        kill_process(Pid::from_child(&self.child), signal).expect("it exists");
        self.child.wait().expect("it has ended")
    }
}

impl Drop for LongRun {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.temp);
        let _ = fs::remove_dir_all(self.memory());
    }
}

fn run_in(temp: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_compare"));
    command.env("TMPDIR", temp).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(60), "not after a minute: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The descendants of a process.
fn descendants(of: Pid) -> Vec<Pid> {
    let tasks = fs::read_dir(format!("/proc/{of}/task")).into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    let lists: Vec<String> = lists.collect();
    let numbers = lists.iter().flat_map(|list| list.split_whitespace());
    let children = numbers.filter_map(|number| Pid::from_raw(number.parse().ok()?));
    children.flat_map(|child| std::iter::once(child).chain(descendants(child))).collect()
}

/// Whether all processes have ended. Their new parent may not have reaped them yet.
fn have_ended(family: &[Pid]) -> bool {
    family.iter().all(|pid| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // The state follows the name: see proc(5).
        stat.rsplit_once(") ").is_none_or(|(_, fields)| fields.starts_with(['Z', 'X']))
    })
}

#[test]
fn a_run_that_a_signal_ends_leaves_nothing() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130)] {
        let (mut run, family) = LongRun::start("ended");
        assert_eq!(run.end_by(signal).code(), Some(code));
        assert!(have_ended(&family), "{family:?}");
        assert!(!run.memory().exists());
        assert_eq!(fs::read_dir(&run.temp).expect("a directory").count(), 0);
    }
}

#[test]
fn the_next_run_removes_the_files_of_a_killed_run() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let (mut run, family) = LongRun::start("killed");
    run.end_by(Signal::KILL);
    eventually("the kernel kills the other processes", || have_ended(&family));
    assert!(run.dir().exists() && run.memory().exists(), "no process was left to remove them");
    // A segment like those of iceoryx2.
    let segment = PathBuf::from(format!("/dev/shm/compare{}_test", run.child.id()));
    fs::write(&segment, "").expect("a file");
    let next =
        run_in(&run.temp).args(["--only", "memory", "--rounds", "1", "--take", "1"]).status();
    let segment_left = segment.exists();
    let _ = fs::remove_file(&segment);
    assert!(next.expect("it runs").code().is_some());
    assert!(!segment_left && !run.memory().exists());
    assert_eq!(fs::read_dir(&run.temp).expect("a directory").count(), 0);
}

#[test]
fn killed_processes_leave_nothing() {
    let output = compare(&["--only", "recovery", "--json", "--rounds", "2", "--take", "1"]);
    let found = json(&output);
    let facts = found["facts"].as_array().expect("facts");
    assert_eq!(facts.len(), 4, "{facts:?}");
    // Other programs create files in /dev/shm, too.
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
        fs::write(&file, bar).expect("a file");
        let path = file.to_str().expect("a path");
        compare(&["--only", "memory", "--rounds", "1", "--take", "1", "--bars", path])
    };
    let (held, missed) = (run("1e9"), run("1e-9"));
    fs::remove_file(&file).expect("it exists");
    assert_eq!((held.status.code(), missed.status.code()), (Some(0), Some(1)));
    assert!(String::from_utf8_lossy(&held.stdout).contains("held"));
    assert!(String::from_utf8_lossy(&missed.stdout).contains("MISSED"));
}

#[test]
fn invalid_arguments_are_reported_with_exit_code_2() {
    let unknown = compare(&["--only", "nonsense"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(
        String::from_utf8_lossy(&unknown.stderr).contains("hand-off"),
        "the error lists the groups"
    );
    let no_python = compare(&["--only", "python"]);
    assert_eq!(no_python.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&no_python.stderr).contains("--python"));
}
