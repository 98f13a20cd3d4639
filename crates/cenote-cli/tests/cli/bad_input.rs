//! What cannot be done is said in one line, and by a code.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Stdio;

use super::Test;
use crate::scene::{Background, CENOTE, Done, Scene, eventually};

pub(crate) const TESTS: &[Test] = &[
    ("what_is_not_there_is_said_so", missing),
    ("a_directory_that_was_named_and_is_not_there_is_said_so", no_directory),
    ("what_is_not_understood_is_said_so", nonsense),
    ("where_there_is_no_permission_it_is_said_so", permission),
    ("files_that_cannot_be_are_refused", files),
    ("names_of_files_need_not_be_text", bytes),
    ("owners_that_are_dead_are_said_to_be", dead),
    ("nobody_comes_is_said_so", silence),
    ("output_that_cannot_be_written_is_said_so", full),
];

/// One line, which has these words in it.
fn one_line(done: &Done, code: i32, words: &[&str]) {
    assert_eq!((done.code, done.stderr.lines().count()), (code, 1), "{done:?}");
    assert!(done.stderr.starts_with("cenote: "), "{done:?}");
    words.iter().for_each(|word| assert!(done.stderr.contains(word), "{word}: {done:?}"));
}

fn missing() {
    let scene = Scene::new();
    for command in ["info", "hz", "bw", "echo"] {
        one_line(&scene.cenote(&["topic", command, "camera"]), 3, &["camera", "topic list"]);
    }
    one_line(&scene.cenote(&["topic", "snap", "camera", "x.png"]), 3, &["camera"]);
    one_line(&scene.cenote(&["why", "camera"]), 3, &["camera"]);
    for command in ["stat", "holders"] {
        one_line(&scene.cenote(&["pool", command, "maps"]), 3, &["maps", "cenote ls"]);
    }
    for args in [&["ls"][..], &["topic", "list"], &["top"], &["gc"], &["pool", "stat"]] {
        let done = Done::of(scene.command(CENOTE).args(args).env("CENOTE_NAMESPACE", "robot7"));
        one_line(&done, 3, &["robot7"]);
    }
}

fn no_directory() {
    let scene = Scene::new();
    let nowhere = scene.path("nowhere");
    let run =
        |args: &[&str]| Done::of(scene.command(CENOTE).args(args).env("CENOTE_DIR", &nowhere));
    for args in [&["ls"][..], &["topic", "list"], &["pool", "stat"], &["pool", "holders"], &["gc"]]
    {
        one_line(&run(args), 0, &["CENOTE_DIR", &nowhere]);
        let done = run(&[args, &["--json"]].concat());
        one_line(&done, 0, &[&nowhere]);
        assert!(serde_json::from_str::<serde_json::Value>(&done.stdout).is_ok(), "{done:?}");
    }
    one_line(&run(&["top", "-c", "1", "-i", "0.05"]), 0, &["CENOTE_DIR", &nowhere]);
    assert_eq!(scene.names(), [""; 0], "whoever looks makes nothing");
}

fn full() {
    let scene = Scene::new();
    for args in [&["ls"][..], &["ls", "--json"], &["man"], &["completions", "bash"]] {
        let full = fs::File::create("/dev/full").unwrap();
        let mut command = scene.command(CENOTE);
        command.args(args).stdout(full).stderr(Stdio::piped());
        let done = Done::of_child(command.spawn().unwrap());
        one_line(&done, 1, &["writing the output failed", "No space left"]);
    }
}

fn nonsense() {
    let scene = Scene::new();
    for name in ["a b", "..", "", "-", "a//b"] {
        let done = scene.cenote(&["topic", "info", "--", name]);
        one_line(&done, 2, &["name"]);
    }
    let done = Done::of(scene.command(CENOTE).arg("ls").env("CENOTE_DIR", "relative"));
    one_line(&done, 2, &["CENOTE_DIR", "absolute path"]);
    let done = Done::of(scene.command(CENOTE).arg("ls").env("CENOTE_NAMESPACE", "a/b"));
    one_line(&done, 2, &["CENOTE_NAMESPACE"]);
    for args in [
        &["nonsense"][..],
        &["topic"],
        &["topic", "hz"],
        &["topic", "hz", "x", "-i", "0"],
        &["topic", "hz", "x", "-i", "nan"],
        &["topic", "pub", "x", "--rate", "0"],
        &["topic", "pub", "x", "--size", "0x0"],
        &["demo", "--seconds", "0"],
        &["bench", "--size", "huge"],
        &["completions", "cmd.exe"],
    ] {
        let done = scene.cenote(args);
        assert!(done.code == 2 && !done.stderr.is_empty() && done.stdout.is_empty(), "{args:?}");
    }
}

/// A user to whom the directory is closed: this one, unless it may do everything.
fn permission() {
    let scene = Scene::new();
    let closed = scene.0.join("closed");
    fs::create_dir(&closed).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).unwrap();
    fs::set_permissions(&scene.0, fs::Permissions::from_mode(0o755)).unwrap();
    let program = scene.program();
    for args in
        [&["ls"][..], &["topic", "list"], &["topic", "info", "x"], &["pool", "stat"], &["gc"]]
    {
        let mut command = scene.command(&program);
        command.args(args).env("CENOTE_DIR", &closed);
        if fs::read_dir(&closed).is_ok() {
            command.uid(65534).gid(65534);
        }
        one_line(&Done::of(&mut command), 5, &["closed", "ermission denied"]);
    }
    // Files, and where a demo would have its namespace.
    let secret = scene.path("closed/secret.png");
    for args in [
        &["topic", "pub", "x", &secret][..],
        &["topic", "pub", "x", &secret.replace("png", "npy")],
        &["man", "--out", &secret],
        &["demo"],
        &["bench"],
    ] {
        let mut command = scene.command(&program);
        command.args(args).env("CENOTE_DIR", &closed);
        if fs::read_dir(&closed).is_ok() {
            command.uid(65534).gid(65534);
        }
        one_line(&Done::of(&mut command), 5, &["closed", "ermission denied"]);
    }
}

