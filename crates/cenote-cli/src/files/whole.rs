//! Files that are written as a whole: whatever goes wrong, what was there before is there still.

use std::fs::{self, File, Metadata};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process;

use crate::failure::{Failure, Outcome};

/// Writes a file, in place of the one that was there.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> Outcome {
    let written = match place(path) {
        Some((file, old)) => replace(&file, old.as_ref(), bytes),
        None => fs::write(path, bytes),
    };
    written.map_err(|error| Failure::of_file("writing", path, &error))
}

/// The file itself, whatever links lead there, and what is known of it if it is there; `None` of what is no
/// file, such as a pipe: that is written to as it is.
fn place(path: &Path) -> Option<(PathBuf, Option<Metadata>)> {
    match fs::canonicalize(path) {
        Ok(file) => {
            let old = fs::metadata(&file).ok().filter(Metadata::is_file)?;
            Some((file, Some(old)))
        }
        // A link that leads nowhere makes the file there.
        Err(_) if path.is_symlink() => None,
        Err(_) => Some((path.to_owned(), None)),
    }
}

fn replace(path: &Path, old: Option<&Metadata>, bytes: &[u8]) -> io::Result<()> {
    let random = RandomState::new().hash_one(process::id());
    let beside = path.with_file_name(format!(".cenote-{random:016x}"));
    let new = match File::create_new(&beside) {
        // It may be this user's to write, where the directory is not.
        Err(error) if error.kind() == ErrorKind::PermissionDenied && old.is_some() => {
            return fs::write(path, bytes);
        }
        new => new?,
    };
    let done = fill(new, old, bytes).and_then(|()| fs::rename(&beside, path));
    if done.is_err() {
        // It is of no use to anybody, and what went wrong is told.
        let _ = fs::remove_file(&beside);
    }
    done
}

fn fill(mut file: File, old: Option<&Metadata>, bytes: &[u8]) -> io::Result<()> {
    if let Some(old) = old {
        file.set_permissions(old.permissions())?;
    }
    file.write_all(bytes)?;
    // Some file systems find out only now that there is no room.
    file.sync_all()
}
