//! Commands that look.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::Signal;
use serde_json::Value;

use super::Test;
use crate::scene::{Background, CENOTE, Done, Scene, eventually};

pub(crate) const TESTS: &[Test] = &[
    ("nothing_is_there_at_first_and_looking_leaves_nothing", nothing),
    ("ls_and_topic_show_who_publishes_and_who_subscribes", publishes),
    ("who_waits_for_a_publisher_is_listed", waiting),
    ("names_that_are_none_are_left_out_and_end_nothing", names),
    ("who_is_stopped_is_listed_and_hides_nobody", stopped),
    ("lists_name_structs_and_info_tells_of_their_fields", structs),
    ("more_topics_than_descriptors_are_all_listed", many),
    ("hz_and_bw_measure_a_publisher", measures),
    ("hz_tells_of_all_that_is_sent_as_seen_or_missed", all),
    ("top_takes_no_latency_of_what_came_while_it_did_not_look", stalls),
    ("hz_and_bw_end_after_some_seconds", seconds),
    ("who_looks_leases_nothing", leases),
    ("snap_holds_nothing_while_it_writes", snap),
    ("echo_shows_messages_and_their_values", echo),
    ("pool_shows_who_holds_what", pool),
    ("why_says_zero_copy_or_why_not", why),
    ("gc_removes_what_the_dead_left_and_nothing_else", gc),
    ("gc_claims_nothing_that_it_leaves", gc_leaves),
    ("doctor_heeds_who_may_lock_memory", doctor_locks),
    ("doctor_finds_this_machine_fit", doctor),
    ("doctor_leaves_no_directory_that_was_not_there", doctor_leaves_nothing),
    ("top_prints_where_there_is_no_terminal", top),
    ("top_shows_how_pools_grow", growth),
    ("pub_ends_in_good_order_when_asked_to", published),
    ("bench_measures", bench),
    ("who_reads_no_more_is_no_error", broken_pipe),
    ("completions_and_manual_pages_are_there", manual),
];

pub(crate) const CAMERA: &[&str] = &["camera.rgb", "--size", "64x48", "--rate", "100"];

fn nothing() {
    let scene = Scene::new();
    for args in [&["ls"][..], &["topic", "list"], &["pool", "stat"], &["pool", "holders"], &["gc"]]
    {
        let done = scene.cenote(args);
        assert_eq!((done.code, &*done.stderr), (0, ""), "{args:?}");
        assert!(!done.stdout.is_empty() && !done.stdout.contains('\x1b'), "{args:?}");
    }
    let listing = scene.json(&["ls"]);
    assert!(listing["topics"].as_array().unwrap().is_empty());
    assert!(listing["pools"].as_array().unwrap().is_empty());
    assert_eq!(fs::read_dir(&scene.0).unwrap().count(), 0);
}

fn publishes() {
    let scene = Scene::new();
    let camera = scene.publisher(CAMERA);
    let holder = scene.role("holder");
    let listing = scene.json(&["ls"]);
    let topic = &listing["topics"][0];
    assert_eq!((&topic["name"], &topic["type"]), (&"camera.rgb".into(), &"Image".into()));
    assert_eq!((&topic["publishers"], &topic["subscribers"]), (&1.into(), &1.into()));
    assert_eq!(topic["published_by"][0]["pid"], camera.pid());
    // As text: a number of 64 bits is another one to those who read numbers of JSON as f64.
    let uid = |of: &Value| of["uid"].as_str().map(|uid| (uid.len(), u64::from_str_radix(uid, 16)));
    assert!(matches!(uid(&topic["published_by"][0]), Some((16, Ok(_)))), "{topic}");
    let pool = &listing["pools"][0];
    assert!(matches!(uid(pool), Some((16, Ok(_)))), "{pool}");
    assert_eq!(topic["published_by"][0]["subscribers"][0]["pid"], holder.pid());
    let pool = &listing["pools"][0];
    assert_eq!((&pool["pid"], &pool["of_topic"]), (&camera.pid().into(), &true.into()));
    let processes = pool["processes"].as_array().unwrap();
    assert!(processes.iter().any(|process| process["pid"] == holder.pid()));
    let text = scene.cenote(&["ls"]).stdout;
    assert!(text.contains("camera.rgb") && text.contains(&holder.pid().to_string()), "{text}");

    assert_eq!(scene.cenote(&["topic", "list", "-q"]).stdout, "camera.rgb\n");
    assert_eq!(scene.json(&["topic", "list"])["topics"][0]["publishers"], 1);
    for name in ["camera.rgb", "/camera/rgb"] {
        let info = scene.json(&["topic", "info", name]);
        assert_eq!(
            (&info["name"], &info["publishers"][0]["depth"]),
            (&"camera.rgb".into(), &16.into())
        );
    }
    assert!(scene.cenote(&["topic", "info", "camera.rgb"]).stdout.contains("keeps 16 messages"));
}

