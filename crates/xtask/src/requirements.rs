//! What stages need on this machine. Missing packages are installed once, before the first stage, in
//! the foreground, so that sudo can ask for a password.

use std::path::Path;

use crate::command::{CommandLine, cargo};
use crate::toolchain::find_program;

/// Debian packages that are missing here.
#[derive(Default)]
pub(crate) struct Requirements {
    missing: Vec<&'static str>,
}

impl Requirements {
    /// Notes `package` as missing unless `thing` exists: a program in `PATH`, or an absolute path.
    /// It asks for the thing and not for the package, so other distributions and programs that were
    /// built by hand work, too.
    pub(crate) fn need(&mut self, thing: &str, package: &'static str) {
        let exists = match thing.starts_with('/') {
            true => Path::new(thing).exists(),
            false => find_program(thing).is_some(),
        };
        if !exists {
            self.add(package);
        }
    }

    pub(crate) fn add(&mut self, package: &'static str) {
        if !self.missing.contains(&package) {
            self.missing.push(package);
        }
    }

    /// A tool such as `cargo fmt`, which neither a minimal rustup nor Debian's cargo includes.
    pub(crate) fn need_cargo_tool(&mut self, tool: &str, component: &str, package: &'static str) {
        if cargo(tool).arg("--version").succeeds() {
            return;
        }
        if find_program("rustup").is_none() {
            self.add(package);
        } else if let Err(error) =
            CommandLine::new("rustup").args(["--quiet", "component", "add", component]).run()
        {
            eprintln!("error: {error}");
        }
    }

    /// Installs what is missing. If that fails, the run goes on: the stages that lack something fail.
    pub(crate) fn install(&self) {
        if self.missing.is_empty() {
            return;
        }
        let install = r#"source scripts/lib.sh && install_packages "$@""#;
        let command = CommandLine::new("bash")
            .args(["-c", install, "install"])
            .args(self.missing.iter().copied())
            .command()
            .status();
        if !command.is_ok_and(|status| status.success()) {
            eprintln!("error: could not install everything; continuing");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_missing_things_are_noted_and_each_package_once() {
        let mut requirements = Requirements::default();
        requirements.need("sh", "dash");
        requirements.need("/etc/passwd", "base-passwd");
        requirements.need("no-such-program", "first");
        requirements.need("/no/such/file", "second");
        requirements.need("/no/such/file", "second");
        assert_eq!(requirements.missing, ["first", "second"]);
    }
}
