//! Device memory: DMA-BUF heaps, OpenGL and CUDA.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};

use cenote::cuda_device_count;

use super::check::{Check, CheckState};

/// The usual directories of libraries.
const LIBRARIES: [&str; 6] = [
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/lib",
    "/lib",
];

pub(super) fn checks() -> Vec<Check> {
    vec![dma_heaps(), udmabuf(), render_nodes(), egl(), cuda()]
}

/// The files of a directory whose names start with the prefix.
fn files_in(dir: &str, prefix: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    let named = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix))
    };
    let mut found: Vec<PathBuf> = entries.filter(named).collect();
    found.sort();
    found
}

/// Whether this user may read and write a device, which both allocating and drawing need.
fn is_usable(path: &Path) -> bool {
    OpenOptions::new().read(true).write(true).open(path).is_ok()
}

/// Checks whether this user may use any of the devices.
fn check_devices(name: &'static str, devices: &[PathBuf], none: &str) -> Check {
    let shown = |path: &PathBuf| path.display().to_string();
    let all = devices.iter().map(shown).collect::<Vec<_>>().join(", ");
    match devices.iter().any(|path| is_usable(path)) {
        true => Check::works(name, all),
        false if devices.is_empty() => Check::new(name, CheckState::Missing, none),
        false => {
            Check::new(name, CheckState::Missing, format!("{all}: no permission for this user"))
        }
    }
}

fn dma_heaps() -> Check {
    check_devices("DMA heaps", &files_in("/dev/dma_heap", ""), "there is no /dev/dma_heap").advise(
        "needed only for buffers shared with cameras and accelerators: enable CONFIG_DMABUF_HEAPS_SYSTEM, and \
         give your group read and write access",
    )
}

fn udmabuf() -> Check {
    check_devices("udmabuf", &files_in("/dev", "udmabuf"), "there is no /dev/udmabuf").advise(
        "needed only for DMA-BUFs in ordinary memory: modprobe udmabuf, or join the group kvm",
    )
}

fn render_nodes() -> Check {
    check_devices("GPU", &files_in("/dev/dri", "renderD"), "there is no /dev/dri/renderD*")
        .advise("OpenGL runs in software, if at all; in a container, add --device /dev/dri")
}

fn egl() -> Check {
    let library = |dir: &&&str| Path::new(**dir).join("libEGL.so.1").exists();
    match LIBRARIES.iter().find(library) {
        Some(dir) => Check::works("OpenGL", format!("{dir}/libEGL.so.1")),
        None => Check::new("OpenGL", CheckState::Missing, "there is no libEGL.so.1")
            .advise("needed only for OpenGL buffers: apt install libegl1"),
    }
}

fn cuda() -> Check {
    match cuda_device_count() {
        0 => Check::new("CUDA", CheckState::Missing, "no device")
            .advise("needed only for CUDA tensors"),
        count => Check::works("CUDA", format!("{count} devices")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_cannot_be_written_is_missing() {
        // Not even root may open a directory for writing.
        let check = check_devices("GPU", &[PathBuf::from("/")], "there is none");
        assert_eq!(
            (check.state, check.found.as_str()),
            (CheckState::Missing, "/: no permission for this user")
        );
        let check = check_devices("GPU", &["/".into(), "/dev/null".into()], "there is none");
        assert_eq!((check.state, check.found.as_str()), (CheckState::Works, "/, /dev/null"));
        let check = check_devices("GPU", &[], "there is none");
        assert_eq!((check.state, check.found.as_str()), (CheckState::Missing, "there is none"));
    }
}