fn waiting() {
    let scene = Scene::new();
    let waiter = scene.role("waiter");
    let listed = &scene.json(&["topic", "list"])["topics"][0];
    assert_eq!((&listed["name"], &listed["type"]), (&"camera.rgb".into(), &Value::Null));
    assert_eq!((&listed["publishers"], &listed["subscribers"]), (&0.into(), &1.into()));
    let info = scene.json(&["topic", "info", "camera.rgb"]);
    assert_eq!(info["waiting"][0]["pid"], waiter.pid());
    assert_eq!(scene.json(&["ls"])["topics"][0]["waiting"][0]["pid"], waiter.pid());
    let pid = waiter.pid().to_string();
    for args in
        [&["topic", "info", "camera.rgb"][..], &["topic", "list"], &["top", "-c", "1", "-i", "0.1"]]
    {
        let text = scene.cenote(args).stdout;
        assert!(text.contains("camera.rgb") && !text.contains("no answer"), "{text}");
        assert_eq!(text.contains(&pid), args[1] == "info", "{text}");
    }
    let done = scene.cenote(&["topic", "hz", "camera.rgb"]);
    assert!(done.code == 3 && done.stderr.contains("only waiting subscribers"), "{done:?}");
    waiter.kill();
    assert_eq!(scene.json(&["topic", "list"])["topics"], Value::Array(vec![]));
}

/// Whoever may write to the directory may make anything there.
fn names() {
    let scene = Scene::new();
    let _camera = scene.publisher(CAMERA);
    let topics = scene.0.join("default/topics");
    for bad in ["\x1b[2Jx", "a b", "a..b", "-rf"] {
        fs::create_dir(topics.join(bad)).unwrap();
        let _socket = UnixListener::bind(topics.join(bad).join(format!("{bad}@00000000000000ff")));
    }
    fs::create_dir_all(scene.0.join("default/pools")).unwrap();
    let bad = scene.0.join("default/pools/\x1b[2Jx@00000000000000ff");
    let _listening = UnixListener::bind(bad).unwrap();
    for args in [
        &["ls"][..],
        &["topic", "list"],
        &["pool", "stat"],
        &["pool", "holders"],
        &["top", "-c", "2", "-i", "0.1"],
        &["gc"],
    ] {
        let done = scene.cenote(args);
        assert_eq!((done.code, &*done.stderr), (0, ""), "{args:?}");
        assert!(!done.stdout.contains(['\x1b', '\x07']), "{args:?}: {done:?}");
    }
    assert_eq!(scene.cenote(&["topic", "list", "-q"]).stdout, "camera.rgb\n");
    let tops = scene.json_lines(&["top", "-c", "1", "-i", "0.1"]);
    assert_eq!(tops[0]["topics"].as_array().unwrap().len(), 1);
}

