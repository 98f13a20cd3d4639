//! Files that are written as a whole, wherever that can be: whatever goes wrong, what was there before is there
//! still.

use std::fs::{self, File, Metadata};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process;

use rustix::process::geteuid;

use crate::failure::{Failure, Outcome};

/// Writes a file, in place of the one that was there.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> Outcome {
    let written = match fs::metadata(path) {
        Ok(old) if old.is_file() => write_over(path, &old, bytes),
        // A link that leads nowhere makes the file there, and into a pipe is written as it is.
        Err(_) if !path.is_symlink() => replace(path, None, bytes),
        _ => fs::write(path, bytes),
    };
    written.map_err(|error| Failure::of_file("writing", path, &error))
}

/// Replaces a file that may be written, whatever links lead there.
fn write_over(path: &Path, old: &Metadata, bytes: &[u8]) -> io::Result<()> {
    // The system decides whether it may be, and which links are to be followed.
    drop(File::options().write(true).open(path)?);
    if old.uid() != geteuid().as_raw() {
        return fs::write(path, bytes); // it stays its owner's
    }
    match replace(&fs::canonicalize(path)?, Some(old), bytes) {
        // It may be this user's to write, where the directory is not; and what is mounted stays where it is.
        Err(error) if is_fixed(&error) => fs::write(path, bytes),
        done => done,
    }
}

fn is_fixed(error: &io::Error) -> bool {
    use ErrorKind::{CrossesDevices, PermissionDenied, ResourceBusy};
    matches!(error.kind(), CrossesDevices | PermissionDenied | ResourceBusy)
}

fn replace(path: &Path, old: Option<&Metadata>, bytes: &[u8]) -> io::Result<()> {
    let random = RandomState::new().hash_one(process::id());
    let beside = path.with_file_name(format!(".cenote-{random:016x}"));
    let new = File::create_new(&beside)?;
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
