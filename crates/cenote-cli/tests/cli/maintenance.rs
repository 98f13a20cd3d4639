//! `gc`, `doctor`, `completions` and `man`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::Test;
use crate::sandbox::{CAMERA, CENOTE, Finished, Sandbox};

pub(crate) const TESTS: &[Test] = tests![
    gc_removes_sockets_of_dead_processes_only,
    gc_reports_only_what_it_removed,
    doctor_reports_a_healthy_machine,
    doctor_removes_the_directories_that_it_created,
    doctor_checks_whether_the_memlock_limit_applies_to_the_user,
    completions_and_manual_pages_are_printed,
];

fn gc_removes_sockets_of_dead_processes_only() {
    let sandbox = Sandbox::new();
    let dead = sandbox.publisher(CAMERA);
    let _alive = sandbox.child("pool owner");
    assert_eq!(sandbox.json(&["gc"])["removed"], Value::Array(vec![]));
    dead.kill();
    let done = sandbox.cenote(&["topic", "info", "camera.rgb"]);
    assert_eq!((done.code, done.stderr.lines().count()), (3, 1));
    assert!(done.stderr.contains("dead"), "{done:?}");
    let removed = sandbox.json(&["gc"]);
    let removed = removed["removed"].as_array().unwrap();
    assert_eq!(removed.len(), 1);
    assert!(removed[0].as_str().unwrap().contains("topics/camera.rgb/camera.rgb@"));
    assert!(
        !sandbox.0.join("default/topics/camera.rgb").exists(),
        "gc removes the empty directory"
    );
    assert_eq!(sandbox.json(&["gc"])["removed"], Value::Array(vec![]));
    assert_eq!(sandbox.json(&["pool", "stat"])["pools"].as_array().unwrap().len(), 1);
}

/// Directories with names like those of sockets: `gc` can remove neither.
fn gc_reports_only_what_it_removed() {
    let sandbox = Sandbox::new();
    let pools = sandbox.0.join("default/pools");
    for name in ["maps@00000000000000ff", ".00000000000000ff"] {
        fs::create_dir_all(pools.join(name)).unwrap();
    }
    assert_eq!(sandbox.json(&["gc"])["removed"], Value::Array(vec![]));
    assert_eq!(fs::read_dir(&pools).unwrap().count(), 2);
}

fn doctor_reports_a_healthy_machine() {
    let sandbox = Sandbox::new();
    let found = sandbox.json(&["doctor"]);
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
    assert_eq!(sandbox.names(), [""; 0], "it leaves no files");
}

fn doctor_removes_the_directories_that_it_created() {
    let sandbox = Sandbox::new();
    let doctor = |dir: &Path| {
        let done = Finished::of(sandbox.command(CENOTE).arg("doctor").env("CENOTE_DIR", dir));
        assert!(done.code == 0 && done.stdout.contains("went through a pool"), "{done:?}");
    };
    let fresh = sandbox.0.join("fresh");
    doctor(&fresh);
    assert!(!fresh.exists(), "{:?}", sandbox.names());
    // Existing directories stay.
    let pools = sandbox.0.join("default/pools");
    fs::create_dir_all(&pools).unwrap();
    doctor(&sandbox.0);
    assert!(pools.exists());
    fs::remove_dir(&pools).unwrap();
    doctor(&sandbox.0);
    assert_eq!((pools.exists(), sandbox.names()), (false, vec!["default".to_owned()]));
}

/// A limit of 64 kB is reported, unless this user is exempt from it.
fn doctor_checks_whether_the_memlock_limit_applies_to_the_user() {
    let sandbox = Sandbox::new();
    let open = fs::Permissions::from_mode(0o777);
    fs::set_permissions(&sandbox.0, open).unwrap();
    let program = sandbox.program();
    let locked = |command: &mut Command| {
        let script = "ulimit -l 64 && exec \"$0\" doctor --json";
        let done = Finished::of(command.args(["-c", script]).arg(&program));
        let found: Value = serde_json::from_str(&done.stdout).unwrap();
        let checks = found["checks"].as_array().unwrap().clone();
        checks.into_iter().find(|check| check["name"] == "locked memory").unwrap()
    };
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let set = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap();
    let may = u64::from_str_radix(set.trim(), 16).unwrap() & 1 << 14 != 0
        && fs::read_to_string("/proc/self/uid_map").unwrap().contains("4294967295");
    let check = locked(&mut sandbox.command("bash"));
    let expected = if may { ("works", "unlimited") } else { ("limited", "65.5 kB") };
    assert_eq!((&check["state"], &check["found"]), (&expected.0.into(), &expected.1.into()));
    if rustix::process::geteuid().is_root() {
        let check = locked(sandbox.command("bash").uid(65534).gid(65534));
        assert_eq!((&check["state"], &check["found"]), (&"limited".into(), &"65.5 kB".into()));
    }
}

fn completions_and_manual_pages_are_printed() {
    let sandbox = Sandbox::new();
    for shell in ["bash", "zsh", "fish"] {
        assert!(sandbox.cenote(&["completions", shell]).stdout.contains("topic"), "{shell}");
    }
    let page = sandbox.cenote(&["man"]).stdout;
    assert!(page.contains(".TH cenote 1") && page.contains("doctor"));
    for args in [&["man", "--json"][..], &["completions", "bash", "--json"]] {
        let done = sandbox.cenote(args);
        assert_eq!((done.code, &*done.stdout, done.stderr.lines().count()), (2, "", 1), "{args:?}");
    }
    assert_eq!(sandbox.cenote(&["man", "--out", &sandbox.path("man")]).code, 0);
    let pages = fs::read_dir(sandbox.0.join("man")).unwrap().count();
    assert!(pages > 15, "{pages}");
}
