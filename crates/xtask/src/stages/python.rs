//! The Python package, on the oldest and the newest CPython of this machine.

use std::collections::BTreeMap;
use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Child;

use rustix::fs::{FlockOperation, flock};

use crate::checkout::Checkout;
use crate::command::CommandLine;
use crate::failure::Failure;
use crate::requirements::Requirements;
use crate::stage::{Stage, StageContext, report_tests};
use crate::stages::core;
use crate::toolchain::{find_program, is_executable};

pub(super) const STAGE: Stage = Stage {
    name: "python",
    about: "the Python package, on the oldest and the newest CPython here",
    require,
    run,
    build_ahead: Some(build),
};

const TESTS: &str = "crates/cenote-python/tests";

fn require(needs: &mut Requirements) {
    needs.need("python3", "python3");
    // Debian's python3 lacks these two.
    if !CommandLine::new("python3").args(["-c", "import ensurepip, venv"]).succeeds() {
        needs.add("python3-venv");
    }
}

fn run(context: &StageContext) -> Result<(), Failure> {
    build(context)?;
    // A program in Rust that the tests exchange messages with.
    core::build_examples()?;
    let venvs = Venv::all(&context.checkout)?;
    let mut running = Vec::new();
    for (index, venv) in venvs.iter().enumerate() {
        // The types are the same everywhere: the newest checks them.
        let is_last = index + 1 == venvs.len();
        let command = pytest(context, venv, is_last);
        running.push((venv, spawn_with_log(&command, &venv.log())?));
    }
    let mut result = Ok(());
    for (venv, mut child) in running {
        let ended = child.wait()?;
        let log = fs::read_to_string(venv.log())?;
        println!("== Python {}\n{log}", venv.version);
        let (passed, failed) = pytest_counts(&log);
        report_tests(passed, failed);
        // No test at all is a failure.
        if !ended.success() || passed == 0 || failed > 0 {
            result = Err(Failure::new(format!("pytest on Python {}: {ended}", venv.version)));
        }
    }
    result
}

fn pytest(context: &StageContext, venv: &Venv, with_types: bool) -> CommandLine {
    let mut command = CommandLine::new(venv.program("python"))
        .args(["-m", "pytest", "-q", "-p", "no:cacheprovider"])
        .env("CENOTE_TEST_EXAMPLE", context.checkout.target_path("debug/examples/topic"));
    if !with_types {
        command = command.args(["--ignore", &format!("{TESTS}/test_types.py")]);
    }
    command.arg(TESTS)
}

/// Makes the virtual environments, and installs one wheel in all of them. Independent steps run at the
/// same time. A lock keeps the stage and its build ahead from doing this at the same time.
fn build(context: &StageContext) -> Result<(), Failure> {
    let work = context.checkout.target.join("python");
    fs::create_dir_all(&work)?;
    let lock = File::create(work.join("lock"))?;
    flock(&lock, FlockOperation::LockExclusive).map_err(std::io::Error::from)?;

    let venvs = Venv::all(&context.checkout)?;
    let Some(first) = venvs.first() else {
        return Err(Failure::unavailable("no CPython of version 3.11 or newer"));
    };
    for venv in &venvs {
        if !is_executable(&venv.program("pip")) {
            CommandLine::new(&venv.python)
                .args(["-m", "venv", "--clear"])
                .arg(venv.folder.display().to_string())
                .run()?;
        }
    }
    first.install(["maturin"]).run()?;
    let mut installing = Vec::new();
    for venv in &venvs {
        let command = venv.install(["--requirement", &format!("{TESTS}/requirements.txt")]);
        println!("$ {command} &");
        let child = command.command().spawn().map_err(|error| command.not_started(&error))?;
        installing.push((command, child));
    }
    let wheels = work.join("wheels");
    let _ = fs::remove_dir_all(&wheels);
    let mut result = CommandLine::new(first.program("maturin"))
        .args(["build", "--quiet", "--locked", "--release", "--out"])
        .arg(wheels.display().to_string())
        .run();
    for (command, mut child) in installing {
        result = result.and(command.check(child.wait()?));
    }
    result?;
    for venv in &venvs {
        venv.install(["--force-reinstall", "--no-deps"]).args(files_in(&wheels, ".whl")?).run()?;
    }
    Ok(())
}

fn spawn_with_log(command: &CommandLine, log: &Path) -> Result<Child, Failure> {
    println!("$ {command} &");
    let stdout = File::create(log)?;
    let stderr = stdout.try_clone()?;
    let mut child = command.command();
    child.stdout(stdout).stderr(stderr).spawn().map_err(|error| command.not_started(&error))
}

/// A virtual environment of one interpreter.
struct Venv {
    folder: PathBuf,
    python: PathBuf,
    version: String,
}

impl Venv {
    /// Those of the oldest and the newest interpreter; one if that is the same.
    fn all(checkout: &Checkout) -> Result<Vec<Venv>, Failure> {
        let interpreters = candidates().iter().filter_map(|python| interpreter(python)).collect();
        Ok(oldest_and_newest(interpreters)
            .into_iter()
            .map(|Interpreter { version, python, .. }| {
                let folder = checkout.target.join(format!("python/venv-{version}"));
                Venv { folder, python, version }
            })
            .collect())
    }

    fn program(&self, name: &str) -> PathBuf {
        self.folder.join("bin").join(name)
    }

    fn log(&self) -> PathBuf {
        let mut path = self.folder.clone().into_os_string();
        path.push(".log");
        path.into()
    }

    fn install<const N: usize>(&self, arguments: [&str; N]) -> CommandLine {
        CommandLine::new(self.program("pip"))
            .args(["install", "--quiet", "--disable-pip-version-check", "--no-compile"])
            .args(arguments)
    }
}

