//! The Rust toolchain: which machine it builds for, and what can be added to it.

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::command::{CommandLine, cargo};
use crate::failure::Failure;

/// The target triple of this machine, such as `x86_64-unknown-linux-gnu`.
pub(crate) fn host_triple() -> Result<String, Failure> {
    let version = CommandLine::new("rustc").arg("-vV").output()?;
    version
        .lines()
        .find_map(|line| line.strip_prefix("host: "))
        .map(str::to_string)
        .ok_or_else(|| Failure::new("`rustc -vV` names no host"))
}

/// Whether the standard library for a target is installed, or can be.
pub(crate) fn has_target(target: &str) -> bool {
    let library = CommandLine::new("rustc").args(["--print", "target-libdir", "--target", target]);
    if library.output().is_ok_and(|folder| Path::new(folder.trim()).is_dir()) {
        return true;
    }
    if find_program("rustup").is_none() {
        println!("no rustup here to install the target {target}");
        return false;
    }
    CommandLine::new("rustup").args(["--quiet", "target", "add", target]).run().is_ok()
}

/// The arguments that make cargo run Miri: those of the default toolchain or of a nightly one.
/// `None` if neither has Miri.
pub(crate) fn cargo_miri() -> Option<CommandLine> {
    [cargo("miri"), cargo("+nightly miri")]
        .into_iter()
        .find(|command| command.clone().arg("--version").succeeds())
}

/// Adds Miri to a nightly toolchain that is installed. The stage reports it if that fails.
pub(crate) fn add_miri() {
    if cargo_miri().is_none() && find_program("rustup").is_some() {
        let add = "--quiet component add --toolchain nightly miri rust-src";
        CommandLine::new("rustup").args(add.split(' ')).succeeds();
    }
}

/// The file that `name` starts: a path as it is, or a name that is looked up in `PATH`.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|folder| folder.join(name)).find(|file| is_executable(file))
}

pub(crate) fn is_executable(file: &Path) -> bool {
    fs::metadata(file)
        .is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_in_the_path() {
        assert!(find_program("sh").is_some_and(|file| is_executable(&file)));
        assert_eq!(find_program("no-such-program"), None);
        assert!(!is_executable(Path::new("/etc/passwd")));
        assert!(!is_executable(Path::new("/etc")));
    }
}
