//! Runs the measuring process, and removes the files of the run whatever ends it.
//!
//! The process that cleans up must survive whatever ends the measurement. So a run is two processes: the supervisor, which
//! waits, and the same program again, which measures. When the second ends, the first removes the directories. When the
//! first ends, the kernel kills the second, and the next run removes the directories.

use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{WaitOptions, set_child_subreaper, wait};
use signal_hook::consts::{SIGCHLD, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::Result;
use crate::run_dir::{RunDir, VARIABLE};

/// How long the processes may take to end that die with the measuring process.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Starts the measuring process, and waits until it ends. Returns its exit code, or 128 plus the number of the signal
/// that ended it, like a shell.
pub(crate) fn measure(run: &RunDir) -> Result<u8> {
    let mut signals = Signals::new([SIGCHLD, SIGINT, SIGTERM])?;
    // Makes this process the parent of processes whose own parent was killed, so that it can wait for them.
    set_child_subreaper(Some(rustix::process::getpid()))?;
    let mut child = Command::new(std::env::current_exe()?)
        .args(std::env::args_os().skip(1))
        .env(VARIABLE, run.path())
        .env("CENOTE_DIR", run.memory())
        .spawn()?;
    let code = wait_or_kill(&mut child, &mut signals)?;
    await_descendants();
    Ok(code)
}

/// Waits until the child ends, or kills it if a signal interrupts this process.
fn wait_or_kill(child: &mut Child, signals: &mut Signals) -> Result<u8> {
    loop {
        for signal in signals.wait() {
            if signal != SIGCHLD {
                child.kill()?;
                child.wait()?;
                return Ok(u8::try_from(128 + signal)?);
            }
            if let Some(status) = child.try_wait()? {
                return Ok(code(status)?);
            }
        }
    }
}

fn code(status: ExitStatus) -> std::result::Result<u8, std::num::TryFromIntError> {
    let killed = status.signal().map(|signal| 128 + signal);
    u8::try_from(status.code().or(killed).unwrap_or(2))
}

/// Waits until the children of the measuring process have ended, too.
fn await_descendants() {
    let since = Instant::now();
    while since.elapsed() < TIMEOUT {
        match wait(WaitOptions::NOHANG) {
            Ok(Some(_)) => {}
            Ok(None) => thread::sleep(Duration::from_millis(1)),
            Err(_) => return,
        }
    }
}
