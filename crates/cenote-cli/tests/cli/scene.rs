//! A directory in which processes meet, and the command run in it.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions};
use serde_json::Value;

use crate::role;

/// As good as for ever in a test.
const LONG: Duration = Duration::from_secs(60);

pub(crate) const CENOTE: &str = env!("CARGO_BIN_EXE_cenote");

/// Waits until something is true.
pub(crate) fn eventually(what: &str, holds: impl FnMut() -> bool) {
    assert!(happens(holds), "not after a minute: {what}");
}

/// Whether something becomes true.
pub(crate) fn happens(mut holds: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while !holds() {
        if start.elapsed() >= LONG {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    true
}

/// A directory of its own, removed in the end.
pub(crate) struct Scene(pub(crate) PathBuf);

impl Scene {
    pub(crate) fn new() -> Scene {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("cenote-cli-{}-{number}", std::process::id()));
        fs::create_dir(&dir).unwrap();
        Scene(dir)
    }

    /// A program that meets others here.
    pub(crate) fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(program.as_ref());
        command.env("CENOTE_DIR", &self.0).env_remove("CENOTE_NAMESPACE").stdin(Stdio::null());
        command
    }

    /// Runs the command to its end.
    pub(crate) fn cenote(&self, args: &[&str]) -> Done {
        Done::of(self.command(CENOTE).args(args))
    }

    /// Runs it, successfully, with `--json`, and reads what it says.
    pub(crate) fn json(&self, args: &[&str]) -> Value {
        let done = self.cenote(&[args, &["--json"]].concat());
        assert_eq!((done.code, &*done.stderr), (0, ""), "{args:?}");
        serde_json::from_str(&done.stdout).unwrap()
    }

    /// Runs it, successfully, with `--json`, and reads what it says line by line.
    pub(crate) fn json_lines(&self, args: &[&str]) -> Vec<Value> {
        let done = self.cenote(&[args, &["--json"]].concat());
        assert_eq!((done.code, &*done.stderr), (0, ""), "{args:?}");
        done.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// A publisher that goes on until it is dropped.
    pub(crate) fn publisher(&self, args: &[&str]) -> Background {
        let mut command = self.command(CENOTE);
        command.args(["topic", "pub"]).args(args).stdout(Stdio::null());
        let publisher = Background(command.spawn().unwrap());
        eventually("it sends", || {
            let done = self.cenote(&["topic", "info", args[0], "--json"]);
            let sent = |info: Value| info["publishers"][0]["sent"].as_u64();
            serde_json::from_str(&done.stdout).ok().and_then(sent).is_some_and(|sent| sent > 0)
        });
        publisher
    }

    /// This program in a role, until it is dropped. It has said that it is ready.
    pub(crate) fn role(&self, role: &str) -> Background {
        let this = std::env::current_exe().unwrap();
        let mut child =
            self.command(this).env(role::ROLE, role).stdout(Stdio::piped()).spawn().unwrap();
        role::await_ready(child.stdout.as_mut().unwrap());
        Background(child)
    }

    /// This program in a role in which it does something whenever it is told to.
    pub(crate) fn told(&self, role: &str) -> Background {
        let mut command = self.command(std::env::current_exe().unwrap());
        command.env(role::ROLE, role).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        role::await_ready(child.stdout.as_mut().unwrap());
        Background(child)
    }

    /// The command, where every user reaches it. Another process copies it: what is open for writing here,
    /// if only in a child that another test is just starting, cannot be run.
    pub(crate) fn program(&self) -> PathBuf {
        let program = self.0.join("cenote");
        assert!(Command::new("cp").arg(CENOTE).arg(&program).status().unwrap().success());
        program
    }

    /// The names of what is in the directory.
    pub(crate) fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A process, until it is dropped.
pub(crate) struct Background(pub(crate) Child);

impl Background {
    pub(crate) fn pid(&self) -> i64 {
        self.0.id().into()
    }

    /// Has it do what it does when it is told to.
    pub(crate) fn tell(&mut self) {
        self.0.stdin.as_mut().unwrap().write_all(b"!").unwrap();
        role::await_ready(self.0.stdout.as_mut().unwrap());
    }

    /// Sends it a signal. One that is to stop it has, all of its threads, when this returns.
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.0);
        rustix::process::kill_process(pid, signal).unwrap();
        if signal == Signal::STOP {
            rustix::process::waitpid(Some(pid), WaitOptions::UNTRACED).unwrap();
        }
    }

    /// Waits for its end.
    pub(crate) fn ends(&mut self) -> ExitStatus {
        let mut ended = None;
        eventually("it ends", || {
            ended = self.0.try_wait().unwrap();
            ended.is_some()
        });
        ended.unwrap()
    }

    /// Kills it, as SIGKILL does.
    pub(crate) fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What a command came to.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Done {
    pub(crate) fn of(command: &mut Command) -> Done {
        Done::of_output(command.output().unwrap())
    }

    /// One whose output goes elsewhere.
    pub(crate) fn of_child(child: Child) -> Done {
        Done::of_output(child.wait_with_output().unwrap())
    }

    fn of_output(output: Output) -> Done {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let code = output.status.code().unwrap_or(-1);
        Done { code, stdout: text(output.stdout), stderr: text(output.stderr) }
    }
}
