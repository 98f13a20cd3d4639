//! What another user sees of what is closed to him.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;

use serde_json::Value;

use super::Test;
use crate::looking::{CAMERA, sockets};
use crate::scene::{Done, Scene};

pub(crate) const TESTS: &[Test] = &[
    ("what_is_closed_to_a_user_is_said_to_be", closed),
    ("what_is_open_is_shown_beside_what_is_closed", half_closed),
];

fn closed() {
    let scene = Scene::new();
    let _camera = scene.publisher(CAMERA);
    let permit = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    for open in ["", "default", "default/topics", "default/topics/camera.rgb"] {
        permit(&scene.0.join(open), 0o755);
    }
    sockets(&scene).iter().for_each(|socket| permit(socket, 0));
    let program = scene.program();
    let run = |args: &[&str]| somebody_else(&scene, &program, args);
    // The publisher, and then the topic.
    for mode in [0o755, 0o700] {
        let mine = !rustix::process::geteuid().is_root();
        let mode = if mine && mode == 0o700 { 0 } else { mode };
        permit(&scene.0.join("default/topics/camera.rgb"), mode);
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
    permit(&scene.0.join("default/topics/camera.rgb"), 0o755);
}

/// Root may do anything, so it is nobody who runs the command then.
fn somebody_else(scene: &Scene, program: &Path, args: &[&str]) -> Done {
    let mut command = scene.command(program);
    if rustix::process::geteuid().is_root() {
        command.uid(65534).gid(65534);
    }
    Done::of(command.args(args))
}

fn half_closed() {
    let scene = Scene::new();
    let _camera = scene.publisher(CAMERA);
    let _owner = scene.role("owner");
    let program = scene.program();
    let permit = |path: &str, mode| {
        fs::set_permissions(scene.0.join(path), fs::Permissions::from_mode(mode)).unwrap();
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
            let done = somebody_else(&scene, &program, args);
            assert_eq!((done.code, done.stderr.lines().count()), (0, 1), "{args:?}: {done:?}");
            let told = format!("{closed} is closed to this user");
            assert!(done.stderr.contains(&told), "{args:?}: {done:?}");
            assert!(done.stdout.contains(seen), "{args:?}: {done:?}");
            assert!(!done.stdout.contains(hidden), "{args:?}: {done:?}");
        }
        let done = somebody_else(&scene, &program, &["pool", "holders", seen]);
        assert_eq!((done.code, done.stderr.lines().count()), (0, 1), "{done:?}");
        permit(closed, 0o755);
    }
    permit("default/topics", 0);
    let done = somebody_else(&scene, &program, &["topic", "list"]);
    assert!(done.code == 5 && done.stderr.contains("ermission denied"), "{done:?}");
    permit("default/topics", 0o755);
}
