//! Removing the sockets of dead owners.

use std::path::PathBuf;

use crate::error::Result;
use crate::ipc::discovery::socket_dir::SocketDir;

/// Removes the sockets of dead owners from this namespace. Returns their paths.
///
/// Calling it is optional: a process that finds such a socket removes it. The sockets of living owners stay. Empty
/// directories of topics are removed.
///
/// ```
/// # let dir = std::env::temp_dir().join(format!("cenote-gc-doc-{}", std::process::id()));
/// # std::fs::create_dir_all(&dir)?; unsafe { std::env::set_var("CENOTE_DIR", &dir) };
/// for path in cenote::remove_dead()? {
///     println!("removed {}", path.display());
/// }
/// # std::fs::remove_dir_all(&dir)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn remove_dead() -> Result<Vec<PathBuf>> {
    let mut removed = Vec::new();
    for kind in SocketDir::all_kinds()? {
        let Some(socket_dir) = SocketDir::find_one_of(&kind)? else { continue };
        let locked = socket_dir.lock()?;
        removed.extend(socket_dir.remove_left(&socket_dir.file_names()?, &locked));
        drop(locked);
        if socket_dir.is_of_topic() {
            socket_dir.remove_if_empty();
        }
    }
    removed.sort();
    Ok(removed)
}
