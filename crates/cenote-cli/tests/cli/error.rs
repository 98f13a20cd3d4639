//! Failures: one line on standard error, and an exit code.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Stdio;

use crate::Test;
use crate::sandbox::{CAMERA, CENOTE, Finished, Process, Sandbox, eventually};

pub(crate) const TESTS: &[Test] = tests![
    a_missing_topic_pool_or_namespace_is_reported,
    a_missing_cenote_dir_is_a_warning,
    a_failed_write_of_the_output_is_reported,
    invalid_arguments_and_names_are_refused,
    missing_permissions_are_reported,
    missing_and_invalid_files_are_refused,
    file_names_need_not_be_utf8,
    dead_publishers_and_owners_are_reported,
    a_timeout_is_reported,
    a_closed_output_pipe_is_no_error,
];

/// Asserts the exit code, and one line on standard error that contains these words.
fn assert_error(done: &Finished, code: i32, words: &[&str]) {
    assert_eq!((done.code, done.stderr.lines().count()), (code, 1), "{done:?}");
    assert!(done.stderr.starts_with("cenote: "), "{done:?}");
    words.iter().for_each(|word| assert!(done.stderr.contains(word), "{word}: {done:?}"));
}

fn a_missing_topic_pool_or_namespace_is_reported() {
    let sandbox = Sandbox::new();
    for command in ["info", "hz", "bw", "echo"] {
        assert_error(&sandbox.cenote(&["topic", command, "camera"]), 3, &["camera", "topic list"]);
    }
    assert_error(&sandbox.cenote(&["topic", "snap", "camera", "x.png"]), 3, &["camera"]);
    assert_error(&sandbox.cenote(&["why", "camera"]), 3, &["camera"]);
    for command in ["stat", "holders"] {
        assert_error(&sandbox.cenote(&["pool", command, "maps"]), 3, &["maps", "cenote ls"]);
    }
    for args in [&["ls"][..], &["topic", "list"], &["top"], &["gc"], &["pool", "stat"]] {
        let done =
            Finished::of(sandbox.command(CENOTE).args(args).env("CENOTE_NAMESPACE", "robot7"));
        assert_error(&done, 3, &["robot7"]);
    }
}

fn a_missing_cenote_dir_is_a_warning() {
    let sandbox = Sandbox::new();
    let nowhere = sandbox.path("nowhere");
    let run = |args: &[&str]| {
        Finished::of(sandbox.command(CENOTE).args(args).env("CENOTE_DIR", &nowhere))
    };
    for args in [&["ls"][..], &["topic", "list"], &["pool", "stat"], &["pool", "holders"], &["gc"]]
    {
        assert_error(&run(args), 0, &["CENOTE_DIR", &nowhere]);
        let done = run(&[args, &["--json"]].concat());
        assert_error(&done, 0, &[&nowhere]);
        assert!(serde_json::from_str::<serde_json::Value>(&done.stdout).is_ok(), "{done:?}");
    }
    assert_error(&run(&["top", "-c", "1", "-i", "0.05"]), 0, &["CENOTE_DIR", &nowhere]);
    assert_eq!(sandbox.names(), [""; 0], "no command created a file");
}

fn a_failed_write_of_the_output_is_reported() {
    let sandbox = Sandbox::new();
    for args in [&["ls"][..], &["ls", "--json"], &["man"], &["completions", "bash"]] {
        let full = fs::File::create("/dev/full").unwrap();
        let mut command = sandbox.command(CENOTE);
        command.args(args).stdout(full).stderr(Stdio::piped());
        let done = Finished::of_child(command.spawn().unwrap());
        assert_error(&done, 1, &["writing the output failed", "No space left"]);
    }
}

