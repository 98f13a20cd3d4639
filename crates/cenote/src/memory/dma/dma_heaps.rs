//! The devices that allocate DMA-BUFs: which exist, and in which order they are tried. They are opened once and stay
//! open.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{env, fs, io};

use rustix::fs::{Mode, OFlags};

use crate::error::{Tried, Unavailable};
use crate::sys::fork::PerProcess;

/// The environment variable that names the only heap to allocate DMA-BUFs from: a name in `/dev/dma_heap`, or `udmabuf`.
pub const DMA_HEAP_ENV: &str = "CENOTE_DMA_HEAP";

const HEAPS: &str = "/dev/dma_heap";
const UDMABUF: &str = "/dev/udmabuf";

/// The name of udmabuf among the heaps.
const UDMABUF_NAME: &str = "udmabuf";

/// Heaps whose buffers are contiguous in physical memory, which devices without an IOMMU need. The names depend on
/// kernel and board.
const CONTIGUOUS: [&str; 4] = ["linux,cma", "reserved", "default_cma_region", "default-cma-region"];

/// The heap that every kernel with heaps has.
const SYSTEM: &str = "system";

/// Words in the names of heaps for special purposes, whose buffers the CPU cannot read, or only slowly.
const SPECIAL: [&str; 4] = ["secure", "protected", "restricted", "uncached"];

/// A device that allocates DMA-BUFs.
#[derive(Debug)]
pub(crate) enum Device {
    Heap { name: String, fd: OwnedFd },
    Udmabuf { fd: OwnedFd },
}

/// Which devices are acceptable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeviceChoice {
    /// Heaps, and udmabuf after them.
    Any,
    /// Only those whose memory can be protected from other processes: udmabuf.
    Protected,
    /// The same, or the heap that the environment names. For callers that did not ask for DMA-BUFs.
    ProtectedOrNamed,
}

impl Device {
    /// The name of the heap, or `udmabuf`.
    pub(crate) fn name(&self) -> &str {
        match self {
            Device::Heap { name, .. } => name,
            Device::Udmabuf { .. } => UDMABUF_NAME,
        }
    }

    fn is_heap(&self) -> bool {
        matches!(self, Device::Heap { .. })
    }

    pub(crate) fn path(&self) -> PathBuf {
        path_of(self.name())
    }

    fn open(name: &str) -> Result<Device, Tried> {
        let path = path_of(name);
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        match rustix::fs::open(&path, flags, Mode::empty()) {
            Ok(fd) if name == UDMABUF_NAME => Ok(Device::Udmabuf { fd }),
            Ok(fd) => Ok(Device::Heap { name: name.to_owned(), fd }),
            Err(source) => Err(Tried { path, source: source.into() }),
        }
    }
}

fn path_of(name: &str) -> PathBuf {
    match name {
        UDMABUF_NAME => UDMABUF.into(),
        heap => Path::new(HEAPS).join(heap),
    }
}

/// The acceptable devices, in the order to try them. There is at least one; otherwise an error says why not.
pub(crate) fn devices(choice: DeviceChoice) -> Result<Vec<Arc<Device>>, Unavailable> {
    let (devices, accept_heaps) = match env::var_os(DMA_HEAP_ENV) {
        Some(name) => (vec![named(&name)?], choice != DeviceChoice::Protected),
        None => (all()?.to_vec(), choice == DeviceChoice::Any),
    };
    let is_accepted = |device: &Arc<Device>| accept_heaps || !device.is_heap();
    let devices: Vec<Arc<Device>> = devices.into_iter().filter(is_accepted).collect();
    if devices.is_empty() { Err(Unavailable::Unprotected) } else { Ok(devices) }
}

/// The device that the environment names.
fn named(name: &OsStr) -> Result<Arc<Device>, Unavailable> {
    let known = all().ok().and_then(|all| all.iter().find(|device| name == device.name()));
    if let Some(device) = known {
        return Ok(device.clone());
    }
    // It may exist but not open. Try it again, for the error.
    let opened = match name.to_str().filter(|name| is_plain(name)) {
        Some(name) => Device::open(name),
        None => Err(Tried { path: name.into(), source: io::ErrorKind::InvalidInput.into() }),
    };
    opened.map(Arc::new).map_err(|tried| Unavailable::NoDevice { tried: vec![tried] })
}

/// Whether a name is a plain file name, so does not lead out of the directory of heaps.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && !name.contains('/') && name != "." && name != ".."
}

/// All devices that can be opened. As long as there are none, each call tries again: a kernel module may be loaded, or a
/// permission granted.
fn all() -> Result<&'static [Arc<Device>], Unavailable> {
    static OPEN: PerProcess<Vec<Arc<Device>>> = PerProcess::new();
    OPEN.get(open_all).map(Vec::as_slice)
}

fn open_all() -> Result<Vec<Arc<Device>>, Unavailable> {
    let mut tried = Vec::new();
    let mut names = heap_names().unwrap_or_else(|source| {
        tried.push(Tried { path: HEAPS.into(), source });
        Vec::new()
    });
    names.push(UDMABUF_NAME.to_owned());
    let mut devices = Vec::new();
    for name in names {
        match Device::open(&name) {
            Ok(device) => devices.push(Arc::new(device)),
            Err(failed) => tried.push(failed),
        }
    }
    if devices.is_empty() { Err(Unavailable::NoDevice { tried }) } else { Ok(devices) }
}

/// The names of the heaps, the preferred first.
fn heap_names() -> io::Result<Vec<String>> {
    let name = |entry: io::Result<fs::DirEntry>| entry.ok()?.file_name().into_string().ok();
    let mut names: Vec<String> = fs::read_dir(HEAPS)?.filter_map(name).collect();
    names.sort_by_cached_key(|name| (rank(name), name.clone()));
    Ok(names)
}

/// The rank of a heap: contiguous memory first, which every device can use; then the system heap; then unknown heaps;
/// then those for special purposes.
fn rank(name: &str) -> usize {
    let known = CONTIGUOUS.iter().position(|known| *known == name);
    if SPECIAL.iter().any(|word| name.contains(word)) {
        return CONTIGUOUS.len() + 3;
    }
    match known {
        Some(at) => at,
        None if name.contains("cma") => CONTIGUOUS.len(),
        None if name == SYSTEM => CONTIGUOUS.len() + 1,
        None => CONTIGUOUS.len() + 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contiguous_heaps_come_first_and_special_ones_last() {
        let mut names = [
            "system-uncached",
            "vendor",
            "system",
            "secure,cma",
            "mtk_cma",
            "reserved",
            "linux,cma",
        ];
        names.sort_by_key(|name| rank(name));
        let expected = [
            "linux,cma",
            "reserved",
            "mtk_cma",
            "system",
            "vendor",
            "system-uncached",
            "secure,cma",
        ];
        assert_eq!(names, expected);
    }

    #[test]
    fn names_that_lead_out_of_the_directory_are_refused() {
        for name in ["", ".", "..", "../null", "a/b"] {
            assert!(!is_plain(name), "{name:?}");
        }
        assert!(is_plain("linux,cma"));
    }
}
