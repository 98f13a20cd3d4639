//! Child processes: this same program in a role, which answers each line with a line.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};

use rustix::process::{Signal, set_parent_process_death_signal};

pub(crate) use super::program::ROLE;

/// A child process. It is killed and reaped when dropped, and dies with its parent.
pub(crate) struct Peer {
    child: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
}

impl Peer {
    pub(crate) fn start(role: &str) -> Peer {
        Peer::run(&mut command(role))
    }

    /// Starts a command that becomes, or starts, this program in a role.
    pub(crate) fn run(command: &mut Command) -> Peer {
        dies_with_parent(command);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let to = child.stdin.take();
        let from = BufReader::new(child.stdout.take().unwrap());
        Peer { child, to, from }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a line, and returns the answer: empty if the child has ended.
    pub(crate) fn request(&mut self, line: &str) -> String {
        self.write_line(line);
        self.read_line()
    }

    pub(crate) fn write_line(&mut self, line: &str) {
        if let Some(to) = &mut self.to {
            let _ = writeln!(to, "{line}");
        }
    }

    pub(crate) fn read_line(&mut self) -> String {
        let mut answer = String::new();
        let _ = self.from.read_line(&mut answer);
        answer.trim_end().to_owned()
    }

    /// Sends a signal. After `SIGSTOP`, waits until all threads of the child have stopped.
    #[allow(unsafe_code, reason = "kill, waitpid")]
    pub(crate) fn signal(&self, signal: i32) {
        let pid = self.child.id().cast_signed();
        // SAFETY: our own child, which has not been reaped.
        assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
        if signal == libc::SIGSTOP {
            // SAFETY: as above. The status pointer may be null.
            let waited = unsafe { libc::waitpid(pid, std::ptr::null_mut(), libc::WUNTRACED) };
            assert_eq!(waited, pid);
        }
    }

    /// Waits until it has ended.
    pub(crate) fn wait(mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }

    /// Kills it, and waits until it has ended.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Closes its input and waits until it has ended. Panics if a signal killed it.
    pub(crate) fn finish(mut self) -> ExitStatus {
        self.to = None;
        let status = self.child.wait().unwrap();
        assert_eq!(status.signal(), None, "the child was killed: {status}");
        status
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A command that runs this program in a role.
pub(crate) fn command(role: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.env(ROLE, role);
    command
}

/// Lets signals of a fault kill the child. A sanitizer would handle them; without one the variable has
/// no effect.
pub(crate) fn without_signal_handlers(command: &mut Command) -> &mut Command {
    let options = std::env::var("ASAN_OPTIONS").unwrap_or_default();
    command.env("ASAN_OPTIONS", format!("{options}:handle_segv=0:handle_sigbus=0"))
}

#[allow(unsafe_code, reason = "a call between fork and exec")]
fn dies_with_parent(command: &mut Command) {
    let killed = || Ok(set_parent_process_death_signal(Some(Signal::KILL))?);
    // SAFETY: prctl(2) is async-signal-safe, and nothing else happens there.
    unsafe { command.pre_exec(killed) };
}

/// Answers each line of standard input until its end.
pub(crate) fn serve(mut answer: impl FnMut(&[&str]) -> String) {
    for line in std::io::stdin().lines() {
        let Ok(line) = line else { return };
        let words: Vec<&str> = line.split(' ').collect();
        println!("{}", answer(&words));
    }
}

/// `ok`, or the text of the error.
pub(crate) fn reply<T>(result: cenote::Result<T>) -> String {
    result.map_or_else(|error| format!("{error}"), |_| "ok".to_owned())
}

/// A command that runs a shell script, with this program as `$1`.
pub(crate) fn shell(script: &str, program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("/bin/sh");
    command.arg("-euc").arg(script).arg("sh").arg(program);
    command
}