fn invalid_arguments_and_names_are_refused() {
    let sandbox = Sandbox::new();
    for name in ["a b", "..", "", "-", "a//b"] {
        let done = sandbox.cenote(&["topic", "info", "--", name]);
        assert_error(&done, 2, &["name"]);
    }
    let done = Finished::of(sandbox.command(CENOTE).arg("ls").env("CENOTE_DIR", "relative"));
    assert_error(&done, 2, &["CENOTE_DIR", "absolute path"]);
    let done = Finished::of(sandbox.command(CENOTE).arg("ls").env("CENOTE_NAMESPACE", "a/b"));
    assert_error(&done, 2, &["CENOTE_NAMESPACE"]);
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
        let done = sandbox.cenote(args);
        assert!(done.code == 2 && !done.stderr.is_empty() && done.stdout.is_empty(), "{args:?}");
    }
}

/// A directory without permissions. Root may read it, so then another user runs the command.
fn missing_permissions_are_reported() {
    let sandbox = Sandbox::new();
    let closed = sandbox.0.join("closed");
    fs::create_dir(&closed).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).unwrap();
    fs::set_permissions(&sandbox.0, fs::Permissions::from_mode(0o755)).unwrap();
    let program = sandbox.program();
    for args in
        [&["ls"][..], &["topic", "list"], &["topic", "info", "x"], &["pool", "stat"], &["gc"]]
    {
        let mut command = sandbox.command(&program);
        command.args(args).env("CENOTE_DIR", &closed);
        if fs::read_dir(&closed).is_ok() {
            command.uid(65534).gid(65534);
        }
        assert_error(&Finished::of(&mut command), 5, &["closed", "ermission denied"]);
    }
    // Files, and commands that create a namespace.
    let secret = sandbox.path("closed/secret.png");
    for args in [
        &["topic", "pub", "x", &secret][..],
        &["topic", "pub", "x", &secret.replace("png", "npy")],
        &["man", "--out", &secret],
        &["demo"],
        &["bench"],
    ] {
        let mut command = sandbox.command(&program);
        command.args(args).env("CENOTE_DIR", &closed);
        if fs::read_dir(&closed).is_ok() {
            command.uid(65534).gid(65534);
        }
        assert_error(&Finished::of(&mut command), 5, &["closed", "ermission denied"]);
    }
}

fn missing_and_invalid_files_are_refused() {
    let sandbox = Sandbox::new();
    for name in ["missing.png", "missing.npy"] {
        assert_error(&sandbox.cenote(&["topic", "pub", "x", name]), 3, &[name, "No such file"]);
    }
    assert_error(&sandbox.cenote(&["topic", "pub", "x", "picture.gif"]), 2, &[".png and .npy"]);
    assert_error(
        &sandbox.cenote(&["topic", "snap", "x", "picture.gif"]),
        2,
        &[".png, .ply and .npy"],
    );
    for name in ["bad.png", "bad.npy"] {
        fs::write(sandbox.0.join(name), "nonsense").unwrap();
        assert_error(&sandbox.cenote(&["topic", "pub", "x", &sandbox.path(name)]), 1, &[name]);
    }
    let structured =
        "{'descr': [('x', '<f4'), ('y', '<u2')], 'fortran_order': False, 'shape': (2,), }";
    let text = format!("{structured:<117}\n");
    let array = [b"\x93NUMPY\x01\x00\x76\x00", text.as_bytes(), &[0; 12]].concat();
    fs::write(sandbox.0.join("fields.npy"), array).unwrap();
    let done = sandbox.cenote(&["topic", "pub", "x", &sandbox.path("fields.npy")]);
    assert_error(&done, 1, &["fields.npy", "structured array"]);
    let _publisher = sandbox.publisher(&["camera", "--size", "16x16"]);
    let nowhere = sandbox.path("no/such/dir/x.png");
    for extension in ["png", "npy"] {
        let nowhere = nowhere.replace("png", extension);
        assert_error(&sandbox.cenote(&["topic", "snap", "camera", &nowhere]), 3, &["no/such/dir"]);
    }
    assert_error(&sandbox.cenote(&["man", "--out", &sandbox.path("bad.png")]), 1, &["bad.png"]);
    // Options that would have no effect are refused.
    let picture = sandbox.path("picture.png");
    assert_eq!(sandbox.cenote(&["topic", "snap", "camera", &picture]).code, 0);
    assert_error(&sandbox.cenote(&["topic", "pub", "x", &picture, "--as", "depth"]), 2, &["--as"]);
    for args in [
        &["topic", "pub", "x", "--as", "depth"][..],
        &["topic", "pub", "x", &picture, "--size", "4k"],
    ] {
        let done = sandbox.cenote(args);
        assert!(done.code == 2 && done.stdout.is_empty(), "{args:?}: {done:?}");
    }
}

