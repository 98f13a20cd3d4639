//! Exported and imported DMA-BUFs: who can write them, and what cenote reports.
#![allow(unsafe_code, reason = "writing what others have, fork, foreign buffers")]

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::ptr;

use cenote::{
    DType, Error, Layout, NotWritable, PixelFormat, PlaneDescriptor, Protection, Tensor,
    TensorMemory,
};
use rustix::fs::OFlags;
use rustix::mm::{MapFlags, ProtFlags};

use super::{Role, Test, counting, dma, from_heap, over_both};
use crate::support::peer::ROLE;

pub(super) const TESTS: &[Test] = &[
    ("the_dmabuf_is_the_tensors", the_dmabuf_is_the_tensors),
    ("other_memory_has_no_dmabuf", other_memory_has_no_dmabuf),
    ("a_dmabuf_that_was_given_away_is_not_written_any_more", given_away_is_not_written),
    ("a_device_may_use_what_can_be_written", a_device_may_use_what_can_be_written),
    ("heap_buffers_are_left_alone_by_convention", heap_buffers_are_left_alone_by_convention),
    ("the_kernel_protects_the_memory_behind_a_udmabuf", the_kernel_protects_a_udmabuf),
    ("imports_are_read_only_and_say_so", imports_are_read_only_and_say_so),
    ("imports_that_are_trusted_can_be_written", imports_that_are_trusted_can_be_written),
    ("imports_have_offset_and_strides", imports_have_offset_and_strides),
    ("a_descriptor_that_is_no_dmabuf_is_refused", a_descriptor_that_is_no_dmabuf_is_refused),
    ("buffers_that_are_too_small_are_refused", buffers_that_are_too_small_are_refused),
    ("a_buffer_opened_to_be_read_is_not_written", a_buffer_opened_to_be_read_is_not_written),
    ("planes_of_one_buffer_and_of_several", planes_of_one_buffer_and_of_several),
    ("planes_that_overrun_are_refused", planes_that_overrun_are_refused),
    ("tensors_travel_to_another_program", tensors_travel_to_another_program),
    ("views_and_images_travel", views_and_images_travel),
    ("a_forked_child_reads_and_does_not_write", a_forked_child_reads_and_does_not_write),
    ("bools_that_others_could_write_are_not_looked_at", bools_are_not_looked_at),
];

pub(super) const ROLES: &[Role] = &[("receive", receive)];

fn inode(fd: impl AsFd) -> u64 {
    rustix::fs::fstat(fd).unwrap().st_ino
}

/// A buffer that cenote did not make.
pub(super) fn foreign(len: u64, flags: OFlags) -> OwnedFd {
    #[repr(C)]
    struct HeapAlloc {
        len: u64,
        fd: u32,
        fd_flags: u32,
        heap_flags: u64,
    }
    let heap = std::fs::File::open("/dev/dma_heap/system").unwrap();
    let fd_flags = (flags | OFlags::CLOEXEC).bits();
    let mut alloc = HeapAlloc { len, fd: 0, fd_flags, heap_flags: 0 };
    // SAFETY: DMA_HEAP_IOCTL_ALLOC takes this structure.
    let result = unsafe { libc::ioctl(heap.as_raw_fd(), 0xc018_4800, &raw mut alloc) };
    assert_eq!(result, 0, "{}", io::Error::last_os_error());
    // SAFETY: the kernel has just made this descriptor, and only this code owns it.
    unsafe { OwnedFd::from_raw_fd(alloc.fd.cast_signed()) }
}

/// Tries to write one byte, as a process does that ignores the conventions.
fn scribble(fd: impl AsFd, at: usize, value: u8) -> io::Result<()> {
    let (len, prot) = (4096, ProtFlags::READ | ProtFlags::WRITE);
    // SAFETY: the kernel chooses an unused address.
    let map = unsafe { rustix::mm::mmap(ptr::null_mut(), len, prot, MapFlags::SHARED, fd, 0) }?;
    // SAFETY: the mapping has that many bytes.
    let byte = unsafe { map.cast::<u8>().add(at) };
    // SAFETY: it was just mapped, to be written.
    unsafe { byte.write_volatile(value) };
    // SAFETY: no reference to it exists.
    unsafe { rustix::mm::munmap(map, len) }.unwrap();
    Ok(())
}

