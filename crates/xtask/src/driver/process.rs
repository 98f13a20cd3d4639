//! A child process with a time limit.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group, test_kill_process_group};

/// How often a waiting process looks at its children.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A process that SIGTERM does not end is killed after this time.
const KILL_AFTER: Duration = Duration::from_secs(10);

/// What a signal reaches.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Scope {
    /// The child alone.
    Process,
    /// The process group that the child leads.
    Group,
}

pub(crate) struct Supervised {
    child: Child,
    scope: Scope,
    deadline: Instant,
    /// When SIGTERM was sent.
    terminated: Option<Instant>,
    timed_out: bool,
}

pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) timed_out: bool,
}

impl Supervised {
    pub(crate) fn new(child: Child, scope: Scope, limit: Duration) -> Supervised {
        let deadline = Instant::now() + limit;
        Supervised { child, scope, deadline, terminated: None, timed_out: false }
    }

    /// Starts a command as the leader of a new process group. Ctrl-C on the terminal does not reach
    /// it: the parent must `terminate` it.
    pub(super) fn group(command: &mut Command, limit: Duration) -> io::Result<Supervised> {
        Ok(Supervised::new(command.process_group(0).spawn()?, Scope::Group, limit))
    }

    /// Returns how it ended, or `None` while it runs. Ends it when its time is over.
    pub(super) fn poll(&mut self) -> io::Result<Option<Ended>> {
        if let Some(status) = self.child.try_wait()? {
            if let Some(since) = self.terminated {
                self.end_group(since);
            }
            return Ok(Some(Ended { status, timed_out: self.timed_out }));
        }
        match self.terminated {
            None if Instant::now() >= self.deadline => {
                self.timed_out = true;
                self.terminate();
            }
            Some(since) if since.elapsed() >= KILL_AFTER => self.send(Signal::KILL),
            _ => {}
        }
        Ok(None)
    }

    /// Waits until it has ended.
    pub(crate) fn wait(mut self) -> io::Result<Ended> {
        loop {
            if let Some(ended) = self.poll()? {
                return Ok(ended);
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Sends SIGTERM. `poll` sends SIGKILL if that does not end it.
    pub(super) fn terminate(&mut self) {
        if self.terminated.is_none() {
            self.terminated = Some(Instant::now());
            self.send(Signal::TERM);
        }
    }

    /// Waits until the group of a terminated child is empty, and kills what is left after `KILL_AFTER`.
    /// The number of the group is not used for another one while it has a process.
    fn end_group(&self, terminated: Instant) {
        let Some(group) = self.pid().filter(|_| self.scope == Scope::Group) else { return };
        while test_kill_process_group(group).is_ok() {
            if terminated.elapsed() >= KILL_AFTER {
                self.send(Signal::KILL);
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    fn send(&self, signal: Signal) {
        let Some(pid) = self.pid() else { return };
        // An error means that there is no process left to end.
        let _ = match self.scope {
            Scope::Process => kill_process(pid, signal),
            Scope::Group => kill_process_group(pid, signal),
        };
    }

    fn pid(&self) -> Option<Pid> {
        i32::try_from(self.child.id()).ok().and_then(Pid::from_raw)
    }
}

/// This program again. `/proc/self/exe` is the running file even if a new build has replaced it.
pub(super) fn own_program() -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("xtask").arg("test");
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, limit: Duration) -> Supervised {
        Supervised::group(Command::new("sh").args(["-c", script]), limit).unwrap()
    }

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn an_exit_code_is_passed_on() {
        let ended = shell("exit 7", MINUTE).wait().unwrap();
        assert_eq!((ended.status.code(), ended.timed_out), (Some(7), false));
    }

    #[test]
    fn a_hang_ends_at_the_limit_with_all_its_children() {
        let start = Instant::now();
        // The shell waits for a child, which holds the pipe open until it ends, too.
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 50; true"]).stdout(std::process::Stdio::piped());
        let mut hanging = Supervised::group(&mut command, Duration::from_millis(100)).unwrap();
        let mut pipe = hanging.child.stdout.take().unwrap();
        let ended = hanging.wait().unwrap();
        assert!(ended.timed_out && !ended.status.success());
        io::copy(&mut pipe, &mut io::sink()).unwrap();
        assert!(start.elapsed() < Duration::from_secs(40));
    }

    #[test]
    fn the_group_ends_even_if_its_leader_ends_first_and_a_child_ignores_sigterm() {
        let script = "(trap '' TERM; sleep 1) & trap 'exit 5' TERM; sleep 50 & wait";
        let running = shell(script, Duration::from_millis(300));
        let group = running.pid().unwrap();
        let ended = running.wait().unwrap();
        assert!(ended.timed_out);
        assert!(test_kill_process_group(group).is_err(), "a process of the group is left");
    }

    #[test]
    fn an_interrupted_process_did_not_time_out() {
        let mut running = shell("sleep 50", MINUTE);
        running.terminate();
        let ended = running.wait().unwrap();
        assert!(!ended.timed_out && !ended.status.success());
    }
}
