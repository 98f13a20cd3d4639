//! Memory of devices: DMA-BUF heaps, OpenGL and CUDA.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};

use cenote::cuda_device_count;

use super::{Check, State};

/// Where libraries usually are.
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

/// The entries of a directory whose names begin so.
fn entries(dir: &str, prefix: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    let named = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix))
    };
    let mut found: Vec<PathBuf> = entries.filter(named).collect();
    found.sort();
    found
}

/// Whether this user may use a device: allocating from one and drawing with one take both rights.
fn is_usable(path: &Path) -> bool {
    OpenOptions::new().read(true).write(true).open(path).is_ok()
}

/// Whether this user may use any of these.
fn of_devices(name: &'static str, devices: &[PathBuf], none: &str) -> Check {
    let shown = |path: &PathBuf| path.display().to_string();
    let all = devices.iter().map(shown).collect::<Vec<_>>().join(", ");
    match devices.iter().any(|path| is_usable(path)) {
        true => Check::works(name, all),
        false if devices.is_empty() => Check::new(name, State::Missing, none),
        false => Check::new(name, State::Missing, format!("{all}: not for this user")),
    }
}

fn dma_heaps() -> Check {
    of_devices("DMA heaps", &entries("/dev/dma_heap", ""), "there is no /dev/dma_heap").advise(
        "only buffers that cameras and accelerators share need them: \
         CONFIG_DMABUF_HEAPS_SYSTEM, and read and write access for your group",
    )
}

fn udmabuf() -> Check {
    of_devices("udmabuf", &entries("/dev", "udmabuf"), "there is no /dev/udmabuf")
        .advise("only DMA-BUFs of ordinary memory need it: modprobe udmabuf, or the group kvm")
}

fn render_nodes() -> Check {
    of_devices("GPU", &entries("/dev/dri", "renderD"), "there is no /dev/dri/renderD*")
        .advise("OpenGL works in software, if at all; in a container: --device /dev/dri")
}

fn egl() -> Check {
    let library = |dir: &&&str| Path::new(**dir).join("libEGL.so.1").exists();
    match LIBRARIES.iter().find(library) {
        Some(dir) => Check::works("OpenGL", format!("{dir}/libEGL.so.1")),
        None => Check::new("OpenGL", State::Missing, "there is no libEGL.so.1")
            .advise("only OpenGL buffers need it: apt install libegl1"),
    }
}

fn cuda() -> Check {
    match cuda_device_count() {
        0 => {
            Check::new("CUDA", State::Missing, "no device").advise("only tensors of CUDA need one")
        }
        count => Check::works("CUDA", format!("{count} devices")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_only_be_read_is_not_for_this_user() {
        // A directory is refused to be written even to those who may do anything.
        let check = of_devices("GPU", &[PathBuf::from("/")], "there is none");
        assert_eq!((check.state, check.found.as_str()), (State::Missing, "/: not for this user"));
        let check = of_devices("GPU", &["/".into(), "/dev/null".into()], "there is none");
        assert_eq!((check.state, check.found.as_str()), (State::Works, "/, /dev/null"));
        let check = of_devices("GPU", &[], "there is none");
        assert_eq!((check.state, check.found.as_str()), (State::Missing, "there is none"));
    }
}
