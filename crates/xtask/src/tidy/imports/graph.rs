//! The files of a crate, and which of them imports which.

use std::collections::{BTreeMap, BTreeSet};

use crate::tidy::files::Files;
use crate::tidy::imports::paths::{NamedPath, named_paths};
use crate::tidy::imports::tokens::{tokens, without_tests};

/// The path of a module in its crate: `ipc`, `lease` for `crate::ipc::lease`.
type ModulePath = Vec<String>;

/// From each file to the files that it imports from. All paths are from the root of the checkout. Files
/// that only tests compile are left out.
pub(crate) struct ImportGraph {
    pub(crate) imports: BTreeMap<String, BTreeSet<String>>,
}

impl ImportGraph {
    /// The graph of the files in a folder such as `crates/cenote/src/`.
    pub(crate) fn of(files: &Files, folder: &str) -> ImportGraph {
        let crate_files = CrateFiles::read(files, folder);
        let mut imports = BTreeMap::new();
        // The root lists the modules of the crate: it has no place in their order.
        for (module, file) in crate_files.modules.iter().filter(|(module, _)| !module.is_empty()) {
            let imported = file.paths.iter().filter_map(|path| crate_files.imported(module, path));
            imports.insert(file.path.clone(), imported.collect());
        }
        ImportGraph { imports }
    }
}

struct SourceFile {
    path: String,
    paths: Vec<NamedPath>,
    /// Names that `use` declarations make here, and the absolute paths that they stand for.
    names: BTreeMap<String, ModulePath>,
}

struct CrateFiles {
    modules: BTreeMap<ModulePath, SourceFile>,
}

/// A chain of re-exports that is longer than this is a circle.
const MAX_REEXPORTS: usize = 8;

impl CrateFiles {
    fn read(files: &Files, folder: &str) -> CrateFiles {
        let mut modules = BTreeMap::new();
        let mut only_tests = Vec::new();
        for (path, text) in files.under(folder, ".rs") {
            let module = module_path(path.strip_prefix(folder).unwrap_or(path));
            let tokens = tokens(text);
            let (tokens, test_modules) = without_tests(&tokens);
            for name in test_modules {
                only_tests.push([module.as_slice(), &[name.to_string()]].concat());
            }
            let paths = named_paths(&tokens);
            let path = path.to_string();
            modules.insert(module, SourceFile { path, paths, names: BTreeMap::new() });
        }
        modules.retain(|module: &ModulePath, _| {
            !only_tests.iter().any(|test: &ModulePath| module.starts_with(test))
        });
        let mut crate_files = CrateFiles { modules };
        crate_files.add_names();
        crate_files
    }

    fn add_names(&mut self) {
        let mut names = Vec::new();
        for (module, file) in &self.modules {
            for path in file.paths.iter().filter(|path| path.inside.is_empty()) {
                if let (Some(name), Some(absolute)) =
                    (&path.imported_as, self.absolute(module, path))
                {
                    names.push((module.clone(), name.clone(), absolute));
                }
            }
        }
        for (module, name, absolute) in names {
            if let Some(file) = self.modules.get_mut(&module) {
                file.names.insert(name, absolute);
            }
        }
    }

    /// The file that a path of a module leads to, unless that is no import of another file.
    fn imported(&self, module: &ModulePath, path: &NamedPath) -> Option<String> {
        let target = self.resolve(&self.absolute(module, path)?, 0)?;
        let is_reexport = path.is_public && target.starts_with(module);
        if target.is_empty() || target == *module || is_reexport {
            return None;
        }
        self.modules.get(&target).map(|file| file.path.clone())
    }

    /// The path from the root of the crate. `None` for paths of other crates, types and variants.
    fn absolute(&self, module: &ModulePath, path: &NamedPath) -> Option<ModulePath> {
        let here = [module.as_slice(), &path.inside].concat();
        let (first, rest) = path.segments.split_first()?;
        let (mut base, mut rest) = match first.as_str() {
            "crate" => (Vec::new(), rest),
            "self" => (here, rest),
            "super" => (here, path.segments.as_slice()),
            child => {
                let child = [here.as_slice(), &[child.to_string()]].concat();
                (self.modules.contains_key(&child).then_some(child)?, rest)
            }
        };
        while let Some((first, after)) = rest.split_first()
            && first == "super"
        {
            base.pop()?;
            rest = after;
        }
        base.extend_from_slice(rest);
        Some(base)
    }

