//! The signals by which a shell suspends a program (Ctrl-Z) and continues it (`fg`). Handlers only set flags, so
//! that the program can restore the terminal before it stops, and take it back afterwards.

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

/// The flags that the signal handlers set.
#[derive(Debug)]
pub(crate) struct JobControl {
    suspend_requested: Arc<AtomicBool>,
    continued: Arc<AtomicBool>,
}

impl JobControl {
    /// Registers the signal handlers.
    pub(crate) fn register() -> Outcome<JobControl> {
        let flags = JobControl { suspend_requested: Arc::default(), continued: Arc::default() };
        flag::register(SIGTSTP, flags.suspend_requested.clone())?;
        flag::register(SIGCONT, flags.continued.clone())?;
        Ok(flags)
    }

    /// Whether SIGTSTP arrived and SIGCONT did not. Clears the request. Always false if no shell could continue
    /// the program.
    pub(crate) fn suspend_requested(&self) -> bool {
        let continued = self.continued.load(Ordering::Relaxed);
        self.suspend_requested.swap(false, Ordering::Relaxed) && !continued && has_shell()
    }

    /// Whether the program was suspended, by any signal, and continues. Clears the flag.
    pub(crate) fn has_continued(&self) -> bool {
        self.continued.swap(false, Ordering::Relaxed)
    }

    /// Suspends this program until it receives SIGCONT.
    pub(crate) fn suspend(&self) -> Outcome {
        Ok(kill_process(getpid(), Signal::STOP).map_err(std::io::Error::from)?)
    }
}

/// Sends SIGTSTP to all processes of the job. In raw mode the terminal does not do that on Ctrl-Z.
pub(crate) fn suspend_group() -> Outcome {
    Ok(kill_current_process_group(Signal::TSTP).map_err(std::io::Error::from)?)
}

/// Whether an ancestor is in this session but not in this job, as a shell is. Without one, POSIX calls the job
/// orphaned, and the kernel does not suspend it either.
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

/// The parent of a process: the second field after the name, which is in parentheses and may contain any
/// character (proc(5)).
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
