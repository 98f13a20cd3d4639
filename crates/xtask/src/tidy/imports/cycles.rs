//! Groups of files that import each other in a circle.

use std::collections::{BTreeMap, BTreeSet};

use crate::tidy::imports::ImportGraph;

/// The largest groups in which every file leads to every other one, sorted.
pub(crate) fn cycles(graph: &ImportGraph) -> Vec<Vec<String>> {
    let reached: BTreeMap<&String, BTreeSet<&String>> =
        graph.imports.keys().map(|file| (file, reachable(graph, file))).collect();
    let mut cycles = BTreeSet::new();
    for (file, from_here) in &reached {
        let back = from_here.iter().filter(|other| reached[**other].contains(file));
        let cycle: Vec<String> = back.map(ToString::to_string).collect();
        if !cycle.is_empty() {
            cycles.insert(cycle);
        }
    }
    cycles.into_iter().collect()
}

/// The files that imports lead to, over any number of files. The first one only if they lead back.
fn reachable<'a>(graph: &'a ImportGraph, file: &'a String) -> BTreeSet<&'a String> {
    let mut reached = BTreeSet::new();
    let mut waiting = vec![file];
    while let Some(file) = waiting.pop() {
        for imported in graph.imports.get(file).into_iter().flatten() {
            if reached.insert(imported) {
                waiting.push(imported);
            }
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cycles_are_found_with_all_their_files() {
        let imports = [("a", "b"), ("b", "c"), ("c", "a d"), ("d", ""), ("e", "f a"), ("f", "e")];
        let imports = imports.map(|(file, imported)| {
            (file.to_string(), imported.split_whitespace().map(str::to_string).collect())
        });
        let graph = ImportGraph { imports: imports.into() };
        assert_eq!(cycles(&graph), [vec!["a", "b", "c"], vec!["e", "f"]]);
    }
}
