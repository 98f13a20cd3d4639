//! The graph of packages, from `cargo metadata`.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::failure::Failure;

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Package {
    pub(super) name: String,
    pub(super) version: String,
    /// An expression such as `MIT OR Apache-2.0`; empty if the package has none.
    pub(super) licence: String,
}

pub(super) struct Graph {
    packages: BTreeMap<String, Package>,
    /// Normal and build dependencies, by the id of the package that has them.
    dependencies: BTreeMap<String, Vec<String>>,
    members: Vec<String>,
}

impl Graph {
    pub(super) fn parse(metadata: &str) -> Result<Graph, Failure> {
        let metadata: Value = serde_json::from_str(metadata)
            .map_err(|error| Failure::new(format!("cargo metadata: {error}")))?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let packages = list(&metadata["packages"]).into_iter().map(|package| {
            let [name, version, licence] =
                ["name", "version", "license"].map(|key| text(&package[key]));
            (text(&package["id"]), Package { name, version, licence })
        });
        let dependencies = list(&metadata["resolve"]["nodes"])
            .iter()
            .map(|node| {
                let shipped = list(&node["deps"])
                    .iter()
                    .filter(|dep| is_shipped(dep))
                    .map(|dep| text(&dep["pkg"]))
                    .collect();
                (text(&node["id"]), shipped)
            })
            .collect();
        let members = list(&metadata["workspace_members"]).iter().map(text).collect();
        Ok(Graph { packages: packages.collect(), dependencies, members })
    }

    /// The published members of the workspace and all that they need, in the order of their names.
    pub(super) fn shipped(&self, excluded: &[String]) -> Vec<Package> {
        let is_excluded = |id: &&String| {
            self.packages.get(*id).is_none_or(|package| excluded.contains(&package.name))
        };
        let mut waiting: Vec<&String> = self.members.iter().filter(|id| !is_excluded(id)).collect();
        let mut reached = BTreeSet::new();
        while let Some(id) = waiting.pop() {
            if reached.insert(id) {
                waiting.extend(self.dependencies.get(id).into_iter().flatten());
            }
        }
        let mut packages: Vec<Package> =
            reached.into_iter().filter_map(|id| self.packages.get(id).cloned()).collect();
        packages.sort_by(|a, b| (&a.name, &a.version).cmp(&(&b.name, &b.version)));
        packages
    }
}

/// Whether a dependency is needed for more than tests.
fn is_shipped(dependency: &Value) -> bool {
    let kinds = dependency["dep_kinds"].as_array();
    kinds.into_iter().flatten().any(|kind| kind["kind"] != "dev")
}

#[cfg(test)]
mod tests {
    use super::*;

    const METADATA: &str = r#"{
        "packages": [
            {"id": "lib", "name": "lib", "version": "0.1.0", "license": "MIT"},
            {"id": "bench", "name": "bench", "version": "0.1.0", "license": "MIT"},
            {"id": "used", "name": "used", "version": "1.0.0", "license": null},
            {"id": "deep", "name": "deep", "version": "1.0.0", "license": "ISC"},
            {"id": "peer", "name": "peer", "version": "1.0.0", "license": "GPL-3.0"},
            {"id": "test", "name": "test", "version": "1.0.0", "license": "GPL-3.0"}
        ],
        "workspace_members": ["lib", "bench"],
        "resolve": {"nodes": [
            {"id": "lib", "deps": [
                {"pkg": "used", "dep_kinds": [{"kind": null}]},
                {"pkg": "test", "dep_kinds": [{"kind": "dev"}]}
            ]},
            {"id": "used", "deps": [{"pkg": "deep", "dep_kinds": [{"kind": "build"}]}]},
            {"id": "bench", "deps": [{"pkg": "peer", "dep_kinds": [{"kind": null}]}]}
        ]}
    }"#;

    #[test]
    fn what_ships_leaves_out_tests_and_excluded_members() {
        let shipped = Graph::parse(METADATA).unwrap().shipped(&["bench".into()]);
        let names: Vec<&str> = shipped.iter().map(|package| package.name.as_str()).collect();
        assert_eq!(names, ["deep", "lib", "used"]);
        assert_eq!(shipped[2].licence, "");
    }
}