fn the_dmabuf_is_the_tensors() {
    over_both(|_| {
        let tensor = counting(&[64, 64]);
        let clone = tensor.dmabuf_clone().unwrap();
        assert_eq!(inode(tensor.dmabuf().unwrap()), inode(&clone));
        assert_eq!(rustix::fs::fstat(&clone).unwrap().st_size, 4096);
        let view = tensor.roi(3, 2, 4, 4).unwrap();
        assert_eq!(view.dmabuf_offset().unwrap(), 2 * 64 + 3);
        assert_eq!(inode(view.dmabuf().unwrap()), inode(&clone));
        assert_eq!(view.buffer_identity().id(), tensor.buffer_identity().id());

        let alive = tensor.buffer_identity().weak();
        drop((tensor, view));
        assert!(alive.upgrade().is_none());
        let again = Tensor::from_fd(clone, &[64, 64], DType::U8).unwrap();
        assert_eq!(again.map().unwrap().get::<u8>(&[2, 3]).unwrap(), 131);
    });
}

fn other_memory_has_no_dmabuf() {
    for memory in [TensorMemory::Mem, TensorMemory::Shm] {
        let tensor = Tensor::options().memory(memory).create(&[4], DType::U8).unwrap();
        for error in [
            tensor.dmabuf().map(drop).unwrap_err(),
            tensor.dmabuf_clone().map(drop).unwrap_err(),
            tensor.dmabuf_offset().map(drop).unwrap_err(),
        ] {
            assert!(matches!(error, Error::NoFd { wanted: "DMA-BUF", .. }), "{error}");
            assert!(error.to_string().contains("dma memory"), "{error}");
        }
        assert_eq!(tensor.not_writable(), None, "nothing was given away");
    }
}

fn given_away_is_not_written() {
    over_both(|_| {
        let mut tensor = counting(&[64]);
        drop(tensor.dmabuf_clone().unwrap());
        assert_eq!(tensor.not_writable(), Some(NotWritable::Published));
        assert!(tensor.map_mut().is_err());
        assert_eq!(tensor.protection(), Protection::Convention);
        tensor.make_mut().unwrap().set::<u8>(&[0], 9).unwrap();
        assert_eq!((tensor.memory(), tensor.not_writable()), (TensorMemory::Dma, None));
    });
}

fn a_device_may_use_what_can_be_written() {
    let mut tensor = counting(&[64]);
    for round in 0..3 {
        // SAFETY: no guard is alive, and the descriptor is not used later.
        let fd = unsafe { tensor.dmabuf_mut() }.unwrap();
        scribble(fd, 7, round).unwrap();
        assert_eq!(tensor.map().unwrap().get::<u8>(&[7]).unwrap(), round);
        tensor.map_mut().unwrap().set::<u8>(&[7], 99).unwrap();
    }
    let other = tensor.clone();
    // SAFETY: as above.
    let refused = unsafe { tensor.dmabuf_mut() }.map(drop).unwrap_err();
    assert!(matches!(refused, Error::NotWritable { why: NotWritable::Shared }), "{refused}");
    drop(other);
}

fn heap_buffers_are_left_alone_by_convention() {
    from_heap("system", || {
        let tensor = counting(&[64]);
        assert_eq!(tensor.protection(), Protection::Convention);
        let fd = tensor.clone_fd().unwrap();
        scribble(&fd, 5, 77).unwrap();
        assert_eq!(
            tensor.map().unwrap().get::<u8>(&[5]).unwrap(),
            77,
            "no protection prevents the write"
        );
    });
}

