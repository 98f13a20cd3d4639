//! The modules that the stage `miri` names exist.

use crate::stages::MIRI_MODULES;
use crate::tidy::files::Files;
use crate::tidy::finding::Finding;

pub(super) fn check(files: &Files) -> Vec<Finding> {
    let missing = MIRI_MODULES.iter().filter(|module| !is_module(files, module));
    missing
        .map(|module| {
            let message = format!("crates/cenote has no module {module}");
            Finding::in_file("crates/xtask/src/stages/miri.rs", message)
        })
        .collect()
}

/// A module is a file or a folder.
fn is_module(files: &Files, module: &str) -> bool {
    let path = format!("crates/cenote/src/{}", module.replace("::", "/"));
    files.get(&format!("{path}.rs")).is_some()
        || files.under(&format!("{path}/"), ".rs").next().is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_is_a_file_or_a_folder() {
        let files = Files::from(&[
            ("crates/cenote/src/tensor/buffer/handle.rs", ""),
            ("crates/cenote/src/ipc/lease/rows.rs", ""),
        ]);
        assert!(is_module(&files, "tensor::buffer::handle"));
        assert!(is_module(&files, "ipc::lease"));
        assert!(!is_module(&files, "ipc::ring") && !is_module(&files, "ipc::lea"));
        assert_eq!(check(&files).len(), MIRI_MODULES.len() - 2);
    }
}