fn stopped() {
    let scene = Scene::new();
    let stopped = scene.publisher(&["stopped", "--size", "16x16"]);
    let _camera = scene.publisher(CAMERA);
    stopped.signal(Signal::STOP);
    let listing = scene.json(&["ls"]);
    let names = |what: &str| -> Vec<Value> {
        listing[what].as_array().unwrap().iter().map(|it| it["name"].clone()).collect()
    };
    assert_eq!((names("topics").len(), names("pools").len()), (2, 2), "{listing}");
    // What is not known is no number.
    let list = scene.json(&["topic", "list"]);
    for topics in [&listing["topics"], &list["topics"]] {
        let (answers, silent) = (&topics[0], &topics[1]);
        assert_eq!((&answers["answers"], &silent["answers"]), (&true.into(), &false.into()));
        for number in ["sent", "subscribers"] {
            assert!(answers[number].is_u64() && silent[number].is_null(), "{number}: {topics}");
        }
        assert_eq!((&silent["publishers"], &silent["closed"]), (&1.into(), &false.into()));
    }
    let info = scene.json(&["topic", "info", "stopped"]);
    for publisher in [&listing["topics"][1]["published_by"][0], &info["publishers"][0]] {
        assert_eq!(publisher["answers"], false, "{publisher}");
        for number in ["sent", "depth", "waits_for_subscribers", "subscribers"] {
            assert!(publisher[number].is_null(), "{number}: {publisher}");
        }
    }
    let why = scene.json(&["why", "stopped"]);
    assert!(why["publishers"][0]["sent"].is_null(), "{why}");
    let pool = &listing["pools"][1];
    assert_eq!((&pool["stats"], &pool["leases"]), (&Value::Null, &Value::Null));
    for args in
        [&["ls"][..], &["topic", "list"], &["pool", "stat"], &["top", "-c", "1", "-i", "0.3"]]
    {
        let text = scene.cenote(args).stdout;
        assert!(text.contains("(no answer)"), "{args:?}: {text}");
    }
    for args in [["topic", "info", "stopped"], ["pool", "holders", "stopped"]] {
        let text = scene.cenote(&args).stdout;
        assert!(text.contains("does not answer: it may be stopped"), "{args:?}: {text}");
        assert!(!text.contains("no pools"), "{args:?}: {text}");
    }
    let text = scene.cenote(&["why", "stopped"]).stdout;
    assert!(text.contains("does not answer: it may be stopped"), "{text}");
    let file = scene.path("x.png");
    for args in [
        &["topic", "hz", "stopped", "-c", "1", "-i", "0.3"][..],
        &["topic", "bw", "stopped", "-c", "1", "-i", "0.3"],
        &["topic", "echo", "stopped", "-t", "0.3"],
        &["topic", "snap", "stopped", &file, "-t", "0.3"],
    ] {
        let done = scene.cenote(args);
        assert_eq!((done.code, done.stderr.lines().count()), (4, 2), "{args:?}: {done:?}");
        let told = "), does not answer: it may be stopped";
        assert!(done.stderr.contains(told), "{args:?}: {done:?}");
    }
    let top = &scene.json_lines(&["top", "-c", "2", "-i", "0.3"])[1];
    let of = |name: &str| {
        let topics = top["topics"].as_array().unwrap();
        topics.iter().find(|topic| topic["name"] == name).unwrap().clone()
    };
    assert!(of("camera.rgb")["messages"].as_u64().unwrap() > 0, "{top}");
    assert_eq!((&of("stopped")["type"], &of("stopped")["messages"]), (&Value::Null, &0.into()));
    assert_eq!((&of("stopped")["behind"], &of("camera.rgb")["behind"]), (&Value::Null, &0.into()));
}

/// The sockets of the publishers of `camera.rgb`.
pub(crate) fn sockets(scene: &Scene) -> Vec<PathBuf> {
    let entries = fs::read_dir(scene.0.join("default/topics/camera.rgb")).unwrap();
    entries.map(|entry| entry.unwrap().path()).collect()
}

fn structs() {
    let scene = Scene::new();
    let _pose = scene.told("pose publisher");
    for args in [&["ls"][..], &["topic", "list"], &["top", "-c", "1", "-i", "0.1"]] {
        let text = scene.cenote(args).stdout;
        assert!(text.contains(" Pose ") && !text.contains("position"), "{args:?}: {text}");
    }
    let layout = "Pose { position: [f64; 3] at 0, rotation: [f64; 4] at 24 }";
    assert!(scene.cenote(&["topic", "info", "robot.pose"]).stdout.contains(layout));
    for listing in [scene.json(&["ls"]), scene.json(&["topic", "list"])] {
        assert!(listing["topics"][0]["type"].as_str().unwrap().starts_with(layout), "{listing}");
    }
}