    /// The module whose file defines what an absolute path names.
    fn resolve(&self, path: &[String], reexports: usize) -> Option<ModulePath> {
        let length = (0..=path.len()).rev().find(|end| self.modules.contains_key(&path[..*end]))?;
        let (module, rest) = path.split_at(length);
        if let Some((name, rest)) = rest.split_first()
            && let Some(target) = self.modules[module].names.get(name)
            && *target != path
            && reexports < MAX_REEXPORTS
        {
            return self.resolve(&[target.as_slice(), rest].concat(), reexports + 1);
        }
        Some(module.to_vec())
    }
}

/// `ipc/lease/mod.rs` and `ipc/lease.rs` are `ipc::lease`; `lib.rs` and `main.rs` are the root.
fn module_path(file: &str) -> ModulePath {
    let file = file.strip_suffix(".rs").unwrap_or(file);
    if ["lib", "main"].contains(&file) {
        return Vec::new();
    }
    let file = file.strip_suffix("/mod").unwrap_or(file);
    file.split('/').map(str::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The imports of `c/src/FILE`, without that folder.
    fn imports(sources: &[(&str, &str)], file: &str) -> Vec<String> {
        let sources: Vec<(String, &str)> =
            sources.iter().map(|(path, text)| (format!("c/src/{path}"), *text)).collect();
        let sources: Vec<(&str, &str)> =
            sources.iter().map(|(path, text)| (path.as_str(), *text)).collect();
        let graph = ImportGraph::of(&Files::from(&sources), "c/src/");
        let imports = graph.imports[&format!("c/src/{file}")].iter();
        imports.map(|path| path.replace("c/src/", "")).collect()
    }

    #[test]
    fn a_name_leads_to_the_file_that_defines_it() {
        let sources = [
            ("lib.rs", "mod a; mod b; pub use a::Thing;"),
            ("a/mod.rs", "mod thing; mod other; pub(crate) use thing::Thing; fn helper() {}"),
            ("a/thing.rs", "pub struct Thing; fn f() { super::helper() }"),
            ("a/other.rs", "use super::Thing; use super::thing::Part;"),
            ("b.rs", "use crate::Thing; fn f() { crate::a::helper() }"),
        ];
        assert_eq!(imports(&sources, "a/mod.rs"), Vec::<String>::new());
        assert_eq!(imports(&sources, "a/thing.rs"), ["a/mod.rs"]);
        assert_eq!(imports(&sources, "a/other.rs"), ["a/thing.rs"]);
        assert_eq!(imports(&sources, "b.rs"), ["a/mod.rs", "a/thing.rs"]);
    }

    #[test]
    fn a_parent_imports_what_it_uses_of_a_child_and_not_what_it_calls_there() {
        let sources =
            [("a.rs", "mod b; use b::B; fn f() { c::run() }"), ("a/b.rs", ""), ("a/c.rs", "")];
        assert_eq!(imports(&sources, "a.rs"), ["a/b.rs"]);
    }

    #[test]
    fn inline_modules_belong_to_their_file() {
        let sources = [
            ("a.rs", "mod inner { use super::Own; use super::super::b::B; }"),
            ("b.rs", "pub struct B;"),
        ];
        assert_eq!(imports(&sources, "a.rs"), ["b.rs"]);
    }

    #[test]
    fn tests_import_what_they_like() {
        let sources = [
            ("a.rs", "#[cfg(test)] mod tests; #[cfg(test)] mod more { use crate::b::B; }"),
            ("a/tests.rs", "use crate::b::B;"),
            ("b.rs", "pub struct B;"),
        ];
        assert_eq!(imports(&sources, "a.rs"), Vec::<String>::new());
        let files = sources.map(|(path, text)| (["c/src/", path].concat(), text));
        let files = files.iter().map(|(path, text)| (path.as_str(), *text)).collect::<Vec<_>>();
        let graph = ImportGraph::of(&Files::from(&files), "c/src/");
        assert!(!graph.imports.contains_key("c/src/a/tests.rs"));
    }
}