#[derive(Clone, Debug, PartialEq)]
struct Interpreter {
    release: [u32; 3],
    /// With what `release` leaves out: `3.15.0rc1`.
    version: String,
    python: PathBuf,
}

/// Interpreters of the system, of pyenv, and the one in `PATH`.
fn candidates() -> Vec<PathBuf> {
    let pyenv = env::var_os("PYENV_ROOT")
        .map(PathBuf::from)
        .unwrap_or_else(|| Path::new(&env::var_os("HOME").unwrap_or_default()).join(".pyenv"));
    let mut folders = vec![PathBuf::from("/usr/bin")];
    let mut versions: Vec<PathBuf> = fs::read_dir(pyenv.join("versions"))
        .map(|entries| entries.flatten().map(|entry| entry.path().join("bin")).collect())
        .unwrap_or_default();
    versions.sort();
    folders.extend(versions);
    let mut found = Vec::new();
    for folder in folders {
        let names = fs::read_dir(&folder).into_iter().flatten().flatten();
        let mut files: Vec<PathBuf> = names.map(|entry| entry.path()).collect();
        files.retain(|file| is_interpreter_name(file) && is_executable(file));
        files.sort();
        found.extend(files);
    }
    found.extend(find_program("python3"));
    found
}

/// `python3.13`, but not `python3.13-config`.
fn is_interpreter_name(file: &Path) -> bool {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    name.strip_prefix("python3.").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
        && !name.ends_with("-config")
}

const DESCRIBE: &str = r#"
import sys, platform, venv, ensurepip
if sys.version_info >= (3, 11) and sys.implementation.name == "cpython":
    print(*sys.version_info[:3], platform.python_version(), sys.executable, sep="\n")
"#;

/// `None` unless it is a CPython of version 3.11 or newer that can make virtual environments.
fn interpreter(python: &Path) -> Option<Interpreter> {
    let mut command = CommandLine::new(python).args(["-c", DESCRIBE]).command();
    let output = command.output().ok()?;
    parse_interpreter(&String::from_utf8_lossy(&output.stdout))
}

fn parse_interpreter(description: &str) -> Option<Interpreter> {
    let mut lines = description.lines();
    let mut number = || lines.next()?.parse().ok();
    let release = [number()?, number()?, number()?];
    Some(Interpreter { release, version: lines.next()?.into(), python: lines.next()?.into() })
}

fn oldest_and_newest(interpreters: Vec<Interpreter>) -> Vec<Interpreter> {
    let mut by_release = BTreeMap::new();
    for interpreter in interpreters {
        by_release.entry(interpreter.release).or_insert(interpreter);
    }
    let oldest = by_release.pop_first().map(|(_, interpreter)| interpreter);
    let newest = by_release.pop_last().map(|(_, interpreter)| interpreter);
    oldest.into_iter().chain(newest).collect()
}

/// The counts of passed and of failed tests in pytest's last line: `1 failed, 20 passed in 3.0s`.
fn pytest_counts(log: &str) -> (usize, usize) {
    let counts = |line: &str| {
        let words: Vec<&str> = line.split([' ', ',']).filter(|word| !word.is_empty()).collect();
        let count_of = |names: &[&str]| {
            let counted = words.windows(2).filter(|pair| names.contains(&pair[1]));
            counted.filter_map(|pair| pair[0].parse::<usize>().ok()).sum::<usize>()
        };
        (count_of(&["passed"]), count_of(&["failed", "error", "errors"]))
    };
    log.lines().rev().map(counts).find(|count| *count != (0, 0)).unwrap_or_default()
}

fn files_in(folder: &Path, ending: &str) -> Result<Vec<String>, Failure> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let file = entry?.path().display().to_string();
        if file.ends_with(ending) {
            files.push(file);
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interpreter(minor: u32) -> Interpreter {
        let version = format!("3.{minor}.0");
        Interpreter {
            release: [3, minor, 0],
            python: format!("/usr/bin/python3.{minor}").into(),
            version,
        }
    }

    #[test]
    fn the_oldest_comes_first_and_the_newest_last() {
        let all = [13, 11, 12, 13].map(interpreter).to_vec();
        assert_eq!(oldest_and_newest(all), [11, 13].map(interpreter));
        assert_eq!(oldest_and_newest(vec![interpreter(12)]), [interpreter(12)]);
        assert_eq!(oldest_and_newest(Vec::new()), []);
    }

    #[test]
    fn interpreters_are_told_from_other_programs() {
        assert!(is_interpreter_name(Path::new("/usr/bin/python3.13")));
        assert!(!is_interpreter_name(Path::new("/usr/bin/python3.13-config")));
        assert!(!is_interpreter_name(Path::new("/usr/bin/python3")));
        let parsed = parse_interpreter("3\n14\n0\n3.14.0rc1\n/usr/bin/python3.14\n").unwrap();
        assert_eq!((parsed.release, parsed.version.as_str()), ([3, 14, 0], "3.14.0rc1"));
        assert_eq!(parse_interpreter(""), None);
    }

    #[test]
    fn tests_are_counted_by_the_last_line_of_pytest() {
        assert_eq!(pytest_counts("....\n12 passed in 3.01s\n"), (12, 0));
        assert_eq!(pytest_counts("=== 2 failed, 12 passed, 1 error in 3.01s ===\n"), (12, 3));
        assert_eq!(pytest_counts("5 passed\n1 error in 0.1s\n"), (0, 1));
        assert_eq!(pytest_counts("no tests ran in 0.01s\n"), (0, 0));
    }
}