/// One publisher under many names: a socket can have more than one, as any file.
fn many() {
    let scene = Scene::new();
    let _camera = scene.publisher(CAMERA);
    let socket = sockets(&scene).remove(0);
    let uid = socket.file_name().unwrap().to_str().unwrap().split_once('@').unwrap().1;
    for number in 0..299 {
        let dir = scene.0.join(format!("default/topics/t{number}"));
        fs::create_dir(&dir).unwrap();
        fs::hard_link(&socket, dir.join(format!("t{number}@{uid}"))).unwrap();
    }
    let run = |limit: usize, args: &[&str]| {
        let script = format!("ulimit -n {limit} && exec \"$0\" \"$@\"");
        Done::of(scene.command("sh").args(["-c", &script, CENOTE]).args(args))
    };
    let done = run(256, &["topic", "list", "-q"]);
    assert_eq!((done.code, done.stdout.lines().count()), (0, 300), "{done:?}");
    let done = run(256, &["pool", "stat", "--json"]);
    let pools: Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!(pools["pools"].as_array().unwrap().len(), 300);
    // Too few even so: that is said, rather than that they are not there.
    for args in [["topic", "list"], ["pool", "stat"]] {
        let done = run(40, &args);
        assert!(done.code == 1 && done.stderr.contains("Too many open files"), "{done:?}");
    }
}

/// A command that goes on, whose output can be read.
pub(crate) fn going_on(scene: &Scene, args: &[&str]) -> Background {
    let mut command = scene.command(CENOTE);
    command.args(args).stdout(Stdio::piped()).stderr(Stdio::piped());
    Background(command.spawn().unwrap())
}

fn seconds() {
    let scene = Scene::new();
    let _camera = scene.publisher(CAMERA);
    for command in ["hz", "bw"] {
        let args = ["topic", command, "camera.rgb", "-i", "0.2", "--seconds", "0.5"];
        let readings = scene.json_lines(&args);
        let lengths = readings.iter().map(|reading| reading["seconds"].as_f64().unwrap());
        assert!((1..=3).contains(&readings.len()) && lengths.sum::<f64>() >= 0.4, "{readings:?}");
    }
}

/// What a process holds of the camera's pool: `None` if it is not attached.
fn held(scene: &Scene, pid: i64) -> Option<u64> {
    let held = scene.json(&["pool", "holders", "camera.rgb"]);
    let processes = held["pools"][0]["processes"].as_array().unwrap();
    processes.iter().find(|process| process["pid"] == pid)?["slots"].as_u64()
}

fn leases() {
    let scene = Scene::new();
    let _camera = scene.publisher(CAMERA);
    for args in [&["top", "-i", "0.1"][..], &["topic", "hz", "camera.rgb", "-i", "0.1"]] {
        let mut looks = going_on(&scene, args);
        let mut lines = BufReader::new(looks.0.stdout.take().unwrap()).lines();
        lines.next().unwrap().unwrap();
        assert_eq!(held(&scene, looks.pid()), None, "{args:?} is not even attached");
        let info = scene.json(&["topic", "info", "camera.rgb"]);
        assert_eq!(info["publishers"][0]["subscribers"], Value::Array(vec![]), "{args:?}");
    }
    // One that does is seen to.
    let holder = scene.role("holder");
    assert_eq!(held(&scene, holder.pid()), Some(1));
    let tops = scene.json_lines(&["top", "-c", "1", "-i", "0.1"]);
    assert_eq!(tops[0]["pools"][0]["leases"], 1);
}

/// A pipe that nobody reads from takes less than a picture.
fn snap() {
    let scene = Scene::new();
    let _camera = scene.publisher(&["camera.rgb", "--size", "640x480", "--rate", "100"]);
    let pipe = scene.path("pipe.npy");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let mut snap = going_on(&scene, &["topic", "snap", "camera.rgb", &pipe]);
    let mut reader = fs::File::open(&pipe).unwrap();
    reader.read_exact(&mut [0]).unwrap();
    // It writes, and does not come to an end.
    assert_eq!(held(&scene, snap.pid()), Some(0));
    assert!(snap.0.try_wait().unwrap().is_none());
    let rest = std::io::copy(&mut reader, &mut std::io::sink()).unwrap();
    assert!(rest > 640 * 480 * 3);
    assert!(snap.ends().success());
}

