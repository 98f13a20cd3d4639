//! Dependencies: where they come from, how they are licensed, and that each is there once.
//!
//! The rules are in `deny.toml`, which `cargo deny` can read, too. They are for the packages that are
//! published, with their normal and build dependencies for all targets. Of all others only the source
//! is checked.

mod graph;
mod licence;
mod rules;

use crate::checkout::Checkout;
use crate::command::cargo;
use crate::failure::Failure;
use crate::stages::core_features;
use crate::tidy::files::Files;
use crate::tidy::finding::Finding;
use graph::{Graph, Package};
use licence::Expression;
use rules::Rules;

const RULES: &str = "deny.toml";
const LOCK: &str = "Cargo.lock";

pub(super) fn check(checkout: &Checkout, files: &Files) -> Vec<Finding> {
    let mut findings = sources(files.get(LOCK).unwrap_or_default());
    match published(checkout, files) {
        Ok((rules, packages)) => findings.extend(check_packages(&rules, &packages)),
        Err(failure) => findings.push(Finding::in_file(LOCK, failure.to_string())),
    }
    findings
}

/// The rules, and the packages that they are for. Fails if `Cargo.lock` is not up to date.
fn published(checkout: &Checkout, files: &Files) -> Result<(Rules, Vec<Package>), Failure> {
    let rules = Rules::parse(files.get(RULES).unwrap_or_default())?;
    // All features of the core, and none of `compare`: its peers are hundreds of packages.
    let features = core_features(&checkout.read("crates/cenote/Cargo.toml")?)?;
    let metadata =
        cargo("metadata --locked --format-version 1 --features").arg(features).output()?;
    let packages = Graph::parse(&metadata)?.shipped(&rules.excluded);
    Ok((rules, packages))
}

/// Every package of the lock file is in this repository or comes from the default registry. This is
/// cargo's name for that registry, in parts because the name of a host must not be in a file.
fn sources(lock: &str) -> Vec<Finding> {
    let registry =
        format!("registry+https://github.com/rust-lang/{}-index", ["crates", "io"].join("."));
    let mut findings = Vec::new();
    for (index, line) in lock.lines().enumerate() {
        if let Some(source) = line.strip_prefix("source = ")
            && source.trim_matches('"') != registry
        {
            findings.push(Finding::at(LOCK, index + 1, "not from the default registry"));
        }
    }
    findings
}

fn check_packages(rules: &Rules, packages: &[Package]) -> Vec<Finding> {
    let mut findings = licences(rules, packages);
    findings.extend(duplicates(rules, packages));
    findings
}

fn licences(rules: &Rules, packages: &[Package]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in packages {
        let Package { name, version, licence, .. } = package;
        let is_allowed = |licence: &str| rules.licences.iter().any(|allowed| allowed == licence);
        match Expression::parse(licence) {
            Some(expression) if expression.is_satisfied(&is_allowed) => {}
            Some(_) => findings.push(Finding::in_file(
                RULES,
                format!(
                    "{name} {version} is licensed under \"{licence}\", which `allow` does not cover"
                ),
            )),
            None => findings.push(Finding::in_file(
                RULES,
                format!("{name} {version} has a licence that is not an expression: \"{licence}\""),
            )),
        }
    }
    findings
}

/// Each package is there in one version, except those that the rules name with a reason.
fn duplicates(rules: &Rules, packages: &[Package]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let is_skipped = |package: &Package| rules.skips.iter().any(|skip| skip.matches(package));
    for (index, package) in packages.iter().enumerate() {
        let twin =
            packages[..index].iter().find(|other| other.name == package.name && !is_skipped(other));
        if let Some(twin) = twin.filter(|_| !is_skipped(package)) {
            let Package { name, version, .. } = package;
            let message = format!("{name} is there in versions {} and {version}", twin.version);
            findings.push(Finding::in_file(RULES, message));
        }
    }
    for skip in &rules.skips {
        if skip.reason.is_empty() {
            findings.push(Finding::in_file(RULES, format!("{skip} is skipped without a reason")));
        }
        if !packages.iter().any(|package| skip.matches(package)) {
            findings.push(Finding::in_file(RULES, format!("{skip} is skipped, but is not there")));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::finding::texts;

    const RULES_TEXT: &str = r#"
        [graph]
        exclude = ["bench"]
        [licenses]
        allow = ["MIT", "Apache-2.0"]
        [bans]
        skip = [{ crate = "old@1.2", reason = "a reason" }, { crate = "gone@3" }]
    "#;

    fn package(name: &str, version: &str, licence: &str) -> Package {
        Package { name: name.into(), version: version.into(), licence: licence.into() }
    }

    #[test]
    fn packages_come_from_the_default_registry() {
        let default =
            format!("registry+https://github.com/rust-lang/{}-index", ["crates", "io"].join("."));
        let lock = format!("source = \"{default}\"\nname = \"x\"\nsource = \"git+https://x/y\"\n");
        assert_eq!(texts(&sources(&lock)), ["Cargo.lock:3: not from the default registry"]);
    }

    #[test]
    fn licences_must_be_allowed() {
        let rules = Rules::parse(RULES_TEXT).unwrap();
        let packages = [
            package("good", "1.0.0", "MIT OR GPL-3.0"),
            package("bad", "1.0.0", "MIT AND GPL-3.0"),
            package("none", "1.0.0", ""),
        ];
        assert_eq!(
            texts(&licences(&rules, &packages)),
            [
                "deny.toml: bad 1.0.0 is licensed under \"MIT AND GPL-3.0\", which `allow` does not cover",
                "deny.toml: none 1.0.0 has a licence that is not an expression: \"\"",
            ]
        );
    }

    #[test]
    fn a_second_version_needs_a_reason() {
        let rules = Rules::parse(RULES_TEXT).unwrap();
        let packages = [
            package("old", "1.2.9", "MIT"),
            package("old", "2.0.0", "MIT"),
            package("twice", "1.0.0", "MIT"),
            package("twice", "1.1.0", "MIT"),
        ];
        assert_eq!(
            texts(&duplicates(&rules, &packages)),
            [
                "deny.toml: twice is there in versions 1.0.0 and 1.1.0",
                "deny.toml: gone@3 is skipped without a reason",
                "deny.toml: gone@3 is skipped, but is not there",
            ]
        );
    }
}
