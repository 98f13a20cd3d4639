//! A temporary socket directory, and the processes that a test runs in it.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions};
use serde_json::Value;

use crate::child;

/// How long a test waits for a condition.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The binary under test.
pub(crate) const CENOTE: &str = env!("CARGO_BIN_EXE_cenote");

/// The arguments of a publisher of small images, for [`Sandbox::publisher`].
pub(crate) const CAMERA: &[&str] = &["camera.rgb", "--size", "64x48", "--rate", "100"];

/// Waits until a condition holds. Panics after [`TIMEOUT`].
pub(crate) fn eventually(what: &str, holds: impl FnMut() -> bool) {
    assert!(becomes_true(holds), "not after a minute: {what}");
}

/// Waits until a condition holds. Returns false after [`TIMEOUT`].
pub(crate) fn becomes_true(mut holds: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while !holds() {
        if start.elapsed() >= TIMEOUT {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    true
}

/// A temporary socket directory. Dropping it removes the directory.
pub(crate) struct Sandbox(pub(crate) PathBuf);

impl Sandbox {
    pub(crate) fn new() -> Sandbox {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("cenote-cli-{}-{number}", std::process::id()));
        fs::create_dir(&dir).unwrap();
        Sandbox(dir)
    }

    /// A program that uses this socket directory.
    pub(crate) fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(program.as_ref());
        command.env("CENOTE_DIR", &self.0).env_remove("CENOTE_NAMESPACE").stdin(Stdio::null());
        command
    }

    /// Runs the command until it ends.
    pub(crate) fn cenote(&self, args: &[&str]) -> Finished {
        Finished::of(self.command(CENOTE).args(args))
    }

    /// Starts the command, with pipes for its output.
    pub(crate) fn start(&self, args: &[&str]) -> Process {
        let mut command = self.command(CENOTE);
        command.args(args).stdout(Stdio::piped()).stderr(Stdio::piped());
        Process(command.spawn().unwrap())
    }

    /// Runs the command with `--json`, and parses its output. The command must succeed without a warning.
    pub(crate) fn json(&self, args: &[&str]) -> Value {
        let done = self.cenote(&[args, &["--json"]].concat());
        assert_eq!((done.code, &*done.stderr), (0, ""), "{args:?}");
        serde_json::from_str(&done.stdout).unwrap()
    }

    /// Like [`Sandbox::json`], for a command that prints one object per line.
    pub(crate) fn json_lines(&self, args: &[&str]) -> Vec<Value> {
        let done = self.cenote(&[args, &["--json"]].concat());
        assert_eq!((done.code, &*done.stderr), (0, ""), "{args:?}");
        done.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Starts `cenote topic pub`, and waits until it has sent a message.
    pub(crate) fn publisher(&self, args: &[&str]) -> Process {
        let mut command = self.command(CENOTE);
        command.args(["topic", "pub"]).args(args).stdout(Stdio::null());
        let publisher = Process(command.spawn().unwrap());
        eventually("the publisher sends", || {
            let done = self.cenote(&["topic", "info", args[0], "--json"]);
            let sent = |info: Value| info["publishers"][0]["sent"].as_u64();
            serde_json::from_str(&done.stdout).ok().and_then(sent).is_some_and(|sent| sent > 0)
        });
        publisher
    }

    /// Starts this program in a role, and waits until it is ready.
    pub(crate) fn child(&self, role: &str) -> Process {
        self.start_child(role, Stdio::null())
    }

    /// Like [`Sandbox::child`], for a role that acts only on [`Process::step`].
    pub(crate) fn stepped_child(&self, role: &str) -> Process {
        self.start_child(role, Stdio::piped())
    }

    fn start_child(&self, role: &str, stdin: Stdio) -> Process {
        let mut command = self.command(std::env::current_exe().unwrap());
        command.env(child::ROLE, role).stdin(stdin).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child::await_ready(child.stdout.as_mut().unwrap());
        Process(child)
    }

    /// A copy of the command that every user may run. `cp` copies it: if this process opened the copy for writing, a
    /// child that another test starts at that moment would inherit the descriptor, and the kernel runs no file
    /// that is open for writing.
    pub(crate) fn program(&self) -> PathBuf {
        let program = self.0.join("cenote");
        assert!(Command::new("cp").arg(CENOTE).arg(&program).status().unwrap().success());
        program
    }

    /// The names of the files in the directory.
    pub(crate) fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    /// The path of a file in the directory.
    pub(crate) fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    /// The sockets of the publishers of `camera.rgb`.
    pub(crate) fn sockets(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.0.join("default/topics/camera.rgb")).unwrap();
        entries.map(|entry| entry.unwrap().path()).collect()
    }

    /// The slots of the pool of `camera.rgb` that a process holds; `None` if it is not attached.
    pub(crate) fn slots_held_by(&self, pid: i64) -> Option<u64> {
        let held = self.json(&["pool", "holders", "camera.rgb"]);
        let processes = held["pools"][0]["processes"].as_array().unwrap();
        processes.iter().find(|process| process["pid"] == pid)?["slots"].as_u64()
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A running process. Dropping it kills it.
pub(crate) struct Process(pub(crate) Child);

impl Process {
    pub(crate) fn pid(&self) -> i64 {
        self.0.id().into()
    }

    /// Makes a stepped child act once, and waits until it has.
    pub(crate) fn step(&mut self) {
        self.0.stdin.as_mut().unwrap().write_all(b"!").unwrap();
        child::await_ready(self.0.stdout.as_mut().unwrap());
    }

    /// Sends a signal. After SIGSTOP it waits until all threads of the process are stopped.
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.0);
        rustix::process::kill_process(pid, signal).unwrap();
        if signal == Signal::STOP {
            rustix::process::waitpid(Some(pid), WaitOptions::UNTRACED).unwrap();
        }
    }

    /// Waits until the process ends.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let mut ended = None;
        eventually("the process ends", || {
            ended = self.0.try_wait().unwrap();
            ended.is_some()
        });
        ended.unwrap()
    }

    /// Kills the process with SIGKILL.
    pub(crate) fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The exit code and the output of a command that has ended.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Finished {
    /// Runs a command until it ends.
    pub(crate) fn of(command: &mut Command) -> Finished {
        Finished::of_output(command.output().unwrap())
    }

    /// Waits until a child ends whose standard output need not be a pipe.
    pub(crate) fn of_child(child: Child) -> Finished {
        Finished::of_output(child.wait_with_output().unwrap())
    }

    fn of_output(output: Output) -> Finished {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let code = output.status.code().unwrap_or(-1);
        Finished { code, stdout: text(output.stdout), stderr: text(output.stderr) }
    }
}
