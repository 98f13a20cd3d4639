//! Replaces a file in one step where that is possible: if writing fails, the old content is still there.

use std::fs::{self, File, Metadata};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process;

use rustix::process::geteuid;

use crate::failure::{Failure, Outcome};

/// Writes a file, replacing the one that is there. Regular files are replaced in one step; pipes and devices are
/// written directly.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> Outcome {
    let written = match fs::metadata(path) {
        Ok(old) if old.is_file() => write_over(path, &old, bytes),
        // A dangling symbolic link creates the file that it points to.
        Err(_) if !path.is_symlink() => replace(path, None, bytes),
        _ => fs::write(path, bytes),
    };
    written.map_err(|error| Failure::of_file("writing", path, &error))
}

/// Replaces an existing file that this user may write, or the target of a symbolic link.
fn write_over(path: &Path, old: &Metadata, bytes: &[u8]) -> io::Result<()> {
    // Opening it lets the kernel decide whether this user may write it, and which links to follow.
    drop(File::options().write(true).open(path)?);
    if old.uid() != geteuid().as_raw() {
        return fs::write(path, bytes); // keeps its owner
    }
    match replace(&fs::canonicalize(path)?, Some(old), bytes) {
        // The user may be allowed to write the file but not its directory, and a mount point cannot be replaced.
        Err(error) if cannot_rename(&error) => fs::write(path, bytes),
        done => done,
    }
}

fn cannot_rename(error: &io::Error) -> bool {
    use ErrorKind::{CrossesDevices, PermissionDenied, ResourceBusy};
    matches!(error.kind(), CrossesDevices | PermissionDenied | ResourceBusy)
}

fn replace(path: &Path, old: Option<&Metadata>, bytes: &[u8]) -> io::Result<()> {
    let random = RandomState::new().hash_one(process::id());
    let temporary = path.with_file_name(format!(".cenote-{random:016x}"));
    let new = File::create_new(&temporary)?;
    let done = fill(new, old, bytes).and_then(|()| fs::rename(&temporary, path));
    if done.is_err() {
        // The caller gets the first error; this one adds nothing.
        let _ = fs::remove_file(&temporary);
    }
    done
}

fn fill(mut file: File, old: Option<&Metadata>, bytes: &[u8]) -> io::Result<()> {
    if let Some(old) = old {
        file.set_permissions(old.permissions())?;
    }
    file.write_all(bytes)?;
    // Some file systems report only now that they are full.
    file.sync_all()
}