fn the_kernel_protects_a_udmabuf() {
    from_heap("udmabuf", || {
        let mut tensor = counting(&[64]);
        tensor.map_mut().unwrap().set::<u8>(&[1], 1).unwrap();
        let fd = tensor.clone_fd().unwrap();
        assert_eq!(tensor.protection(), Protection::Kernel);
        let refused = scribble(&fd, 5, 77).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
        let there = Tensor::from_fd(fd, &[64], DType::U8).unwrap();
        assert_eq!(there.protection(), Protection::Kernel);
        assert_eq!(there.to_vec::<u8>().unwrap(), tensor.to_vec::<u8>().unwrap());

        // A holder of the DMA-BUF itself can still write it.
        scribble(tensor.dmabuf().unwrap(), 5, 77).unwrap();
        assert_eq!(tensor.protection(), Protection::Convention);
        assert_eq!(there.map().unwrap().get::<u8>(&[5]).unwrap(), 77);
    });
}

fn imports_are_read_only_and_say_so() {
    let mut tensor =
        Tensor::from_fd(foreign(10_000, OFlags::RDWR), &[100, 100], DType::U8).unwrap();
    assert_eq!(
        (tensor.memory(), tensor.not_writable()),
        (TensorMemory::Dma, Some(NotWritable::Received))
    );
    assert_eq!(tensor.protection(), Protection::Convention);
    assert_eq!(tensor.selection().to_string(), "dma (imported from a file descriptor)");
    assert!(tensor.map_mut().is_err());
    scribble(tensor.dmabuf().unwrap(), 101, 5).unwrap();
    assert_eq!(tensor.map().unwrap().get::<u8>(&[1, 1]).unwrap(), 5);
    tensor.make_mut().unwrap().set::<u8>(&[1, 1], 6).unwrap();
}

fn imports_that_are_trusted_can_be_written() {
    let layout = Layout::contiguous(&[100], 1).unwrap();
    let fd = foreign(4096, OFlags::RDWR);
    let other = fd.try_clone().unwrap();
    // SAFETY: no other code writes it.
    let mut tensor = unsafe { Tensor::from_fd_mut(fd, layout, DType::U8) }.unwrap();
    tensor.map_mut().unwrap().as_mut_slice::<u8>().unwrap().fill(3);
    assert_eq!(
        Tensor::from_fd(other, &[100], DType::U8).unwrap().to_vec::<u8>().unwrap(),
        [3; 100]
    );
}

fn imports_have_offset_and_strides() {
    let whole = counting(&[4096]);
    let layout = Layout::strided(&[3, 4], &[256, 2], 1000, 1).unwrap();
    let part = Tensor::from_fd_layout(whole.dmabuf_clone().unwrap(), layout, DType::U8).unwrap();
    let expected: Vec<u8> = (0..3)
        .flat_map(|y| (0..4).map(move |x: usize| (1000 + y * 256 + x * 2).to_le_bytes()[0]))
        .collect();
    assert_eq!(part.to_vec::<u8>().unwrap(), expected);
    assert_eq!(part.dmabuf_offset().unwrap(), 1000);
}

fn a_descriptor_that_is_no_dmabuf_is_refused() {
    let (reader, writer) = io::pipe().unwrap();
    let things: [OwnedFd; 4] = [
        reader.into(),
        writer.into(),
        std::fs::File::open("/dev/zero").unwrap().into(),
        std::fs::File::open("/dev/dma_heap/system").unwrap().into(),
    ];
    for thing in things {
        let plane = PlaneDescriptor::new(&thing).unwrap();
        let error = Tensor::from_planes(8, 8, PixelFormat::Grey, [plane]).unwrap_err();
        assert!(matches!(error, Error::WrongFdKind { .. }), "{error}");
        assert!(error.to_string().contains("DMA-BUF"), "{error}");
        assert!(Tensor::from_fd(thing, &[8], DType::U8).is_err());
    }
}

fn buffers_that_are_too_small_are_refused() {
    let error = Tensor::from_fd(foreign(4096, OFlags::RDWR), &[4097], DType::U8).unwrap_err();
    assert!(matches!(error, Error::FdTooSmall { needed: 4097, size: 4096 }), "{error}");
}

