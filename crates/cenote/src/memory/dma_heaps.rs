//! The devices that DMA-BUFs are allocated from: which there are, in which order they are asked. They are
//! opened once and stay open.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{env, fs, io};

use rustix::fs::{Mode, OFlags};

use crate::error::{Tried, Unavailable};
use crate::sys::fork::PerProcess;

/// The environment variable that names the one heap to allocate DMA-BUFs from, as in `/dev/dma_heap`, or
/// `udmabuf`.
pub const DMA_HEAP_ENV: &str = "CENOTE_DMA_HEAP";

const HEAPS: &str = "/dev/dma_heap";
const UDMABUF: &str = "/dev/udmabuf";

/// What udmabuf is called among the heaps.
const UDMABUF_NAME: &str = "udmabuf";

/// Heaps whose buffers lie in one piece of physical memory, as devices without an MMU of their own need
/// it. Names depend on kernel and board.
const CONTIGUOUS: [&str; 4] = ["linux,cma", "reserved", "default_cma_region", "default-cma-region"];

/// The heap that every kernel with heaps has.
const SYSTEM: &str = "system";

/// Words in the names of heaps that are for special purposes: buffers that the CPU cannot read, or only
/// slowly.
const SPECIAL: [&str; 4] = ["secure", "protected", "restricted", "uncached"];

/// Something that DMA-BUFs are allocated from.
#[derive(Debug)]
pub(crate) enum Device {
    Heap { name: String, fd: OwnedFd },
    Udmabuf { fd: OwnedFd },
}

/// Which of them will do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kinds {
    /// Heaps, else udmabuf.
    Any,
    /// Those whose memory others can be kept from writing.
    Protected,
    /// The same, unless the environment names a heap: nobody else has asked for one.
    Unasked,
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

/// The devices to ask, in this order. At least one; else why not.
pub(crate) fn devices(kinds: Kinds) -> Result<Vec<Arc<Device>>, Unavailable> {
    let (devices, heaps) = match env::var_os(DMA_HEAP_ENV) {
        Some(name) => (vec![named(&name)?], kinds != Kinds::Protected),
        None => (all()?.to_vec(), kinds == Kinds::Any),
    };
    let will_do = |device: &Arc<Device>| heaps || !device.is_heap();
    let devices: Vec<Arc<Device>> = devices.into_iter().filter(will_do).collect();
    if devices.is_empty() { Err(Unavailable::Unprotected) } else { Ok(devices) }
}

/// The one that the environment names.
fn named(name: &OsStr) -> Result<Arc<Device>, Unavailable> {
    let known = all().ok().and_then(|all| all.iter().find(|device| name == device.name()));
    if let Some(device) = known {
        return Ok(device.clone());
    }
    // It may be there although it could not be opened: say why.
    let opened = match name.to_str().filter(|name| is_plain(name)) {
        Some(name) => Device::open(name),
        None => Err(Tried { path: name.into(), source: io::ErrorKind::InvalidInput.into() }),
    };
    opened.map(Arc::new).map_err(|tried| Unavailable::NoDevice { tried: vec![tried] })
}

/// A name that stays in the directory of heaps.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && !name.contains('/') && name != "." && name != ".."
}

/// All that can be opened. Looked for until there are some: they may come with a module, or with a right.
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

/// The heaps there are, the best first.
fn heap_names() -> io::Result<Vec<String>> {
    let name = |entry: io::Result<fs::DirEntry>| entry.ok()?.file_name().into_string().ok();
    let mut names: Vec<String> = fs::read_dir(HEAPS)?.filter_map(name).collect();
    names.sort_by_cached_key(|name| (rank(name), name.clone()));
    Ok(names)
}

/// The place of a heap among others: contiguous memory, which every device can use; then pages of
/// anywhere; then heaps that nobody here has heard of; then those for special purposes.
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
    fn names_that_lead_elsewhere_are_refused() {
        for name in ["", ".", "..", "../null", "a/b"] {
            assert!(!is_plain(name), "{name:?}");
        }
        assert!(is_plain("linux,cma"));
    }
}