fn published() {
    let scene = Scene::new();
    for signal in [Signal::INT, Signal::TERM] {
        let mut camera = scene.publisher(CAMERA);
        camera.signal(signal);
        assert_eq!(camera.ends().code(), Some(0));
        assert_eq!(scene.json(&["ls"])["topics"], Value::Array(vec![]));
        assert_eq!(scene.json(&["gc"])["removed"], Value::Array(vec![]), "nothing is left");
    }
}

fn growth() {
    let scene = Scene::new();
    let mut grower = scene.told("grower");
    let mut top = going_on(&scene, &["top", "-i", "0.1", "--json"]);
    let lines = BufReader::new(top.0.stdout.take().unwrap()).lines();
    let mut tops = lines.map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
    let grown = |top: &Value| top["pools"][0]["grown_bytes"].as_i64();
    assert_eq!(tops.find_map(|top| grown(&top)), Some(0));
    grower.tell();
    let top = tops.find(|top| grown(top).is_some_and(|grown| grown > 0)).unwrap();
    assert!(grown(&top) >= Some(5 << 20), "{top}");
    assert_eq!(top["bytes_reserved"], top["pools"][0]["stats"]["bytes_reserved"]);
}

fn measures() {
    let scene = Scene::new();
    let _camera = scene.publisher(CAMERA);
    let readings = scene.json_lines(&["topic", "hz", "/camera/rgb", "-c", "2", "-i", "0.5"]);
    assert_eq!(readings.len(), 2);
    let reading = &readings[1];
    let number = |name: &str| reading[name].as_f64().unwrap();
    // Others may use the machine, but it cannot send more than it was asked to.
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
    let text = scene.cenote(&["topic", "bw", "camera.rgb", "-c", "1", "-i", "0.3"]).stdout;
    assert!(text.contains("9.22 kB each") && text.contains("/s"), "{text}");
    assert!(scene.cenote(&["topic", "hz", "camera.rgb", "-c", "1"]).stdout.contains("latency"));
    // Whoever looked has left, and never was a subscriber.
    assert_eq!(
        scene.json(&["topic", "info", "camera.rgb"])["publishers"][0]["subscribers"],
        Value::Array(vec![])
    );
}

fn all() {
    let scene = Scene::new();
    let mut speaker = scene.told("speaker");
    let mut looks = going_on(&scene, &["topic", "hz", "speech", "-i", "0.05", "--json"]);
    let mut lines = BufReader::new(looks.0.stdout.take().unwrap()).lines();
    let mut count = || {
        let reading: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        let number = |name: &str| reading[name].as_u64().unwrap();
        number("messages") + number("missed")
    };
    assert_eq!(count(), 0, "it looks, and nothing was sent");
    let mut total = 0;
    for sent in [40, 80] {
        speaker.tell();
        eventually("it has told of all", || {
            total += count();
            total >= sent
        });
        assert_eq!(total + count() + count(), sent);
    }
}

/// While it waits for the answer of one that is stopped, which takes all of the interval, the ring of the
/// other fills.
fn stalls() {
    let scene = Scene::new();
    let stopped = scene.publisher(&["stopped", "--size", "16x16"]);
    let _camera = scene.publisher(CAMERA);
    stopped.signal(Signal::STOP);
    let mut looks = going_on(&scene, &["top", "-i", "0.2", "--json"]);
    let mut lines = BufReader::new(looks.0.stdout.take().unwrap()).lines();
    // The first knows of nothing that came before it; then, whenever the machine is not too busy, all that
    // it tells of was seen at once.
    lines.next().unwrap().unwrap();
    eventually("nothing of the time that it did not look is in the latency", || {
        let top: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        let topics = top["topics"].as_array().unwrap();
        let camera = topics.iter().find(|topic| topic["name"] == "camera.rgb").unwrap();
        assert!(camera["messages"].as_u64().unwrap() > 0, "{top}");
        camera["latency"]["max_us"].as_f64().is_some_and(|max| max < 50_000.0)
    });
}