fn a_buffer_opened_to_be_read_is_not_written() {
    let fd = foreign(4096, OFlags::RDONLY);
    let layout = Layout::contiguous(&[16], 1).unwrap();
    // SAFETY: no other code has it.
    let refused = unsafe { Tensor::from_fd_mut(fd.try_clone().unwrap(), layout, DType::U8) };
    assert!(matches!(refused, Err(Error::FdAccess { .. })), "{refused:?}");
    assert_eq!(Tensor::from_fd(fd, &[16], DType::U8).unwrap().to_vec::<u8>().unwrap(), [0; 16]);
}

fn planes_of_one_buffer_and_of_several() {
    let both = counting(&[8192]);
    let fd = both.dmabuf_clone().unwrap();
    let plane = |fd: &OwnedFd| PlaneDescriptor::new(fd).unwrap().with_stride(128);
    // Chroma begins later in the same buffer.
    let planes = [plane(&fd), plane(&fd).with_offset(5000)];
    let image = Tensor::from_planes(100, 20, PixelFormat::Nv12, planes).unwrap();
    assert_eq!(image.memory(), TensorMemory::Dma);
    let chroma = image.plane(1).unwrap();
    assert_eq!(chroma.map().unwrap().get::<u8>(&[1, 2, 1]).unwrap(), 13, "5000 + 128 + 5");
    assert_eq!(chroma.dmabuf_offset().unwrap(), 5000);
    assert_eq!(chroma.buffer_identity().id(), image.plane(0).unwrap().buffer_identity().id());

    // Chroma in a separate buffer.
    let other = counting(&[4096]);
    let planes = [plane(&fd), plane(&other.dmabuf_clone().unwrap()).with_offset(64)];
    let image = Tensor::from_planes(100, 20, PixelFormat::Nv12, planes).unwrap();
    let (luma, chroma) = (image.plane(0).unwrap(), image.plane(1).unwrap());
    assert_ne!(luma.buffer_identity().id(), chroma.buffer_identity().id());
    assert_eq!(inode(chroma.dmabuf().unwrap()), inode(other.dmabuf().unwrap()));
    assert_eq!(chroma.map().unwrap().get::<u8>(&[1, 2, 1]).unwrap(), 197, "64 + 128 + 5");
    let error = image.dmabuf().map(drop).unwrap_err();
    assert!(matches!(error, Error::FarPlanes { .. }), "each plane has its own: {error}");
}

fn planes_that_overrun_are_refused() {
    let fd = foreign(4096, OFlags::RDWR);
    let plane = || PlaneDescriptor::new(&fd).unwrap();
    let grey = |plane| Tensor::from_planes(64, 64, PixelFormat::Grey, [plane]);
    assert!(grey(plane()).is_ok(), "just fits");
    for plane in [
        plane().with_offset(1),
        plane().with_stride(65),
        plane().with_offset(usize::MAX),
        plane().with_stride(usize::MAX),
        plane().with_offset(usize::MAX - 10).with_stride(1 << 60),
    ] {
        let about = format!("{plane:?}");
        let error = grey(plane).unwrap_err();
        assert!(!error.to_string().is_empty(), "{about}");
    }
    let planes = [plane(), plane().with_offset(3000)];
    let error = Tensor::from_planes(64, 32, PixelFormat::Nv12, planes).map(drop);
    assert!(error.is_ok(), "{error:?}: 3000 + 16 rows of 64 fit");
    let planes = [plane(), plane().with_offset(3100)];
    assert!(Tensor::from_planes(64, 32, PixelFormat::Nv12, planes).is_err());
}

fn tensors_travel_to_another_program() {
    over_both(|heap| {
        let (here, there) = UnixStream::pair().unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.env(ROLE, format!("receive {heap}")).stdin(OwnedFd::from(there));
        let mut child = command.spawn().unwrap();
        drop(command);
        let tensor = counting(&[64, 64]);
        tensor.send(&here).unwrap();
        tensor.transpose().send(&here).unwrap();
        assert!(child.wait().unwrap().success());
        let first = tensor.map().unwrap().get::<u8>(&[0, 0]).unwrap();
        assert_eq!(first, if heap == "system" { 200 } else { 0 }, "what the child could do");
    });
}

