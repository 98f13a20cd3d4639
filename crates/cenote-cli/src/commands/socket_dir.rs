//! What this user can list of the socket directory.

use std::path::Path;
use std::{env, fs, io};

use cenote::{DIR_ENV, NAMESPACE_ENV, namespace_dir};

use crate::failure::{self, Failure, Outcome};

/// Returns an error if `CENOTE_NAMESPACE` names a namespace that does not exist.
///
/// A missing `CENOTE_DIR` is only a warning: the first publisher or pool owner creates it. The warning is for
/// users who mistyped it.
pub(crate) fn check_namespace() -> Outcome {
    let dir = namespace_dir()?;
    let named = env::var_os(NAMESPACE_ENV).is_some();
    match dir.try_exists() {
        Ok(false) if named => {
            let text = format!("there is no namespace {}: {NAMESPACE_ENV} names it", dir.display());
            Err(Failure::NotFound(text))
        }
        Ok(false) => {
            warn_if_dir_is_missing(&dir);
            Ok(())
        }
        // Any other problem shows when the directory is read.
        _ => Ok(()),
    }
}

/// The topics or pools that this user may list: none if the directory of that kind is closed to this user. The
/// other kind may still be open.
pub(crate) fn visible<T>(listed: cenote::Result<Vec<T>>) -> Outcome<Vec<T>> {
    match listed.map_err(Failure::from) {
        Err(Failure::NoPermission(_)) => Ok(Vec::new()),
        listed => listed,
    }
}

/// Warns of directories that are closed to this user, whose content is therefore not listed.
pub(crate) fn warn_of_closed_dirs() -> Outcome {
    let dir = namespace_dir()?;
    for dir in ["topics", "pools"].map(|kind| dir.join(kind)) {
        let denied = |error: &io::Error| error.kind() == io::ErrorKind::PermissionDenied;
        if fs::read_dir(&dir).is_err_and(|error| denied(&error)) {
            let dir = dir.display();
            failure::warn(&format!("{dir} is closed to this user: its content is not listed"));
        }
    }
    Ok(())
}

fn warn_if_dir_is_missing(namespace: &Path) {
    let named = env::var_os(DIR_ENV).is_some();
    let root = namespace.parent().filter(|root| matches!(root.try_exists(), Ok(false)));
    if let Some(root) = root.filter(|_| named) {
        failure::warn(&format!("there is no directory {}: {DIR_ENV} names it", root.display()));
    }
}
