//! Topics and pools that another user may not open.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;

use serde_json::Value;

use crate::Test;
use crate::sandbox::{CAMERA, Finished, Sandbox};

pub(crate) const TESTS: &[Test] = tests![
    a_topic_closed_to_the_user_is_shown_as_closed,
    open_directories_are_listed_beside_closed_ones,
];

fn a_topic_closed_to_the_user_is_shown_as_closed() {
    let sandbox = Sandbox::new();
    let _camera = sandbox.publisher(CAMERA);
    let permit = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    for open in ["", "default", "default/topics", "default/topics/camera.rgb"] {
        permit(&sandbox.0.join(open), 0o755);
    }
    sandbox.sockets().iter().for_each(|socket| permit(socket, 0));
    let program = sandbox.program();
    let run = |args: &[&str]| run_as_other_user(&sandbox, &program, args);
    // First only the socket of the publisher is closed, then also the directory of the topic.
    for mode in [0o755, 0o700] {
        let mine = !rustix::process::geteuid().is_root();
        let mode = if mine && mode == 0o700 { 0 } else { mode };
        permit(&sandbox.0.join("default/topics/camera.rgb"), mode);
        let done = run(&["topic", "info", "camera.rgb"]);
        assert!(done.code == 5 && done.stderr.contains("closed to this user"), "{done:?}");
        for args in [&["topic", "list"][..], &["ls"], &["top", "-c", "1", "-i", "0.1"]] {
            let done = run(args);
            assert!(done.code == 0 && done.stdout.contains("(closed)"), "{args:?}: {done:?}");
        }
        let done = run(&["topic", "list", "--json"]);
        let listed: Value = serde_json::from_str(&done.stdout).unwrap();
        let topic = &listed["topics"][0];
        assert_eq!((&topic["closed"], &topic["answers"]), (&true.into(), &false.into()));
        assert_eq!((&topic["sent"], &topic["subscribers"]), (&Value::Null, &Value::Null));
        let publishers = if mode == 0o755 { 1.into() } else { Value::Null };
        assert_eq!(topic["publishers"], publishers);
    }
    permit(&sandbox.0.join("default/topics/camera.rgb"), 0o755);
}

/// Runs the command as this user, or as the user `nobody` if this is root, to whom everything is open.
fn run_as_other_user(sandbox: &Sandbox, program: &Path, args: &[&str]) -> Finished {
    let mut command = sandbox.command(program);
    if rustix::process::geteuid().is_root() {
        command.uid(65534).gid(65534);
    }
    Finished::of(command.args(args))
}

fn open_directories_are_listed_beside_closed_ones() {
    let sandbox = Sandbox::new();
    let _camera = sandbox.publisher(CAMERA);
    let _owner = sandbox.child("pool owner");
    let program = sandbox.program();
    let permit = |path: &str, mode| {
        fs::set_permissions(sandbox.0.join(path), fs::Permissions::from_mode(mode)).unwrap();
    };
    ["", "default", "default/pools", "default/topics", "default/topics/camera.rgb"]
        .iter()
        .for_each(|open| permit(open, 0o755));
    let listings = [&["ls"][..], &["pool", "stat"], &["top", "-c", "1", "-i", "0.1"]];
    for (closed, seen, hidden) in
        [("default/topics", "maps", "camera.rgb"), ("default/pools", "camera.rgb", "maps")]
    {
        permit(closed, 0);
        let named = ["pool", "stat", seen];
        for args in listings.iter().chain([&&named[..]]) {
            let done = run_as_other_user(&sandbox, &program, args);
            assert_eq!((done.code, done.stderr.lines().count()), (0, 1), "{args:?}: {done:?}");
            let warning = format!("{closed} is closed to this user");
            assert!(done.stderr.contains(&warning), "{args:?}: {done:?}");
            assert!(done.stdout.contains(seen), "{args:?}: {done:?}");
            assert!(!done.stdout.contains(hidden), "{args:?}: {done:?}");
        }
        let done = run_as_other_user(&sandbox, &program, &["pool", "holders", seen]);
        assert_eq!((done.code, done.stderr.lines().count()), (0, 1), "{done:?}");
        permit(closed, 0o755);
    }
    permit("default/topics", 0);
    let done = run_as_other_user(&sandbox, &program, &["topic", "list"]);
    assert!(done.code == 5 && done.stderr.contains("ermission denied"), "{done:?}");
    permit("default/topics", 0o755);
}
