//! Runs stages one after another, and builds ahead beside them.

use std::env;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{self, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::checkout::Checkout;
use crate::driver::arguments::Selection;
use crate::driver::log::{Counts, count_tests, failure_report, unfinished_tests};
use crate::driver::process::{Ended, POLL_INTERVAL, Supervised, own_program};
use crate::driver::summary::{Outcome, Summary};
use crate::failure::Failure;
use crate::requirements::Requirements;
use crate::stage::Stage;

/// A stage that hangs must leave time to report it.
const STAGE_LIMIT: Duration = Duration::from_secs(30 * 60);

/// What a shell reports for a program that Ctrl-C ended.
const INTERRUPTED: i32 = 130;

pub(super) struct Run {
    checkout: Checkout,
    /// Set for every stage.
    variables: Vec<(&'static str, &'static str)>,
    build_ahead: Option<Supervised>,
    /// Set by Ctrl-C and by SIGTERM.
    interrupted: Arc<AtomicBool>,
    summary: Summary,
}

impl Run {
    pub(super) fn new(checkout: Checkout, variables: Vec<(&'static str, &'static str)>) -> Run {
        let interrupted = Arc::default();
        Run { checkout, variables, build_ahead: None, interrupted, summary: Summary::default() }
    }

    /// Runs every selected stage, even if one fails.
    pub(super) fn stages(mut self, selection: &Selection) -> Result<ExitCode, Failure> {
        fs::create_dir_all(&self.checkout.logs)?;
        let mut requirements = Requirements::default();
        for stage in selection.stages.iter().filter(|stage| !selection.is_skipped(stage)) {
            (stage.require)(&mut requirements);
        }
        requirements.install();
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&self.interrupted))?;
        }
        self.start_build_ahead(&selection.to_build_ahead())?;
        for stage in &selection.stages {
            if selection.is_skipped(stage) {
                self.record(stage, 0, Outcome::Skipped, Counts::default());
            } else {
                self.stage(stage)?;
            }
        }
        self.end_build_ahead()?;
        println!("\n{}", self.summary.report());
        Ok(if self.summary.has_failed() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }

    fn start_build_ahead(&mut self, stages: &[&str]) -> Result<(), Failure> {
        if !stages.is_empty() {
            let mut command = self.own_program();
            command.arg("--build-ahead").args(stages);
            self.build_ahead = Some(Supervised::group(&mut command, STAGE_LIMIT)?);
        }
        Ok(())
    }

    fn end_build_ahead(&mut self) -> io::Result<()> {
        let Some(mut building) = self.build_ahead.take() else { return Ok(()) };
        building.terminate();
        building.wait().map(drop)
    }

    /// This program, for a stage: with the variables of the run, and without input.
    fn own_program(&self) -> Command {
        let mut command = own_program();
        command.envs(self.variables.iter().copied()).stdin(Stdio::null());
        command
    }

    fn stage(&mut self, stage: &Stage) -> Result<(), Failure> {
        println!("== {}: {}", stage.name, stage.about);
        let start = Instant::now();
        let notes = self.checkout.notes(stage.name);
        let _ = fs::remove_file(&notes);
        let log = self.checkout.log(stage.name);
        let outcome = self.in_process(stage, &log)?;

        let text = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
        self.record(stage, start.elapsed().as_secs(), outcome, count_tests(&text));
        Ok(())
    }

    /// Runs the stage in a process group, with its output in `log` and a temporary directory that is
    /// removed afterwards: a test that is killed leaves files.
    fn in_process(&mut self, stage: &Stage, log: &Path) -> Result<Outcome, Failure> {
        let temporary = temporary_folder()?;
        let file = File::create(log)?;
        let mut command = self.own_program();
        command
            .args(["--in-stage", stage.name])
            .env("TMPDIR", &temporary)
            .stdout(file.try_clone()?)
            .stderr(file);
        let ended = Supervised::group(&mut command, STAGE_LIMIT)
            .map_err(Failure::from)
            .and_then(|running| self.wait_for(running, &temporary));
        remove_folder(&temporary);
        Ok(outcome_of(&ended?))
    }

    /// Waits for a stage, and meanwhile keeps the build ahead within its time and looks for Ctrl-C.
    fn wait_for(&mut self, mut running: Supervised, temporary: &Path) -> Result<Ended, Failure> {
        loop {
            if self.interrupted.load(Ordering::Relaxed) {
                running.terminate();
                if let Some(building) = &mut self.build_ahead {
                    building.terminate();
                }
                running.wait()?;
                self.end_build_ahead()?;
                remove_folder(temporary);
                process::exit(INTERRUPTED);
            }
            if let Some(ended) = running.poll()? {
                return Ok(ended);
            }
            if let Some(building) = &mut self.build_ahead
                && building.poll()?.is_some()
            {
                self.build_ahead = None;
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Prints the result of a stage now, and keeps it for the closing table.
    fn record(&mut self, stage: &Stage, seconds: u64, outcome: Outcome, counts: Counts) {
        let (result, has_failed) = self.summary.add(stage.name, seconds, outcome, counts);
        let log = self.checkout.log(stage.name);
        if has_failed {
            let text = fs::read(&log).unwrap_or_default();
            let text = String::from_utf8_lossy(&text);
            println!("{}", failure_report(&log.display().to_string(), &text));
            if matches!(outcome, Outcome::TimedOut { .. }) {
                println!("not finished at the time limit: {}", unfinished_tests(&text).join(", "));
            }
        }
        if !matches!(outcome, Outcome::Skipped) {
            print!("{}", fs::read_to_string(self.checkout.notes(stage.name)).unwrap_or_default());
        }
        println!("== {}: {result}", stage.name);
    }
}

fn outcome_of(ended: &Ended) -> Outcome {
    if ended.timed_out {
        return Outcome::TimedOut { limit: STAGE_LIMIT };
    }
    match ended.status.code() {
        Some(code) => Outcome::Exited(code),
        None => Outcome::Killed { signal: ended.status.signal().unwrap_or_default() },
    }
}

/// A new directory that every user may enter, as tests with other users need. Its name is short: the
/// path of a Unix socket has at most 107 bytes.
fn temporary_folder() -> io::Result<PathBuf> {
    let mut number = 0;
    loop {
        let folder = env::temp_dir().join(format!("t{}.{number}", process::id()));
        match fs::create_dir(&folder) {
            Ok(()) => {
                fs::set_permissions(&folder, fs::Permissions::from_mode(0o755))?;
                return Ok(folder);
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
            Err(error) => return Err(error),
        }
    }
}

fn remove_folder(folder: &Path) {
    if let Err(error) = fs::remove_dir_all(folder)
        && error.kind() != io::ErrorKind::NotFound
    {
        println!("warning: cannot remove {}: {error}", folder.display());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn temporary_folders_are_new_and_open_to_every_user() {
        let (first, second) = (temporary_folder().unwrap(), temporary_folder().unwrap());
        assert_ne!(first, second);
        assert_eq!(fs::metadata(&first).unwrap().permissions().mode() & 0o777, 0o755);
        remove_folder(&first);
        remove_folder(&second);
        assert!(!first.exists());
    }
}
