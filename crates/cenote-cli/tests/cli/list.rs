//! `ls`, `topic list` and `topic info`.

use std::fs;
use std::os::unix::net::UnixListener;

use rustix::process::Signal;
use serde_json::Value;

use crate::Test;
use crate::sandbox::{CAMERA, CENOTE, Finished, Sandbox};

pub(crate) const TESTS: &[Test] = tests![
    an_empty_system_lists_nothing_and_listing_creates_nothing,
    ls_and_topic_commands_show_publishers_and_subscribers,
    a_subscriber_without_a_publisher_is_listed,
    invalid_names_in_the_socket_directory_are_skipped,
    a_stopped_publisher_is_listed_and_hides_no_other,
    lists_name_structs_and_info_shows_their_fields,
    more_topics_than_file_descriptors_are_all_listed,
];

fn an_empty_system_lists_nothing_and_listing_creates_nothing() {
    let sandbox = Sandbox::new();
    for args in [&["ls"][..], &["topic", "list"], &["pool", "stat"], &["pool", "holders"], &["gc"]]
    {
        let done = sandbox.cenote(args);
        assert_eq!((done.code, &*done.stderr), (0, ""), "{args:?}");
        assert!(!done.stdout.is_empty() && !done.stdout.contains('\x1b'), "{args:?}");
    }
    let listing = sandbox.json(&["ls"]);
    assert!(listing["topics"].as_array().unwrap().is_empty());
    assert!(listing["pools"].as_array().unwrap().is_empty());
    assert_eq!(fs::read_dir(&sandbox.0).unwrap().count(), 0);
}

fn ls_and_topic_commands_show_publishers_and_subscribers() {
    let sandbox = Sandbox::new();
    let camera = sandbox.publisher(CAMERA);
    let holder = sandbox.child("image holder");
    let listing = sandbox.json(&["ls"]);
    let topic = &listing["topics"][0];
    assert_eq!((&topic["name"], &topic["type"]), (&"camera.rgb".into(), &"Image".into()));
    assert_eq!((&topic["publishers"], &topic["subscribers"]), (&1.into(), &1.into()));
    assert_eq!(topic["published_by"][0]["pid"], camera.pid());
    // A string: many JSON parsers read numbers as f64, which cannot represent every 64-bit integer.
    let uid = |of: &Value| of["uid"].as_str().map(|uid| (uid.len(), u64::from_str_radix(uid, 16)));
    assert!(matches!(uid(&topic["published_by"][0]), Some((16, Ok(_)))), "{topic}");
    let pool = &listing["pools"][0];
    assert!(matches!(uid(pool), Some((16, Ok(_)))), "{pool}");
    assert_eq!(topic["published_by"][0]["subscribers"][0]["pid"], holder.pid());
    let pool = &listing["pools"][0];
    assert_eq!((&pool["pid"], &pool["of_topic"]), (&camera.pid().into(), &true.into()));
    let processes = pool["processes"].as_array().unwrap();
    assert!(processes.iter().any(|process| process["pid"] == holder.pid()));
    let text = sandbox.cenote(&["ls"]).stdout;
    assert!(text.contains("camera.rgb") && text.contains(&holder.pid().to_string()), "{text}");

    assert_eq!(sandbox.cenote(&["topic", "list", "-q"]).stdout, "camera.rgb\n");
    assert_eq!(sandbox.json(&["topic", "list"])["topics"][0]["publishers"], 1);
    for name in ["camera.rgb", "/camera/rgb"] {
        let info = sandbox.json(&["topic", "info", name]);
        assert_eq!(
            (&info["name"], &info["publishers"][0]["depth"]),
            (&"camera.rgb".into(), &16.into())
        );
    }
    assert!(sandbox.cenote(&["topic", "info", "camera.rgb"]).stdout.contains("keeps 16 messages"));
}

