//! Signals by which a shell stops a program for a while (Ctrl-Z) and has it go on (`fg`). They are noted, so
//! that the terminal is handed over first, and taken back.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::{
    Pid, Signal, getpgid, getpgrp, getpid, getppid, getsid, kill_current_process_group,
    kill_process,
};
use signal_hook::consts::{SIGCONT, SIGTSTP};
use signal_hook::flag;

use crate::failure::Outcome;

/// Whether this program is asked to stop, or was stopped.
#[derive(Debug)]
pub(crate) struct Pause {
    asked: Arc<AtomicBool>,
    over: Arc<AtomicBool>,
}

impl Pause {
    /// Notes it from here on.
    pub(crate) fn listen() -> Outcome<Pause> {
        let pause = Pause { asked: Arc::default(), over: Arc::default() };
        flag::register(SIGTSTP, pause.asked.clone())?;
        flag::register(SIGCONT, pause.over.clone())?;
        Ok(pause)
    }

    /// Whether it is to stop, and was not told to go on since. That is not for programs which nobody would have
    /// go on.
    pub(crate) fn is_asked(&self) -> bool {
        let over = self.over.load(Ordering::Relaxed);
        self.asked.swap(false, Ordering::Relaxed) && !over && has_shell()
    }

    /// Whether it was stopped, by whatever, and goes on.
    pub(crate) fn is_over(&self) -> bool {
        self.over.swap(false, Ordering::Relaxed)
    }

    /// Stops, until somebody has it go on.
    pub(crate) fn stop(&self) -> Outcome {
        Ok(kill_process(getpid(), Signal::STOP).map_err(std::io::Error::from)?)
    }
}

/// What Ctrl-Z is where the terminal makes no signal of it: it is for all processes of the job.
pub(crate) fn by_key() -> Outcome {
    Ok(kill_current_process_group(Signal::TSTP).map_err(std::io::Error::from)?)
}

/// Whether an ancestor is in this session, but not in this job. (POSIX calls a job orphaned that has nobody
/// like that; the system, too, does not stop such a one.)
fn has_shell() -> bool {
    let (Ok(session), group) = (getsid(None), getpgrp()) else { return false };
    let mut ancestor = getppid();
    while let Some(pid) = ancestor
        && getsid(Some(pid)) == Ok(session)
    {
        if getpgid(Some(pid)) != Ok(group) {
            return true;
        }
        ancestor = parent(pid);
    }
    false
}

/// The second field after the name, which is in brackets and may have anything in it: see proc(5).
fn parent(pid: Pid) -> Option<Pid> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    Pid::from_raw(fields.split_whitespace().nth(1)?.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parent_of_a_process_is_found() {
        assert_eq!(parent(getpid()), getppid());
        assert_eq!(parent(Pid::INIT), None);
    }
}