fn echo() {
    let scene = Scene::new();
    let _camera = scene.publisher(CAMERA);
    let echoed = scene.json_lines(&["topic", "echo", "camera.rgb", "-c", "3", "--values=4"]);
    let first = echoed[0]["sequence"].as_u64().unwrap();
    for (echo, number) in echoed.iter().zip(first..) {
        assert_eq!((&echo["sequence"], &echo["seq"]), (&number.into(), &number.into()));
        assert_eq!(echo["shape"], serde_json::json!([48, 64, 3]));
        assert_eq!(echo["values"].as_array().unwrap().len(), 4);
    }
    // Without a number, wherever it stands.
    for args in [
        &["topic", "echo", "--values", "camera.rgb", "-c", "1"][..],
        &["topic", "echo", "-c", "1", "camera.rgb", "-v"],
    ] {
        let echoed = scene.json_lines(args);
        assert_eq!(echoed[0]["values"].as_array().unwrap().len(), 16, "{args:?}");
    }
    let text = scene.cenote(&["topic", "echo", "camera.rgb", "-c", "1"]).stdout;
    assert!(text.contains("Image u8 [48, 64, 3]") && text.lines().count() == 1, "{text}");
    let _heap = scene.role("heap publisher");
    let done = scene.cenote(&["topic", "echo", "heap", "--timeout", "0.1"]);
    assert_eq!(done.code, 4, "nothing new comes: {done:?}");
}

fn pool() {
    let scene = Scene::new();
    let owner = scene.role("owner");
    let _camera = scene.publisher(CAMERA);
    let holder = scene.role("holder");
    let pools = scene.json(&["pool", "stat"]);
    assert_eq!(pools["pools"].as_array().unwrap().len(), 2);
    let maps = scene.json(&["pool", "stat", "maps"]);
    let maps = &maps["pools"][0];
    assert_eq!((&maps["pid"], &maps["of_topic"]), (&owner.pid().into(), &false.into()));
    assert_eq!(
        (&maps["stats"]["slots_in_use"], &maps["stats"]["attachers"]),
        (&1.into(), &0.into())
    );
    assert!(maps["stats"]["bytes_reserved"].as_u64().unwrap() >= 1000);
    // The picture that is held leaves the queue after a while.
    eventually("the holder is seen to hold what is not queued any more", || {
        let held = scene.json(&["pool", "holders", "/camera/rgb"]);
        let processes = held["pools"][0]["processes"].as_array().unwrap().clone();
        let holds = |process: &&Value| process["pid"] == holder.pid();
        processes
            .iter()
            .find(holds)
            .is_some_and(|process| process["slots"] == 1 && process["retired_slots"] == 1)
    });
    // For how long the owner has held what it still has, it does not note.
    let held = scene.json(&["pool", "holders", "maps"]);
    let process = &held["pools"][0]["processes"][0];
    assert_eq!((&process["pid"], &process["slots"]), (&owner.pid().into(), &1.into()));
    assert_eq!(process["longest_ms"], Value::Null);
    let held = scene.json(&["pool", "holders", "camera.rgb"]);
    let processes = held["pools"][0]["processes"].as_array().unwrap();
    let process = processes.iter().find(|process| process["pid"] == holder.pid()).unwrap();
    assert!(process["longest_ms"].as_f64().unwrap() >= 0.0, "{process}");
    let text = scene.cenote(&["ls"]).stdout;
    assert!(text.contains("PROCESS") && text.matches(" ATTACHED ").count() == 2, "{text}");
    let text = scene.cenote(&["pool", "holders"]).stdout;
    assert!(text.contains("maps") && text.contains("(owner)"), "{text}");
    assert!(scene.cenote(&["pool", "stat"]).stdout.contains("camera.rgb (topic)"));
    let why = scene.json(&["why", "camera.rgb"]);
    assert_eq!(why["publishers"][0]["oldest_lease"]["pid"], holder.pid());
}

