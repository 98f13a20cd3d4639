//! Anonymous shared-memory files (memfds): how to create, reserve, seal and examine them.
//!
//! See memfd_create(2), fallocate(2) and "File Sealing" in fcntl(2).

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{self, FallocateFlags, MemfdFlags, OFlags, SealFlags};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use crate::sys::dmabuf::DMA_BUF_MAGIC;

/// Bytes reserved by one call. An interrupted fallocate(2) of tmpfs undoes itself, so a process that gets many
/// signals makes progress only in small steps.
const RESERVE_STEP: u64 = 64 << 20;

/// See statfs(2).
const HUGETLBFS_MAGIC: fs::FsWord = 0x9584_58f6;

/// What the kernel says about a file descriptor, before it is mapped.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Facts {
    pub(crate) size: u64,
    /// Bytes for which memory is reserved.
    pub(crate) reserved: u64,
    /// Device and inode: equal for descriptors of one file.
    pub(crate) file: (u64, u64),
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    /// `None` if the file cannot be sealed, so is not shared memory.
    pub(crate) seals: Option<SealFlags>,
    /// A memfd of huge pages.
    pub(crate) huge_pages: bool,
    /// A DMA-BUF, which keeps its size without a seal.
    pub(crate) dma_buf: bool,
    /// The kind of file, in words.
    pub(crate) kind: &'static str,
}

/// Creates a shared-memory file of `len` bytes, all of them reserved, that can neither shrink nor grow.
pub(crate) fn create(name: &str, len: u64) -> io::Result<OwnedFd> {
    let fd = open(name)?;
    reserve(&fd, len)?;
    fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW)?;
    Ok(fd)
}

/// Returns an error unless the system is set to use huge pages for all shared memory. Advice alone has no immediate
/// effect: the memory is reserved before it is mapped, and only mapped memory can be advised.
pub(crate) fn check_huge_pages() -> io::Result<()> {
    const SETTING: &str = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
    let setting = std::fs::read_to_string(SETTING)?;
    match setting.split(['[', ']']).nth(1) {
        Some("always" | "within_size" | "force") => Ok(()),
        chosen => {
            let chosen = chosen.unwrap_or("unknown");
            Err(io::Error::new(io::ErrorKind::Unsupported, format!("{SETTING} is `{chosen}`")))
        }
    }
}

/// Linux 6.3 wants to know that a memfd is not executable. Older kernels refuse the flag.
fn open(name: &str) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    match fs::memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL) {
        Err(Errno::INVAL) => Ok(fs::memfd_create(name, flags)?),
        done => Ok(done?),
    }
}

fn reserve(fd: &OwnedFd, len: u64) -> io::Result<()> {
    // Beyond the limit on file sizes the process gets SIGXFSZ, not an error.
    if getrlimit(Resource::Fsize).current.is_some_and(|limit| len > limit) {
        return Err(Errno::FBIG.into());
    }
    let mut done = 0;
    while done < len {
        let step = RESERVE_STEP.min(len - done);
        match fs::fallocate(fd, FallocateFlags::empty(), done, step) {
            Err(Errno::INTR) => {}
            result => {
                result?;
                done += step;
            }
        }
    }
    Ok(())
}

/// Forbids writes and new writable mappings, for all processes and for ever. Existing mappings
/// keep working.
pub(crate) fn forbid_writing(fd: impl AsFd) -> io::Result<()> {
    Ok(fs::fcntl_add_seals(fd, SealFlags::FUTURE_WRITE)?)
}

/// Examines a file descriptor from an unknown source.
pub(crate) fn examine(fd: impl AsFd) -> io::Result<Facts> {
    let fd = fd.as_fd();
    // Seals before size: a file could be truncated and sealed after its size was read. Seals cannot be removed, so a
    // file that was found with `SHRINK` keeps at least the size that is read after that.
    let seals = fs::fcntl_get_seals(fd).ok();
    let stat = fs::fstat(fd)?;
    let mode = fs::fcntl_getfl(fd)?;
    let access = mode & OFlags::ACCMODE;
    let path_only = mode.contains(OFlags::PATH);
    let system = fs::fstatfs(fd).ok().filter(|_| !path_only).map(|file| file.f_type);
    Ok(Facts {
        size: u64::try_from(stat.st_size).unwrap_or(0),
        reserved: u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512),
        file: (stat.st_dev, stat.st_ino),
        readable: !path_only && access != OFlags::WRONLY,
        writable: !path_only && access == OFlags::RDWR,
        seals,
        huge_pages: system == Some(HUGETLBFS_MAGIC),
        dma_buf: system == Some(DMA_BUF_MAGIC),
        kind: match path_only {
            true => "only a path (O_PATH)",
            false => kind_name(fs::FileType::from_raw_mode(stat.st_mode)),
        },
    })
}

fn kind_name(kind: fs::FileType) -> &'static str {
    match kind {
        fs::FileType::RegularFile => "an ordinary file",
        fs::FileType::Directory => "a directory",
        fs::FileType::Fifo => "a pipe",
        fs::FileType::Socket => "a socket",
        fs::FileType::CharacterDevice => "a character device",
        fs::FileType::BlockDevice => "a block device",
        _ => "something else",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn created_memory_is_reserved_and_sealed() {
        let fd = create("facts", 100_000).unwrap();
        let facts = examine(&fd).unwrap();
        assert_eq!(facts.size, 100_000);
        assert!(facts.reserved >= 100_000);
        assert_eq!(
            facts.seals.unwrap() & (SealFlags::SHRINK | SealFlags::GROW),
            SealFlags::SHRINK | SealFlags::GROW
        );
        assert!(fs::ftruncate(&fd, 1).is_err());
    }

    #[test]
    fn forbidding_writes_holds_for_every_descriptor_of_the_file() {
        let fd = create("seal", 4096).unwrap();
        forbid_writing(&fd).unwrap();
        assert!(rustix::io::pwrite(&fd, b"x", 0).is_err());
    }
}
