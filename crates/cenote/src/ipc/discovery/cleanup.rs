//! Removing what dead owners left behind.

use std::path::PathBuf;

use crate::error::Result;
use crate::ipc::discovery::socket_dir::Place;

/// Removes the sockets of dead owners from this namespace, and tells which.
///
/// Nobody needs this: whoever comes across such a socket removes it. What belongs to the living is
/// left alone. Directories of topics go if nobody is in them.
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
    for kind in Place::all_kinds()? {
        let Some(place) = Place::find_one_of(&kind)? else { continue };
        let locked = place.lock()?;
        removed.extend(place.remove_left(&place.file_names()?, &locked));
        drop(locked);
        if place.is_of_topic() {
            place.remove_if_empty();
        }
    }
    removed.sort();
    Ok(removed)
}