fn a_subscriber_without_a_publisher_is_listed() {
    let sandbox = Sandbox::new();
    let subscriber = sandbox.child("subscriber");
    let listed = &sandbox.json(&["topic", "list"])["topics"][0];
    assert_eq!((&listed["name"], &listed["type"]), (&"camera.rgb".into(), &Value::Null));
    assert_eq!((&listed["publishers"], &listed["subscribers"]), (&0.into(), &1.into()));
    let info = sandbox.json(&["topic", "info", "camera.rgb"]);
    assert_eq!(info["waiting"][0]["pid"], subscriber.pid());
    assert_eq!(sandbox.json(&["ls"])["topics"][0]["waiting"][0]["pid"], subscriber.pid());
    let pid = subscriber.pid().to_string();
    for args in
        [&["topic", "info", "camera.rgb"][..], &["topic", "list"], &["top", "-c", "1", "-i", "0.1"]]
    {
        let text = sandbox.cenote(args).stdout;
        assert!(text.contains("camera.rgb") && !text.contains("no answer"), "{text}");
        assert_eq!(text.contains(&pid), args[1] == "info", "{text}");
    }
    let done = sandbox.cenote(&["topic", "hz", "camera.rgb"]);
    assert!(done.code == 3 && done.stderr.contains("only waiting subscribers"), "{done:?}");
    subscriber.kill();
    assert_eq!(sandbox.json(&["topic", "list"])["topics"], Value::Array(vec![]));
}

/// A process that may write to the directory can create any name in it.
fn invalid_names_in_the_socket_directory_are_skipped() {
    let sandbox = Sandbox::new();
    let _camera = sandbox.publisher(CAMERA);
    let topics = sandbox.0.join("default/topics");
    for bad in ["\x1b[2Jx", "a b", "a..b", "-rf"] {
        fs::create_dir(topics.join(bad)).unwrap();
        let _socket = UnixListener::bind(topics.join(bad).join(format!("{bad}@00000000000000ff")));
    }
    fs::create_dir_all(sandbox.0.join("default/pools")).unwrap();
    let bad = sandbox.0.join("default/pools/\x1b[2Jx@00000000000000ff");
    let _listening = UnixListener::bind(bad).unwrap();
    for args in [
        &["ls"][..],
        &["topic", "list"],
        &["pool", "stat"],
        &["pool", "holders"],
        &["top", "-c", "2", "-i", "0.1"],
        &["gc"],
    ] {
        let done = sandbox.cenote(args);
        assert_eq!((done.code, &*done.stderr), (0, ""), "{args:?}");
        assert!(!done.stdout.contains(['\x1b', '\x07']), "{args:?}: {done:?}");
    }
    assert_eq!(sandbox.cenote(&["topic", "list", "-q"]).stdout, "camera.rgb\n");
    let tops = sandbox.json_lines(&["top", "-c", "1", "-i", "0.1"]);
    assert_eq!(tops[0]["topics"].as_array().unwrap().len(), 1);
}

fn a_stopped_publisher_is_listed_and_hides_no_other() {
    let sandbox = Sandbox::new();
    let stopped = sandbox.publisher(&["stopped", "--size", "16x16"]);
    let _camera = sandbox.publisher(CAMERA);
    stopped.signal(Signal::STOP);
    let listing = sandbox.json(&["ls"]);
    let names = |what: &str| -> Vec<Value> {
        listing[what].as_array().unwrap().iter().map(|it| it["name"].clone()).collect()
    };
    assert_eq!((names("topics").len(), names("pools").len()), (2, 2), "{listing}");
    // Unknown numbers are null.
    let list = sandbox.json(&["topic", "list"]);
    for topics in [&listing["topics"], &list["topics"]] {
        let (answers, silent) = (&topics[0], &topics[1]);
        assert_eq!((&answers["answers"], &silent["answers"]), (&true.into(), &false.into()));
        for number in ["sent", "subscribers"] {
            assert!(answers[number].is_u64() && silent[number].is_null(), "{number}: {topics}");
        }
        assert_eq!((&silent["publishers"], &silent["closed"]), (&1.into(), &false.into()));
    }
    let info = sandbox.json(&["topic", "info", "stopped"]);
    for publisher in [&listing["topics"][1]["published_by"][0], &info["publishers"][0]] {
        assert_eq!(publisher["answers"], false, "{publisher}");
        for number in ["sent", "depth", "waits_for_subscribers", "subscribers"] {
            assert!(publisher[number].is_null(), "{number}: {publisher}");
        }
    }
    let why = sandbox.json(&["why", "stopped"]);
    assert!(why["publishers"][0]["sent"].is_null(), "{why}");
    let pool = &listing["pools"][1];
    assert_eq!((&pool["stats"], &pool["leases"]), (&Value::Null, &Value::Null));
    check_texts_of_stopped_publisher(&sandbox);
    check_timeouts_of_stopped_publisher(&sandbox);
    check_top_with_stopped_publisher(&sandbox);
}