fn why() {
    let scene = Scene::new();
    let _camera = scene.publisher(CAMERA);
    let heap = scene.role("heap publisher");
    let why = scene.json(&["why", "camera.rgb"]);
    assert_eq!(
        (&why["zero_copy"], &why["publishers"][0]["copies"]),
        (&true.into(), &Value::Array(vec![]))
    );
    let why = scene.json(&["why", "heap"]);
    let publisher = &why["publishers"][0];
    assert_eq!((&why["zero_copy"], &publisher["pid"]), (&false.into(), &heap.pid().into()));
    let copied = &publisher["copies"][0];
    assert_eq!(
        (&copied["reason"], &copied["count"], &copied["bytes"]),
        (&"heap".into(), &3.into(), &300.into())
    );
    assert_eq!(publisher["process_copies"][0]["reason"], "staged");
    let text = scene.cenote(&["why", "heap"]).stdout;
    assert!(text.starts_with("heap: not zero-copy\n") && text.contains("topic.image("), "{text}");
}

fn gc() {
    let scene = Scene::new();
    let dead = scene.publisher(CAMERA);
    let _alive = scene.role("owner");
    assert_eq!(scene.json(&["gc"])["removed"], Value::Array(vec![]));
    dead.kill();
    let done = scene.cenote(&["topic", "info", "camera.rgb"]);
    assert_eq!((done.code, done.stderr.lines().count()), (3, 1));
    assert!(done.stderr.contains("dead"), "{done:?}");
    let removed = scene.json(&["gc"]);
    let removed = removed["removed"].as_array().unwrap();
    assert_eq!(removed.len(), 1);
    assert!(removed[0].as_str().unwrap().contains("topics/camera.rgb/camera.rgb@"));
    assert!(!scene.0.join("default/topics/camera.rgb").exists(), "nobody is in it");
    assert_eq!(scene.json(&["gc"])["removed"], Value::Array(vec![]));
    assert_eq!(scene.json(&["pool", "stat"])["pools"].as_array().unwrap().len(), 1);
}

/// Whoever may write to the directory may make anything there.
fn gc_leaves() {
    let scene = Scene::new();
    let pools = scene.0.join("default/pools");
    for name in ["maps@00000000000000ff", ".00000000000000ff"] {
        fs::create_dir_all(pools.join(name)).unwrap();
    }
    assert_eq!(scene.json(&["gc"])["removed"], Value::Array(vec![]));
    assert_eq!(fs::read_dir(&pools).unwrap().count(), 2);
}

/// `limited` by a limit of 64 kB, but not where the limit is for others.
fn doctor_locks() {
    let scene = Scene::new();
    let open = fs::Permissions::from_mode(0o777);
    fs::set_permissions(&scene.0, open).unwrap();
    let program = scene.program();
    let locked = |command: &mut Command| {
        let script = "ulimit -l 64 && exec \"$0\" doctor --json";
        let done = Done::of(command.args(["-c", script]).arg(&program));
        let found: Value = serde_json::from_str(&done.stdout).unwrap();
        let checks = found["checks"].as_array().unwrap().clone();
        checks.into_iter().find(|check| check["name"] == "locked memory").unwrap()
    };
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let set = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap();
    let may = u64::from_str_radix(set.trim(), 16).unwrap() & 1 << 14 != 0
        && fs::read_to_string("/proc/self/uid_map").unwrap().contains("4294967295");
    let check = locked(&mut scene.command("bash"));
    let expected = if may { ("works", "unlimited") } else { ("limited", "65.5 kB") };
    assert_eq!((&check["state"], &check["found"]), (&expected.0.into(), &expected.1.into()));
    if rustix::process::geteuid().is_root() {
        let check = locked(scene.command("bash").uid(65534).gid(65534));
        assert_eq!((&check["state"], &check["found"]), (&"limited".into(), &"65.5 kB".into()));
    }
}

