//! The rules in `deny.toml`, as far as they are checked here.

use std::fmt;

use toml::{Table, Value};

use crate::failure::Failure;
use crate::tidy::dependencies::graph::Package;

#[derive(Debug)]
pub(super) struct Rules {
    /// Packages of the workspace that are not published.
    pub(super) excluded: Vec<String>,
    pub(super) licences: Vec<String>,
    pub(super) skips: Vec<Skip>,
}

/// A version that may stand beside a newer one.
#[derive(Debug)]
pub(super) struct Skip {
    name: String,
    /// Whole or in part: `1` matches `1.2.3`.
    version: String,
    pub(super) reason: String,
}

impl Rules {
    pub(super) fn parse(text: &str) -> Result<Rules, Failure> {
        let table: Table =
            text.parse().map_err(|error| Failure::new(format!("deny.toml: {error}")))?;
        let list = |section: &str, key: &str| -> Vec<Value> {
            let value = table.get(section).and_then(|section| section.get(key));
            value.and_then(Value::as_array).cloned().unwrap_or_default()
        };
        let strings = |section, key| {
            let values = list(section, key);
            values.iter().filter_map(Value::as_str).map(str::to_string).collect()
        };
        let skips = list("bans", "skip").iter().map(Skip::parse).collect::<Option<_>>();
        Ok(Rules {
            excluded: strings("graph", "exclude"),
            licences: strings("licenses", "allow"),
            skips: skips.ok_or_else(|| {
                Failure::new("deny.toml: `skip` needs `crate = \"NAME@VERSION\"`")
            })?,
        })
    }
}

impl Skip {
    fn parse(value: &Value) -> Option<Skip> {
        let (name, version) = value.get("crate")?.as_str()?.split_once('@')?;
        let reason = value.get("reason").and_then(Value::as_str).unwrap_or_default();
        Some(Skip { name: name.into(), version: version.into(), reason: reason.into() })
    }

    pub(super) fn matches(&self, package: &Package) -> bool {
        let rest = package.version.strip_prefix(&self.version);
        self.name == package.name
            && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    }
}

impl fmt::Display for Skip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.name, self.version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn skip(text: &str) -> Skip {
        let rules = Rules::parse(&format!("[bans]\nskip = [{{ crate = \"{text}\" }}]")).unwrap();
        rules.skips.into_iter().next().unwrap()
    }

    #[test]
    fn part_of_a_version_matches_whole_numbers() {
        let package = |version: &str| Package {
            name: "syn".into(),
            version: version.into(),
            licence: String::new(),
        };
        assert!(skip("syn@2").matches(&package("2.0.1")));
        assert!(skip("syn@2.0").matches(&package("2.0.1")));
        assert!(!skip("syn@2").matches(&package("21.0.1")));
        assert!(!skip("sync@2").matches(&package("2.0.1")));
    }

    #[test]
    fn a_skip_names_a_version() {
        assert!(Rules::parse("[bans]\nskip = [{ crate = \"syn\" }]").is_err());
        assert!(Rules::parse("[bans").is_err());
    }
}
