//! Fences that a device puts on a buffer and signals when its work is done. They come from vgem, a driver
//! without a device, and a sync file transfers them to a buffer.
#![allow(unsafe_code, reason = "ioctls of drivers")]

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};

const CREATE_DUMB: u64 = 0xc020_64b2;
const PRIME_HANDLE_TO_FD: u64 = 0xc00c_642d;
const VGEM_FENCE_ATTACH: u64 = 0xc010_6441;
const VGEM_FENCE_SIGNAL: u64 = 0x4008_6442;
const EXPORT_SYNC_FILE: u64 = 0xc008_6202;
const IMPORT_SYNC_FILE: u64 = 0x4008_6203;

const WRITE: u32 = 2;
const READ_WRITE: u32 = 3;

/// Work of a device on a buffer, until `done` is called. (The driver gives up after ten seconds.)
pub(super) struct Work {
    card: File,
    fence: u32,
}

impl Work {
    /// Starts work of a device that writes `buffer`.
    pub(super) fn on(buffer: impl AsFd) -> Work {
        let card = card();
        // height, width, bits, flags, handle, pitch, size, in 32-bit words
        let mut dumb: [u32; 8] = [16, 16, 32, 0, 0, 0, 0, 0];
        ioctl(&card, CREATE_DUMB, &mut dumb);
        let handle = dumb[4];
        // handle, flags, fence, padding
        let mut attach: [u32; 4] = [handle, 1, 0, 0];
        ioctl(&card, VGEM_FENCE_ATTACH, &mut attach);
        // handle, flags, descriptor
        let mut prime: [u32; 3] = [handle, libc::O_CLOEXEC.cast_unsigned(), 0];
        ioctl(&card, PRIME_HANDLE_TO_FD, &mut prime);
        let theirs = descriptor(prime[2]);
        // flags, descriptor
        let mut export: [u32; 2] = [READ_WRITE, 0];
        ioctl(&theirs, EXPORT_SYNC_FILE, &mut export);
        let sync = descriptor(export[1]);
        let mut import: [u32; 2] = [WRITE, sync.as_raw_fd().cast_unsigned()];
        ioctl(buffer, IMPORT_SYNC_FILE, &mut import);
        Work { card, fence: attach[2] }
    }

    /// Ends the work.
    pub(super) fn done(self) {
        // fence, flags
        ioctl(&self.card, VGEM_FENCE_SIGNAL, &mut [self.fence, 0]);
    }
}

fn card() -> File {
    let card = OpenOptions::new().read(true).write(true).open("/dev/dri/card0");
    card.expect("vgem, which the script that runs this has loaded")
}

fn ioctl<const N: usize>(fd: impl AsFd, number: u64, words: &mut [u32; N]) {
    // SAFETY: each number above takes as many words as it is called with.
    let result = unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), number, words.as_mut_ptr()) };
    assert_eq!(result, 0, "{number:#x}: {}", io::Error::last_os_error());
}

fn descriptor(number: u32) -> OwnedFd {
    // SAFETY: the kernel has just made this descriptor, and only this code owns it.
    unsafe { OwnedFd::from_raw_fd(RawFd::try_from(number).unwrap()) }
}