fn check_texts_of_stopped_publisher(sandbox: &Sandbox) {
    for args in
        [&["ls"][..], &["topic", "list"], &["pool", "stat"], &["top", "-c", "1", "-i", "0.3"]]
    {
        let text = sandbox.cenote(args).stdout;
        assert!(text.contains("(no answer)"), "{args:?}: {text}");
    }
    for args in [["topic", "info", "stopped"], ["pool", "holders", "stopped"]] {
        let text = sandbox.cenote(&args).stdout;
        assert!(text.contains("does not answer: it may be stopped"), "{args:?}: {text}");
        assert!(!text.contains("no pools"), "{args:?}: {text}");
    }
    let text = sandbox.cenote(&["why", "stopped"]).stdout;
    assert!(text.contains("does not answer: it may be stopped"), "{text}");
}

fn check_timeouts_of_stopped_publisher(sandbox: &Sandbox) {
    let file = sandbox.path("x.png");
    for args in [
        &["topic", "hz", "stopped", "-c", "1", "-i", "0.3"][..],
        &["topic", "bw", "stopped", "-c", "1", "-i", "0.3"],
        &["topic", "echo", "stopped", "-t", "0.3"],
        &["topic", "snap", "stopped", &file, "-t", "0.3"],
    ] {
        let done = sandbox.cenote(args);
        assert_eq!((done.code, done.stderr.lines().count()), (4, 2), "{args:?}: {done:?}");
        let warning = "), does not answer: it may be stopped";
        assert!(done.stderr.contains(warning), "{args:?}: {done:?}");
    }
}

fn check_top_with_stopped_publisher(sandbox: &Sandbox) {
    let top = &sandbox.json_lines(&["top", "-c", "2", "-i", "0.3"])[1];
    let of = |name: &str| {
        let topics = top["topics"].as_array().unwrap();
        topics.iter().find(|topic| topic["name"] == name).unwrap().clone()
    };
    assert!(of("camera.rgb")["messages"].as_u64().unwrap() > 0, "{top}");
    assert_eq!((&of("stopped")["type"], &of("stopped")["messages"]), (&Value::Null, &0.into()));
    assert_eq!((&of("stopped")["behind"], &of("camera.rgb")["behind"]), (&Value::Null, &0.into()));
}

fn lists_name_structs_and_info_shows_their_fields() {
    let sandbox = Sandbox::new();
    let _pose = sandbox.stepped_child("pose publisher");
    for args in [&["ls"][..], &["topic", "list"], &["top", "-c", "1", "-i", "0.1"]] {
        let text = sandbox.cenote(args).stdout;
        assert!(text.contains(" Pose ") && !text.contains("position"), "{args:?}: {text}");
    }
    let layout = "Pose { position: [f64; 3] at 0, rotation: [f64; 4] at 24 }";
    assert!(sandbox.cenote(&["topic", "info", "robot.pose"]).stdout.contains(layout));
    for listing in [sandbox.json(&["ls"]), sandbox.json(&["topic", "list"])] {
        assert!(listing["topics"][0]["type"].as_str().unwrap().starts_with(layout), "{listing}");
    }
}

/// One publisher with many names: hard links of its socket.
fn more_topics_than_file_descriptors_are_all_listed() {
    let sandbox = Sandbox::new();
    let _camera = sandbox.publisher(CAMERA);
    let socket = sandbox.sockets().remove(0);
    let uid = socket.file_name().unwrap().to_str().unwrap().split_once('@').unwrap().1;
    for number in 0..299 {
        let dir = sandbox.0.join(format!("default/topics/t{number}"));
        fs::create_dir(&dir).unwrap();
        fs::hard_link(&socket, dir.join(format!("t{number}@{uid}"))).unwrap();
    }
    let run = |limit: usize, args: &[&str]| {
        let script = format!("ulimit -n {limit} && exec \"$0\" \"$@\"");
        Finished::of(sandbox.command("sh").args(["-c", &script, CENOTE]).args(args))
    };
    let done = run(256, &["topic", "list", "-q"]);
    assert_eq!((done.code, done.stdout.lines().count()), (0, 300), "{done:?}");
    let done = run(256, &["pool", "stat", "--json"]);
    let pools: Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!(pools["pools"].as_array().unwrap().len(), 300);
    // With too few descriptors the command fails; it does not print a shorter list.
    for args in [["topic", "list"], ["pool", "stat"]] {
        let done = run(40, &args);
        assert!(done.code == 1 && done.stderr.contains("Too many open files"), "{done:?}");
    }
}