fn files() {
    let scene = Scene::new();
    for name in ["missing.png", "missing.npy"] {
        one_line(&scene.cenote(&["topic", "pub", "x", name]), 3, &[name, "No such file"]);
    }
    one_line(&scene.cenote(&["topic", "pub", "x", "picture.gif"]), 2, &[".png and .npy"]);
    one_line(&scene.cenote(&["topic", "snap", "x", "picture.gif"]), 2, &[".png, .ply and .npy"]);
    for name in ["bad.png", "bad.npy"] {
        fs::write(scene.0.join(name), "nonsense").unwrap();
        one_line(&scene.cenote(&["topic", "pub", "x", &scene.path(name)]), 1, &[name]);
    }
    let structured =
        "{'descr': [('x', '<f4'), ('y', '<u2')], 'fortran_order': False, 'shape': (2,), }";
    let text = format!("{structured:<117}\n");
    let array = [b"\x93NUMPY\x01\x00\x76\x00", text.as_bytes(), &[0; 12]].concat();
    fs::write(scene.0.join("fields.npy"), array).unwrap();
    let done = scene.cenote(&["topic", "pub", "x", &scene.path("fields.npy")]);
    one_line(&done, 1, &["fields.npy", "structured array"]);
    let _publisher = scene.publisher(&["camera", "--size", "16x16"]);
    let nowhere = scene.path("no/such/dir/x.png");
    for extension in ["png", "npy"] {
        let nowhere = nowhere.replace("png", extension);
        one_line(&scene.cenote(&["topic", "snap", "camera", &nowhere]), 3, &["no/such/dir"]);
    }
    one_line(&scene.cenote(&["man", "--out", &scene.path("bad.png")]), 1, &["bad.png"]);
    // What would be ignored is refused.
    let picture = scene.path("picture.png");
    assert_eq!(scene.cenote(&["topic", "snap", "camera", &picture]).code, 0);
    one_line(&scene.cenote(&["topic", "pub", "x", &picture, "--as", "depth"]), 2, &["--as"]);
    for args in [
        &["topic", "pub", "x", "--as", "depth"][..],
        &["topic", "pub", "x", &picture, "--size", "4k"],
    ] {
        let done = scene.cenote(args);
        assert!(done.code == 2 && done.stdout.is_empty(), "{args:?}: {done:?}");
    }
}

fn bytes() {
    let scene = Scene::new();
    let odd = OsStr::from_bytes(b"odd-\xff-name");
    let _publisher = scene.publisher(&["camera", "--size", "16x16"]);
    let file = scene.0.join(odd).with_extension("png");
    let mut snap = scene.command(CENOTE);
    let done = Done::of(snap.args(["topic", "snap", "camera", "--json"]).arg(&file));
    assert_eq!((done.code, &*done.stderr), (0, ""));
    let snap: serde_json::Value = serde_json::from_str(&done.stdout).unwrap();
    assert!(snap["file"].as_str().unwrap().contains("odd-") && file.exists(), "{snap}");
    // A directory, with something in it to be removed.
    let dir = scene.0.join(odd);
    let mut publisher = scene.command(CENOTE);
    let publisher =
        publisher.args(["topic", "pub", "x"]).env("CENOTE_DIR", &dir).stdout(Stdio::null());
    let publisher = Background(publisher.spawn().unwrap());
    eventually("it is there", || {
        let sockets = fs::read_dir(dir.join("default/topics/x")).into_iter().flatten();
        sockets.flatten().any(|socket| socket.file_name().as_bytes().starts_with(b"x@"))
    });
    publisher.kill();
    for args in [&["ls", "--json"][..], &["gc", "--json"]] {
        let done = Done::of(scene.command(CENOTE).args(args).env("CENOTE_DIR", &dir));
        assert_eq!((done.code, &*done.stderr), (0, ""), "{args:?}");
        assert!(done.stdout.contains("odd-"), "{done:?}");
    }
}

fn dead() {
    let scene = Scene::new();
    let publisher = scene.publisher(&["camera", "--size", "16x16"]);
    let owner = scene.role("owner");
    owner.kill();
    publisher.kill();
    for command in
        [&["topic", "info"][..], &["topic", "hz"], &["topic", "bw"], &["topic", "echo"], &["why"]]
    {
        one_line(&scene.cenote(&[command, &["camera"]].concat()), 3, &["camera", "dead"]);
    }
    one_line(&scene.cenote(&["topic", "snap", "camera", "x.png"]), 3, &["camera", "dead"]);
    for command in ["stat", "holders"] {
        one_line(&scene.cenote(&["pool", command, "maps"]), 3, &["maps"]);
    }
}

fn silence() {
    let scene = Scene::new();
    let args = ["topic", "pub", "x", "--wait", "2", "--timeout", "0.1"];
    one_line(&scene.cenote(&args), 4, &["0 of 2 subscribers"]);
    let _heap = scene.role("heap publisher");
    let done = scene.cenote(&["topic", "hz", "heap", "-c", "1", "-i", "0.1"]);
    one_line(&done, 4, &["nothing was sent"]);
}
