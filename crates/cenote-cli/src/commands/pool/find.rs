//! Finds pools by name.

use cenote::{PoolInfo, namespace_dir};

use crate::commands::socket_dir;
use crate::failure::{Failure, Outcome};

/// Finds pools by name. The name of a topic stands for the pools of its publishers, and may be spelled with
/// slashes. Returns all pools if no name is given, and an error if none has the name.
pub(crate) fn pools(given: Option<&str>) -> Outcome<Vec<PoolInfo>> {
    let mut found = cenote::pools()?;
    socket_dir::warn_of_closed_dirs()?;
    let Some(given) = given else { return Ok(found) };
    let name = given.strip_prefix('/').unwrap_or(given).replace('/', ".");
    found.retain(|pool| pool.name == name);
    if found.is_empty() {
        let dir = namespace_dir()?;
        let text = format!("there is no pool `{name}` in {}: see `cenote ls`", dir.display());
        return Err(Failure::NotFound(text));
    }
    Ok(found)
}