fn doctor() {
    let scene = Scene::new();
    let found = scene.json(&["doctor"]);
    assert_eq!(found["healthy"], true);
    let checks = found["checks"].as_array().unwrap();
    let state = |name: &str| {
        let check = checks.iter().find(|check| check["name"] == name);
        check.unwrap_or_else(|| panic!("{name}"))["state"].as_str().unwrap().to_owned()
    };
    for name in ["shared memory", "sealing", "attaching", "directory"] {
        assert_eq!(state(name), "works", "{name}");
    }
    for check in checks {
        assert_eq!(check["state"] == "works", check["advice"].is_null(), "{check}");
    }
    for name in ["DMA heaps", "OpenGL", "file descriptors", "kernel"] {
        state(name);
    }
    assert_eq!(scene.names(), [""; 0], "it leaves nothing");
}

fn doctor_leaves_nothing() {
    let scene = Scene::new();
    let doctor = |dir: &Path| {
        let done = Done::of(scene.command(CENOTE).arg("doctor").env("CENOTE_DIR", dir));
        assert!(done.code == 0 && done.stdout.contains("went through a pool"), "{done:?}");
    };
    let fresh = scene.0.join("fresh");
    doctor(&fresh);
    assert!(!fresh.exists(), "{:?}", scene.names());
    // What was there stays.
    let pools = scene.0.join("default/pools");
    fs::create_dir_all(&pools).unwrap();
    doctor(&scene.0);
    assert!(pools.exists());
    fs::remove_dir(&pools).unwrap();
    doctor(&scene.0);
    assert_eq!((pools.exists(), scene.names()), (false, vec!["default".to_owned()]));
}

fn top() {
    let scene = Scene::new();
    let camera = scene.publisher(CAMERA);
    let readings = scene.json_lines(&["top", "-c", "2", "-i", "0.3"]);
    assert_eq!(readings.len(), 2);
    let top = &readings[1];
    assert_eq!(top["topics"][0]["name"], "camera.rgb");
    assert!(top["topics"][0]["messages"].as_u64().unwrap() > 0, "{top}");
    assert_eq!(top["pools"][0]["pid"], camera.pid());
    assert_eq!(top["pools"][0]["leases"], 0);
    assert!(top["bytes_reserved"].as_u64() > Some(0));
    let text = scene.cenote(&["top", "-c", "1", "-i", "0.1"]).stdout;
    assert!(text.contains("camera.rgb") && text.contains("memory:") && !text.contains('\x1b'));
}

fn bench() {
    let scene = Scene::new();
    let measured = scene.json(&["bench", "--seconds", "0.5", "--size", "64x48"]);
    assert_eq!(measured["frame_bytes"], 64 * 48 * 3);
    let results = measured["results"].as_array().unwrap();
    assert_eq!(results.len(), 5);
    for result in results {
        assert!(result["times"].as_u64().unwrap() > 0, "{result}");
        assert!(result["time"]["p50_us"].as_f64().unwrap() > 0.0, "{result}");
    }
    assert_eq!(fs::read_dir(&scene.0).unwrap().count(), 0, "it leaves nothing");
}

fn broken_pipe() {
    let scene = Scene::new();
    let _camera = scene.publisher(CAMERA);
    let mut echo = scene
        .command(CENOTE)
        .args(["topic", "echo", "camera.rgb"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(echo.stdout.take());
    let output = echo.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0));
}

fn manual() {
    let scene = Scene::new();
    for shell in ["bash", "zsh", "fish"] {
        assert!(scene.cenote(&["completions", shell]).stdout.contains("topic"), "{shell}");
    }
    let page = scene.cenote(&["man"]).stdout;
    assert!(page.contains(".TH cenote 1") && page.contains("doctor"));
    for args in [&["man", "--json"][..], &["completions", "bash", "--json"]] {
        let done = scene.cenote(args);
        assert_eq!((done.code, &*done.stdout, done.stderr.lines().count()), (2, "", 1), "{args:?}");
    }
    assert_eq!(scene.cenote(&["man", "--out", &scene.path("man")]).code, 0);
    let pages = fs::read_dir(scene.0.join("man")).unwrap().count();
    assert!(pages > 15, "{pages}");
}
