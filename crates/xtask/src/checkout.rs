//! The checkout that is tested: its root, its target directory, the files that git keeps.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use crate::command::CommandLine;
use crate::failure::Failure;

/// Where the sources are, and where builds and logs go. All paths are absolute.
pub(crate) struct Checkout {
    pub(crate) root: PathBuf,
    pub(crate) target: PathBuf,
    pub(crate) logs: PathBuf,
}

impl Checkout {
    /// The checkout in the current directory, where `scripts/test` starts this program.
    pub(crate) fn here() -> Result<Checkout, Failure> {
        let root = env::current_dir()?;
        if !root.join("scripts/test").exists() {
            return Err(Failure::new("not in the root of a checkout: run scripts/test"));
        }
        let target = root.join(env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()));
        let logs = target.join("test-logs");
        for path in [&root, &target] {
            if path.to_str().is_none() {
                return Err(Failure::new(format!("{} is not UTF-8", path.display())));
            }
        }
        Ok(Checkout { root, target, logs })
    }

    pub(crate) fn log(&self, stage: &str) -> PathBuf {
        self.logs.join(format!("{stage}.log"))
    }

    pub(crate) fn notes(&self, stage: &str) -> PathBuf {
        self.logs.join(format!("{stage}.notes"))
    }

    /// A path in the target directory, as text for arguments and variables.
    pub(crate) fn target_path(&self, relative: &str) -> String {
        self.target.join(relative).display().to_string()
    }

    /// The names of cargo's targets in a folder such as `crates/cenote/tests`: `NAME.rs` and
    /// `NAME/main.rs`, sorted.
    pub(crate) fn cargo_targets(&self, folder: &str) -> Result<Vec<String>, Failure> {
        let mut names = Vec::new();
        for entry in fs::read_dir(self.root.join(folder))? {
            let path = entry?.path();
            let is_target = path.extension().is_some_and(|extension| extension == "rs")
                || path.join("main.rs").exists();
            if let (true, Some(name)) = (is_target, path.file_stem()) {
                names.push(name.to_string_lossy().into_owned());
            }
        }
        names.sort();
        Ok(names)
    }

    /// The files that git has or would add, relative to the root, sorted. Without the target directory,
    /// which can be in the checkout under a name that git does not ignore.
    pub(crate) fn files(&self) -> Result<Vec<String>, Failure> {
        let listing = CommandLine::new("git")
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate"])
            .output()?;
        let mut files: Vec<String> = listing
            .split('\0')
            .filter(|file| !file.is_empty())
            .filter(|file| {
                let path = self.root.join(file);
                path.is_file() && !path.starts_with(&self.target)
            })
            .map(str::to_string)
            .collect();
        files.sort();
        Ok(files)
    }

    pub(crate) fn read(&self, file: impl AsRef<Path>) -> Result<String, Failure> {
        let path = self.root.join(file);
        fs::read_to_string(&path)
            .map_err(|error| Failure::new(format!("{}: {error}", path.display())))
    }
}