/// The child of the test above.
fn receive(words: &[&str]) {
    let (memory, protection) = match words[0] {
        "system" => (TensorMemory::Dma, Protection::Convention),
        _ => (TensorMemory::Shm, Protection::Kernel),
    };
    let tensor = Tensor::recv(io::stdin()).unwrap();
    assert_eq!((tensor.memory(), tensor.protection()), (memory, protection));
    let turned = Tensor::recv(io::stdin()).unwrap();
    for (y, x) in [(0_usize, 1_usize), (63, 63), (10, 20)] {
        let expected = (y * 64 + x).to_le_bytes()[0];
        assert_eq!(tensor.map().unwrap().get::<u8>(&[y, x]).unwrap(), expected);
        assert_eq!(turned.map().unwrap().get::<u8>(&[x, y]).unwrap(), expected);
    }
    let written = scribble(tensor.clone_fd().unwrap(), 0, 200);
    assert_eq!(written.is_ok(), protection == Protection::Convention, "{written:?}");
}

fn views_and_images_travel() {
    over_both(|_| {
        let (here, there) = UnixStream::pair().unwrap();
        let mut image = dma().image(100, 20, PixelFormat::Nv12).unwrap();
        image.map_mut().unwrap().plane_mut(1).unwrap().set::<u8>(&[3, 4, 1], 42).unwrap();
        image.send(&here).unwrap();
        let received = Tensor::recv(&there).unwrap();
        assert_eq!(
            (received.format(), received.row_stride()),
            (Some(PixelFormat::Nv12), Some(128))
        );
        assert_eq!(received.plane(1).unwrap().map().unwrap().get::<u8>(&[3, 4, 1]).unwrap(), 42);
        received.roi(8, 6, 4, 4).unwrap().send(&here).unwrap();
        let region = Tensor::recv(&there).unwrap();
        assert_eq!(region.plane(1).unwrap().map().unwrap().get::<u8>(&[0, 0, 1]).unwrap(), 42);
    });
}

fn a_forked_child_reads_and_does_not_write() {
    over_both(|heap| {
        let mut tensor = counting(&[64]);
        // SAFETY: the child uses nothing that another thread may have locked, and ends at once.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            let right = match heap {
                // The kernel makes no private mapping of these.
                "system" => {
                    let refused = tensor.map_mut().map(drop);
                    matches!(refused, Err(Error::NotWritable { why: NotWritable::Forked }))
                        && tensor.not_writable() == Some(NotWritable::Forked)
                }
                _ => tensor.map_mut().unwrap().set::<u8>(&[3], 200).is_ok(),
            };
            let read = tensor.map().unwrap().get::<u8>(&[4]).unwrap() == 4;
            // SAFETY: the child must not clean up what belongs to the parent.
            unsafe { libc::_exit(i32::from(!(right && read))) };
        }
        let mut status = 0;
        // SAFETY: our own child.
        assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
        assert_eq!(status, 0, "{heap}");
        assert_eq!(tensor.map().unwrap().get::<u8>(&[3]).unwrap(), 3, "{heap}");
        assert!(tensor.map_mut().is_ok(), "{heap}");
    });
}

fn bools_are_not_looked_at() {
    over_both(|_| {
        let tensor = dma().create(&[16], DType::Bool).unwrap();
        assert!(tensor.map().unwrap().as_slice::<bool>().is_ok());
        let there = Tensor::from_fd(tensor.dmabuf_clone().unwrap(), &[16], DType::Bool).unwrap();
        for tensor in [&tensor, &there] {
            let refused = tensor.map().unwrap().as_slice::<bool>().map(drop).unwrap_err();
            assert!(matches!(refused, Error::Changeable { .. }), "{refused}");
            assert_eq!(tensor.to_vec::<bool>().unwrap(), [false; 16]);
        }
    });
}