fn file_names_need_not_be_utf8() {
    let sandbox = Sandbox::new();
    let odd = OsStr::from_bytes(b"odd-\xff-name");
    let _publisher = sandbox.publisher(&["camera", "--size", "16x16"]);
    let file = sandbox.0.join(odd).with_extension("png");
    let mut snap = sandbox.command(CENOTE);
    let done = Finished::of(snap.args(["topic", "snap", "camera", "--json"]).arg(&file));
    assert_eq!((done.code, &*done.stderr), (0, ""));
    let snap: serde_json::Value = serde_json::from_str(&done.stdout).unwrap();
    assert!(snap["file"].as_str().unwrap().contains("odd-") && file.exists(), "{snap}");
    // A socket directory, with the socket of a dead process.
    let dir = sandbox.0.join(odd);
    let mut publisher = sandbox.command(CENOTE);
    let publisher =
        publisher.args(["topic", "pub", "x"]).env("CENOTE_DIR", &dir).stdout(Stdio::null());
    let publisher = Process(publisher.spawn().unwrap());
    eventually("the publisher is listed", || {
        let sockets = fs::read_dir(dir.join("default/topics/x")).into_iter().flatten();
        sockets.flatten().any(|socket| socket.file_name().as_bytes().starts_with(b"x@"))
    });
    publisher.kill();
    for args in [&["ls", "--json"][..], &["gc", "--json"]] {
        let done = Finished::of(sandbox.command(CENOTE).args(args).env("CENOTE_DIR", &dir));
        assert_eq!((done.code, &*done.stderr), (0, ""), "{args:?}");
        assert!(done.stdout.contains("odd-"), "{done:?}");
    }
}

fn dead_publishers_and_owners_are_reported() {
    let sandbox = Sandbox::new();
    let publisher = sandbox.publisher(&["camera", "--size", "16x16"]);
    let owner = sandbox.child("pool owner");
    owner.kill();
    publisher.kill();
    for command in
        [&["topic", "info"][..], &["topic", "hz"], &["topic", "bw"], &["topic", "echo"], &["why"]]
    {
        assert_error(&sandbox.cenote(&[command, &["camera"]].concat()), 3, &["camera", "dead"]);
    }
    assert_error(&sandbox.cenote(&["topic", "snap", "camera", "x.png"]), 3, &["camera", "dead"]);
    for command in ["stat", "holders"] {
        assert_error(&sandbox.cenote(&["pool", command, "maps"]), 3, &["maps"]);
    }
}

fn a_timeout_is_reported() {
    let sandbox = Sandbox::new();
    let args = ["topic", "pub", "x", "--wait", "2", "--timeout", "0.1"];
    assert_error(&sandbox.cenote(&args), 4, &["0 of 2 subscribers"]);
    let _heap = sandbox.child("heap publisher");
    let done = sandbox.cenote(&["topic", "hz", "heap", "-c", "1", "-i", "0.1"]);
    assert_error(&done, 4, &["nothing was sent"]);
}

fn a_closed_output_pipe_is_no_error() {
    let sandbox = Sandbox::new();
    let _camera = sandbox.publisher(CAMERA);
    let mut echo = sandbox
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
