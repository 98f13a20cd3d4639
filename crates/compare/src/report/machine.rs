//! The machine, and the versions of the packages.

use std::process::Command;

use serde::Serialize;

use crate::results::PackageVersion;

const LOCK: &str = include_str!("../../../../Cargo.lock");

/// The measured packages of the lock file, if they are built in.
const PEERS: &[&str] = &[
    #[cfg(feature = "peers")]
    "iceoryx2",
    #[cfg(feature = "peers")]
    "edgefirst-tensor",
    #[cfg(feature = "peers")]
    "tenferro-cpu-basic",
    #[cfg(feature = "allocators")]
    "mimalloc",
    #[cfg(feature = "allocators")]
    "tikv-jemallocator",
    #[cfg(feature = "zenoh")]
    "zenoh",
    "cenote",
];

/// The machine that a run measures on.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Machine {
    processor: String,
    cores: usize,
    memory_gib: f64,
    kernel: String,
    system: String,
    rust: String,
    date: String,
}

impl Machine {
    /// This machine. Unknown fields are empty.
    pub(crate) fn this() -> Machine {
        let memory = field("/proc/meminfo", "MemTotal").replace(" kB", "");
        Machine {
            processor: field("/proc/cpuinfo", "model name"),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            memory_gib: (memory.parse::<f64>().unwrap_or(0.0) / 1_048_576.0 * 10.0).round() / 10.0,
            kernel: std::fs::read_to_string("/proc/sys/kernel/osrelease")
                .unwrap_or_default()
                .trim()
                .into(),
            system: field("/etc/os-release", "PRETTY_NAME").trim_matches('"').into(),
            rust: output_of("rustc", &["--version"]),
            date: output_of("date", &["+%-d %B %Y"]),
        }
    }

    /// One line for people.
    pub(crate) fn text(&self) -> String {
        let Machine { processor, cores, memory_gib, kernel, system, rust, date } = self;
        format!(
            "{date}; {cores} cores of {processor}, {memory_gib} GiB; Linux {kernel}, {system}; {rust}, optimised across packages"
        )
    }
}

/// The text after `name:` or `name=` in the first line of the file that starts so.
fn field(file: &str, name: &str) -> String {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let value = |line: &str| {
        let rest = line.strip_prefix(name)?.trim_start();
        rest.strip_prefix([':', '=']).map(|rest| rest.trim().to_string())
    };
    text.lines().find_map(value).unwrap_or_default()
}

/// The standard output of a program; empty if it cannot be run.
fn output_of(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).env("LC_ALL", "C").output();
    output.map_or(String::new(), |output| String::from_utf8_lossy(&output.stdout).trim().into())
}

/// The versions of the packages that are built in.
pub(crate) fn versions() -> Vec<PackageVersion> {
    let of =
        |name: &&str| Some(PackageVersion { name: (*name).into(), version: locked(LOCK, name)? });
    PEERS.iter().filter_map(of).collect()
}

fn locked(lock: &str, name: &str) -> Option<String> {
    let start = lock.find(&format!("name = \"{name}\"\nversion = \""))?;
    lock[start..].lines().nth(1)?.split('"').nth(1).map(String::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_those_of_the_lock_file() {
        let lock = "[[package]]\nname = \"ab\"\nversion = \"1.0.0\"\n\n[[package]]\nname = \"b\"\nversion = \"2.3.4\"\n";
        assert_eq!(locked(lock, "b").as_deref(), Some("2.3.4"));
        assert_eq!(locked(lock, "c"), None);
        let ours = versions().into_iter().find(|version| version.name == "cenote");
        assert_eq!(ours.map(|version| version.version).as_deref(), Some(env!("CARGO_PKG_VERSION")));
    }
}
