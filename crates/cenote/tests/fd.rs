//! File descriptors: given away, taken in, sent and received. The tests run one after another, and
//! every one is held to leave no descriptor open and no shared memory mapped.

#![allow(clippy::unwrap_used)]

mod emulation;

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, IoSlice, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::ptr;
use std::time::Duration;

use cenote::{
    DType, Error, Layout, NotWritable, PixelFormat, PlaneDescriptor, Tensor, TensorMemory,
};
use emulation::is_emulated;
use libtest_mimic::{Arguments, Trial};
use rustix::fs::{MemfdFlags, OFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};

macro_rules! table {
    ($($name:ident)*) => { &[$((stringify!($name), $name as fn())),*] };
}

const TABLE: &[(&str, fn())] = table![
    exported_memory_reads_the_same
    exported_memory_can_be_written_by_nobody
    publishing_is_for_good
    heap_has_no_descriptor
    imports_with_a_layout
    imports_are_read_only
    imports_that_are_trusted_can_be_written
    whatever_is_not_shared_memory_is_refused
    descriptors_that_cannot_be_read_are_refused
    memory_that_is_too_small_is_refused
    memory_that_could_shrink_is_refused
    memory_that_shrinks_while_it_is_imported_is_refused
    bools_in_memory_that_others_can_write_are_not_looked_at
    more_elements_than_memory_are_an_error_value
    only_unix_sockets_carry_tensors
    tensors_travel_over_streams_and_packets
    views_travel
    images_travel
    far_planes_travel
    many_messages_keep_their_order
    received_tensors_can_be_sent_on
    a_closed_peer_is_an_error
    a_socket_that_would_block_loses_nothing
    a_file_is_no_socket
    garbage_is_an_error
    truncated_messages_are_errors
    packets_of_the_wrong_length_do_not_spoil_the_next
    any_flipped_bit_is_an_error_or_a_valid_tensor
    any_flipped_bit_of_far_planes_is_an_error_or_a_valid_image
    descriptors_must_be_as_many_as_announced
    descriptors_of_the_wrong_kind_are_refused
    plane_descriptors_keep_the_callers_descriptor
    bad_plane_descriptors_fail_at_once
    images_from_one_plane
    images_from_planes_in_one_file
    images_from_planes_in_several_files
    planes_that_do_not_fit_are_refused
    dropped_tensors_leave_no_mapping
];

fn main() -> ExitCode {
    let trial = |&(name, test): &(&'static str, fn())| {
        Trial::test(name, move || {
            let before = holdings();
            test();
            assert_eq!(holdings(), before, "descriptors and mappings of shared memory left behind");
            Ok(())
        })
    };
    // Looking at the limits of the process for the first time takes a descriptor for good.
    drop(Tensor::options().memory(TensorMemory::Mem).create(&[1 << 20], DType::U8).unwrap());
    // One at a time: another test's descriptors would count as leaked.
    let arguments = Arguments { test_threads: Some(1), ..Arguments::from_args() };
    libtest_mimic::run(&arguments, TABLE.iter().map(trial).collect()).exit_code()
}

/// What this process has open, and which shared memory it has mapped.
fn holdings() -> (Vec<String>, usize) {
    let fds = fs::read_dir("/proc/self/fd").unwrap();
    let target = |fd: fs::DirEntry| fs::read_link(fd.path()).ok();
    let mut fds: Vec<String> = fds
        .filter_map(|fd| target(fd.unwrap()))
        .map(|to| to.display().to_string())
        .filter(|to| !to.contains("/fd"))
        .collect();
    fds.sort();
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    (fds, maps.lines().filter(|line| line.contains("memfd:")).count())
}

fn shm() -> cenote::TensorOptions {
    Tensor::options().memory(TensorMemory::Shm)
}

/// A tensor of `u16` that counts up, in shared memory.
fn counting(shape: &[usize]) -> Tensor {
    let len = u16::try_from(shape.iter().product::<usize>()).unwrap();
    shm().create_from_slice(&(0..len).collect::<Vec<u16>>(), shape).unwrap()
}

fn memfd(len: u64, seals: SealFlags) -> OwnedFd {
    let fd = rustix::fs::memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING);
    let fd = fd.unwrap();
    rustix::fs::ftruncate(&fd, len).unwrap();
    rustix::fs::fcntl_add_seals(&fd, seals).unwrap();
    fd
}

fn sealed(bytes: &[u8]) -> OwnedFd {
    let fd = memfd(bytes.len() as u64, SealFlags::SHRINK);
    assert_eq!(rustix::io::pwrite(&fd, bytes, 0).unwrap(), bytes.len());
    fd
}

/// Another open file description of the same file.
fn reopen(fd: &OwnedFd, flags: OFlags) -> OwnedFd {
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    rustix::fs::open(path, flags | OFlags::CLOEXEC, rustix::fs::Mode::empty()).unwrap()
}

fn packets() -> (OwnedFd, OwnedFd) {
    let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
    patient(rustix::net::socketpair(AddressFamily::UNIX, kind, flags, None).unwrap())
}

fn streams() -> (OwnedFd, OwnedFd) {
    let (a, b) = UnixStream::pair().unwrap();
    patient((a.into(), b.into()))
}

/// Sockets that wait, but not for ever: a test that would hang fails.
fn patient((a, b): (OwnedFd, OwnedFd)) -> (OwnedFd, OwnedFd) {
    for socket in [&a, &b] {
        for which in [Timeout::Recv, Timeout::Send] {
            set_socket_timeout(socket, which, Some(Duration::from_secs(60))).unwrap();
        }
    }
    (a, b)
}

fn travel(tensor: &Tensor) -> Tensor {
    let (here, there) = streams();
    tensor.send(&here).unwrap();
    Tensor::recv(&there).unwrap()
}

/// Sends bytes and descriptors as they are.
fn send_raw(socket: &OwnedFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(32))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(fds.is_empty() || control.push(SendAncillaryMessage::ScmRights(fds)));
    let flags = SendFlags::NOSIGNAL;
    let sent = rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut control, flags).unwrap();
    assert_eq!(sent, bytes.len());
}

/// The message that sends a tensor, and its descriptors.
fn message_of(tensor: &Tensor) -> (Vec<u8>, Vec<OwnedFd>) {
    let (here, there) = packets();
    tensor.send(&here).unwrap();
    let mut bytes = vec![0; 64 << 10];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut bytes)];
    let flags = RecvFlags::CMSG_CLOEXEC;
    let len = rustix::net::recvmsg(&there, &mut parts, &mut control, flags).unwrap().bytes;
    bytes.truncate(len);
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            fds.extend(received);
        }
    }
    (bytes, fds)
}

/// What is received when these bytes and descriptors are sent and the connection is closed.
fn recv_raw(
    pair: fn() -> (OwnedFd, OwnedFd),
    bytes: &[u8],
    fds: &[OwnedFd],
) -> cenote::Result<Tensor> {
    let (here, there) = pair();
    let fds: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
    send_raw(&here, bytes, &fds);
    drop(here);
    Tensor::recv(&there)
}

fn os_error(result: cenote::Result<Tensor>) -> ErrorKind {
    match result {
        Err(Error::Os { source, .. }) => source.kind(),
        other => panic!("{other:?}"),
    }
}

// ---- giving away ----------------------------------------------------------------------------------

fn exported_memory_reads_the_same() {
    let tensor = counting(&[3, 4]);
    let other = Tensor::from_fd(tensor.clone_fd().unwrap(), &[12], DType::U16).unwrap();
    assert!(other.to_vec::<u16>().unwrap().into_iter().eq(0..12));
    assert_eq!(other.memory(), TensorMemory::Shm);
    assert_eq!(other.selection().to_string(), "shm (imported from a file descriptor)");
    assert_ne!(other.buffer_identity().id(), tensor.buffer_identity().id());
    drop(tensor);
    assert!(other.to_vec::<u16>().unwrap().into_iter().eq(0..12), "the bytes outlive their maker");
    // The descriptor of a view is that of the whole buffer.
    let row = counting(&[3, 4]).index(0, 2).unwrap();
    let whole = Tensor::from_fd(row.clone_fd().unwrap(), &[12], DType::U16).unwrap();
    assert!(whole.to_vec::<u16>().unwrap().into_iter().eq(0..12));
}

fn exported_memory_can_be_written_by_nobody() {
    let tensor = counting(&[3, 4]);
    let fd = tensor.clone_fd().unwrap();
    assert!(rustix::io::pwrite(&fd, b"xx", 0).is_err());
    assert!(rustix::fs::ftruncate(&fd, 2).is_err());
    assert!(rustix::fs::ftruncate(&fd, 1 << 20).is_err());
    let punch = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
    assert!(rustix::fs::fallocate(&fd, punch, 0, 4096).is_err());
    let reopened = reopen(&fd, OFlags::RDWR);
    for fd in [&fd, &reopened] {
        let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping at a place of the kernel's choosing.
        #[allow(unsafe_code, reason = "to see it refused")]
        let map = unsafe { rustix::mm::mmap(ptr::null_mut(), 24, prot, flags, fd, 0) };
        assert!(map.is_err(), "a writable mapping of exported memory");
    }
    let layout = tensor.layout().clone();
    // SAFETY: nobody writes it.
    #[allow(unsafe_code, reason = "to see it refused")]
    let writable = unsafe { Tensor::from_fd_mut(fd, layout, DType::U16) };
    assert!(matches!(writable, Err(Error::FdAccess { access: "for writing", .. })));
    assert!(tensor.to_vec::<u16>().unwrap().into_iter().eq(0..12));
}

fn publishing_is_for_good() {
    let why = |tensor: &mut Tensor| {
        let expected = tensor.not_writable();
        match tensor.map_mut().map(drop) {
            Err(Error::NotWritable { why }) => {
                assert_eq!(Some(why), expected);
                why
            }
            other => panic!("writable: {other:?}"),
        }
    };
    let mut tensor = counting(&[3, 4]);
    tensor.map_mut().unwrap();
    drop(tensor.clone_fd().unwrap());
    assert_eq!(why(&mut tensor), NotWritable::Published);
    let clone = tensor.clone();
    assert_eq!(why(&mut tensor), NotWritable::Published, "the reason that will not pass");
    drop(clone);
    assert_eq!(why(&mut tensor), NotWritable::Published);

    // Through a view, and by sending.
    let mut tensor = counting(&[3, 4]);
    drop(travel(&tensor.index(0, 0).unwrap()));
    assert_eq!(why(&mut tensor), NotWritable::Published);
    let id = tensor.buffer_identity().id();
    tensor.make_mut().unwrap().set(&[0, 0], 9u16).unwrap();
    assert_ne!(tensor.buffer_identity().id(), id);
    assert_eq!(tensor.not_writable(), None);
    assert_eq!(tensor.memory(), TensorMemory::Shm);

    // Not by failing to.
    let mut heap = Tensor::options().memory(TensorMemory::Mem).create(&[4], DType::U8).unwrap();
    assert!(heap.clone_fd().is_err());
    heap.map_mut().unwrap();
}

fn heap_has_no_descriptor() {
    let heap = Tensor::options().memory(TensorMemory::Mem).create(&[4], DType::U8).unwrap();
    let no_fd = |error| matches!(error, Error::NoFd { memory: "mem", instead: "shm memory", .. });
    assert!(no_fd(heap.clone_fd().unwrap_err()));
    let (here, there) = UnixStream::pair().unwrap();
    assert!(no_fd(heap.send(&here).unwrap_err()));
    assert!(no_fd(Tensor::from_vec(vec![1u8], &[1]).unwrap().send(&here).unwrap_err()));
    drop(here);
    let nothing = Tensor::recv(&there);
    assert!(matches!(nothing, Err(Error::Disconnected { mid_message: false })));
}

// ---- taking in ------------------------------------------------------------------------------------

fn imports_with_a_layout() {
    let bytes: Vec<u8> = (0..100).collect();
    let layout = Layout::strided(&[3, 4], &[-20, 2], 60, 1).unwrap();
    let tensor = Tensor::from_fd_layout(sealed(&bytes), layout, DType::U8).unwrap();
    assert_eq!(tensor.to_vec::<u8>().unwrap(), [60, 62, 64, 66, 40, 42, 44, 46, 20, 22, 24, 26]);
    let overlapping = Layout::strided(&[3, 4], &[0, 1], 96, 1).unwrap();
    let tensor = Tensor::from_fd_layout(sealed(&bytes), overlapping, DType::U8).unwrap();
    assert_eq!(tensor.to_vec::<u8>().unwrap(), [96, 97, 98, 99].repeat(3));
    assert_eq!(tensor.to_array::<u8>().unwrap().shape(), [3, 4]);
    let wrong = Layout::contiguous(&[4], 2).unwrap();
    let wrong = Tensor::from_fd_layout(sealed(&bytes), wrong, DType::U8);
    assert!(matches!(wrong, Err(Error::ItemSize { layout: 2, size: 1, .. })));
}

fn imports_are_read_only() {
    let mut tensor = Tensor::from_fd(sealed(&[7; 8]), &[8], DType::U8).unwrap();
    let refused = tensor.map_mut().map(drop);
    assert!(matches!(refused, Err(Error::NotWritable { why: NotWritable::Received })));
    tensor.make_mut().unwrap().set(&[0], 1u8).unwrap();
    assert_eq!(tensor.memory(), TensorMemory::Shm);
    // A descriptor that was opened for reading only will do.
    let read_only = reopen(&sealed(&[7; 8]), OFlags::RDONLY);
    let tensor = Tensor::from_fd(read_only, &[8], DType::U8).unwrap();
    assert_eq!(tensor.to_vec::<u8>().unwrap(), [7; 8]);
}

fn imports_that_are_trusted_can_be_written() {
    let layout = Layout::contiguous(&[8], 1).unwrap();
    // SAFETY: the only other descriptors of these files are here, and used for looking.
    #[allow(unsafe_code, reason = "what is tested")]
    let import = |fd: OwnedFd| unsafe { Tensor::from_fd_mut(fd, layout.clone(), DType::U8) };
    // Not even sealed against shrinking: that is part of the promise.
    let file = memfd(8, SealFlags::empty());
    let mut tensor = import(file.try_clone().unwrap()).unwrap();
    tensor.map_mut().unwrap().as_mut_slice::<u8>().unwrap().fill(3);
    let mut seen = [0; 8];
    rustix::io::pread(&file, &mut seen, 0).unwrap();
    assert_eq!(seen, [3; 8]);
    // Once given away it is as read-only as any.
    drop(tensor.clone_fd().unwrap());
    assert!(tensor.map_mut().is_err());
    assert!(rustix::io::pwrite(&file, b"x", 0).is_err());

    let read_only = import(reopen(&sealed(&[7; 8]), OFlags::RDONLY));
    assert!(matches!(read_only, Err(Error::FdAccess { access: "for writing", .. })));
    let frozen = import(memfd(8, SealFlags::SHRINK | SealFlags::WRITE));
    assert!(matches!(frozen, Err(Error::FdAccess { access: "for writing", .. })));
}

fn whatever_is_not_shared_memory_is_refused() {
    for (fd, kind) in not_memory() {
        let refused = Tensor::from_fd(fd.try_clone().unwrap(), &[1], DType::U8).unwrap_err();
        assert!(matches!(refused, Error::WrongFdKind { found } if found == kind), "{refused}");
        // SAFETY: nobody writes it, and it is refused.
        #[allow(unsafe_code, reason = "to see it refused")]
        let refused =
            unsafe { Tensor::from_fd_mut(fd, Layout::contiguous(&[1], 1).unwrap(), DType::U8) };
        assert!(matches!(refused, Err(Error::WrongFdKind { found }) if found == kind));
    }
}

/// Descriptors of everything but shared memory, with what an error must call them.
fn not_memory() -> Vec<(OwnedFd, &'static str)> {
    let (reader, writer) = std::io::pipe().unwrap();
    vec![
        (File::open(std::env::current_exe().unwrap()).unwrap().into(), "an ordinary file"),
        (File::open("/").unwrap().into(), "a directory"),
        (reader.into(), "a pipe"),
        (writer.into(), "a pipe"),
        (streams().0, "a socket"),
        (File::open("/dev/zero").unwrap().into(), "a character device"),
        (reopen(&sealed(&[7; 8]), OFlags::PATH), "only a path (O_PATH)"),
    ]
}

fn descriptors_that_cannot_be_read_are_refused() {
    let write_only = reopen(&sealed(&[7; 8]), OFlags::WRONLY);
    let refused = Tensor::from_fd(write_only, &[8], DType::U8).unwrap_err();
    assert!(matches!(refused, Error::FdAccess { access: "for reading", .. }), "{refused}");
}

fn memory_that_is_too_small_is_refused() {
    let refused = Tensor::from_fd(sealed(&[7; 8]), &[9], DType::U8);
    assert!(matches!(refused, Err(Error::FdTooSmall { needed: 9, size: 8 })));
    let refused = Tensor::from_fd(memfd(0, SealFlags::SHRINK), &[1], DType::U8);
    assert!(matches!(refused, Err(Error::FdTooSmall { needed: 1, size: 0 })));
    let beyond = Layout::strided(&[2], &[1], 7, 1).unwrap();
    let refused = Tensor::from_fd_layout(sealed(&[7; 8]), beyond, DType::U8);
    assert!(matches!(refused, Err(Error::FdTooSmall { needed: 9, size: 8 })));
    let refused = Tensor::from_fd(sealed(&[7; 8]), &[1 << 60], DType::U8);
    assert!(matches!(refused, Err(Error::FdTooSmall { .. })));
    // Larger than any address space, and sparse.
    let huge = memfd(i64::MAX as u64, SealFlags::SHRINK);
    assert!(Tensor::from_fd(huge, &[1], DType::U8).is_err());
}

fn memory_that_could_shrink_is_refused() {
    for seals in [SealFlags::empty(), SealFlags::GROW, SealFlags::GROW | SealFlags::SEAL] {
        let refused = Tensor::from_fd(memfd(8, seals), &[8], DType::U8);
        assert!(matches!(refused, Err(Error::Unsealed)), "{seals:?}");
    }
    // A file of a tmpfs can never be sealed.
    let path = format!("/dev/shm/cenote-test-{}", std::process::id());
    let create = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path);
    let mut file = create.unwrap();
    fs::remove_file(&path).unwrap();
    file.write_all(&[7; 8]).unwrap();
    let refused = Tensor::from_fd(file.into(), &[8], DType::U8);
    assert!(matches!(refused, Err(Error::Unsealed)));
}

// ---- sending --------------------------------------------------------------------------------------

fn tensors_travel_over_streams_and_packets() {
    for pair in [streams, packets] {
        for dtype in DType::all() {
            let (here, there) = pair();
            let mut tensor = shm().create(&[2, 3], dtype).unwrap();
            tensor.map_mut().unwrap().as_mut_bytes().unwrap().fill(1);
            tensor.send(&here).unwrap();
            let received = Tensor::recv(&there).unwrap();
            assert_eq!((received.shape(), received.dtype()), (tensor.shape(), dtype));
            assert_eq!(received.memory(), TensorMemory::Shm);
            assert_eq!(received.not_writable(), Some(NotWritable::Received));
            let map = received.map().unwrap();
            assert_eq!(map.as_bytes().unwrap(), tensor.map().unwrap().as_bytes().unwrap());
        }
    }
}

fn views_travel() {
    let tensor = counting(&[3, 4, 5]);
    let views = [
        tensor.index(1, 2).unwrap(),
        tensor.transpose(),
        tensor.flip(0).unwrap().flip(2).unwrap(),
        tensor.slice(2, 1..5, 3).unwrap(),
        tensor.reshape(&[1, 3, 1, 4, 1, 5, 1, 1]).unwrap(),
        tensor.index(0, 1).unwrap().index(0, 1).unwrap().index(0, 1).unwrap(),
    ];
    for view in views {
        let received = travel(&view);
        assert_eq!(received.layout(), view.layout());
        assert_eq!(received.to_vec::<u16>().unwrap(), view.to_vec::<u16>().unwrap());
    }
}

fn images_travel() {
    for format in PixelFormat::all() {
        let image = shm().row_alignment(32).image(7, 5, format).unwrap();
        let received = travel(&image);
        assert_eq!((received.format(), received.image_size()), (Some(format), Some((7, 5))));
        assert_eq!(received.layout(), image.layout());
        let roi = travel(&image.roi(2, 2, 5, 3).unwrap());
        assert_eq!((roi.format(), roi.image_size()), (Some(format), Some((5, 3))));
        for index in 0..format.plane_count() {
            assert_eq!(
                roi.plane(index).unwrap().layout(),
                image.roi(2, 2, 5, 3).unwrap().plane(index).unwrap().layout()
            );
        }
    }
}

fn far_planes_travel() {
    let luma = sealed(&(0..24).collect::<Vec<u8>>());
    let chroma = sealed(&(100..112).collect::<Vec<u8>>());
    let planes = vec![PlaneDescriptor::new(luma).unwrap(), PlaneDescriptor::new(chroma).unwrap()];
    let image = Tensor::from_planes(6, 4, PixelFormat::Nv12, planes).unwrap();
    let received = travel(&image);
    assert_eq!(received.image_size(), Some((6, 4)));
    assert!(received.plane(0).unwrap().to_vec::<u8>().unwrap().into_iter().eq(0..24));
    assert!(received.plane(1).unwrap().to_vec::<u8>().unwrap().into_iter().eq(100..112));
    let part = travel(&received.roi(2, 2, 4, 2).unwrap());
    assert_eq!(part.plane(0).unwrap().to_vec::<u8>().unwrap(), [14, 15, 16, 17, 20, 21, 22, 23]);
    assert_eq!(part.plane(1).unwrap().to_vec::<u8>().unwrap(), [108, 109, 110, 111]);
    // Two regions of one buffer need one descriptor.
    let (_, fds) =
        message_of(&shm().image(8, 8, PixelFormat::I420).unwrap().roi(2, 2, 4, 4).unwrap());
    assert_eq!(fds.len(), 1);
}

fn many_messages_keep_their_order() {
    for pair in [streams, packets] {
        let (here, there) = pair();
        for round in 0..3 {
            let tensors: Vec<Tensor> =
                (0..8).map(|i| shm().create_from_slice(&[i, round], &[2]).unwrap()).collect();
            tensors.iter().for_each(|tensor| tensor.send(&here).unwrap());
            drop(tensors);
            for i in 0..8u8 {
                assert_eq!(Tensor::recv(&there).unwrap().to_vec::<u8>().unwrap(), [i, round]);
            }
        }
    }
}

fn received_tensors_can_be_sent_on() {
    let tensor = counting(&[3, 4]);
    let twice = travel(&travel(&tensor.transpose()).index(0, 1).unwrap());
    assert_eq!(twice.to_vec::<u16>().unwrap(), [1, 5, 9]);
}

fn a_closed_peer_is_an_error() {
    for pair in [streams, packets] {
        let (here, there) = pair();
        drop(there);
        let refused = counting(&[4]).send(&here).map(|()| counting(&[1]));
        assert_eq!(os_error(refused), ErrorKind::BrokenPipe);
        let received = Tensor::recv(&here);
        assert!(
            matches!(received, Err(Error::Disconnected { mid_message: false })),
            "{received:?}"
        );
        // What was sent before the end still arrives.
        let (here, there) = pair();
        counting(&[4]).send(&here).unwrap();
        drop(here);
        assert!(Tensor::recv(&there).unwrap().to_vec::<u16>().unwrap().into_iter().eq(0..4));
        assert!(matches!(Tensor::recv(&there), Err(Error::Disconnected { mid_message: false })));
    }
}

fn a_socket_that_would_block_loses_nothing() {
    for pair in [streams, packets] {
        let (here, there) = pair();
        for socket in [&here, &there] {
            rustix::io::ioctl_fionbio(socket, true).unwrap();
        }
        assert_eq!(os_error(Tensor::recv(&there)), ErrorKind::WouldBlock);
        let tensor = counting(&[4]);
        let mut sent = 0;
        loop {
            match tensor.narrow(0, sent % 4, 1).unwrap().send(&here) {
                Ok(()) => sent += 1,
                Err(Error::Os { source, .. }) if source.kind() == ErrorKind::WouldBlock => break,
                // The kernel limits descriptors in flight.
                Err(Error::Os { source, .. }) => panic!("after {sent}: {source}"),
                Err(error) => panic!("{error}"),
            }
        }
        assert!(sent > 1);
        for i in 0..sent {
            let received = Tensor::recv(&there).unwrap().to_vec::<u16>().unwrap();
            assert_eq!(received, [u16::try_from(i % 4).unwrap()]);
        }
        assert_eq!(os_error(Tensor::recv(&there)), ErrorKind::WouldBlock);
        tensor.send(&here).unwrap();
        assert!(Tensor::recv(&there).unwrap().to_vec::<u16>().unwrap().into_iter().eq(0..4));
    }
}

fn a_file_is_no_socket() {
    let file = File::open("/dev/null").unwrap();
    assert!(matches!(Tensor::recv(&file), Err(Error::Os { .. })));
    assert!(matches!(counting(&[4]).send(&file), Err(Error::Os { .. })));
}

// ---- messages from strangers ----------------------------------------------------------------------

fn garbage_is_an_error() {
    let (message, fds) = message_of(&counting(&[4]));
    // A generator by hand: the same garbage each time.
    let mut state = 1u64;
    let mut byte = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        state.to_be_bytes()[0]
    };
    for round in 0..200 {
        let mut garbage: Vec<u8> = (0..message.len()).map(|_| byte()).collect();
        // Ever more of it is right, so that it is not always the first check that refuses.
        let right = [0, 8, 11, 16][round % 4];
        garbage[..right].copy_from_slice(&message[..right]);
        let with = &fds[..round % 2];
        assert!(recv_raw(streams, &garbage, with).is_err());
    }
    let zeros = recv_raw(streams, &vec![0; message.len()], &fds);
    assert!(matches!(zeros, Err(Error::BadMessage { .. })));
    let mut other = message;
    other[7] += 1;
    let version = recv_raw(streams, &other, &fds).unwrap_err();
    assert!(matches!(version, Error::BadMessage { .. }) && version.to_string().contains("version"));
}

/// Truncates and seals at the worst moment, as a hostile peer would.
fn memory_that_shrinks_while_it_is_imported_is_refused() {
    for _ in 0..2000 {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let theirs = rustix::fs::memfd_create("racing", flags).unwrap();
        rustix::fs::ftruncate(&theirs, 65_536).unwrap();
        let ours = theirs.try_clone().unwrap();
        let kept = theirs.try_clone().unwrap();
        let imported = std::thread::scope(|scope| {
            scope.spawn(move || {
                rustix::fs::ftruncate(&theirs, 0).unwrap();
                rustix::fs::fcntl_add_seals(&theirs, SealFlags::SHRINK).unwrap();
            });
            Tensor::from_fd(ours, &[65_536], DType::U8)
        });
        if imported.is_ok() {
            assert!(rustix::fs::fstat(&kept).unwrap().st_size >= 65_536);
        }
    }
}

fn bools_in_memory_that_others_can_write_are_not_looked_at() {
    let fd = sealed_memfd(&[1, 0, 1, 2], SealFlags::SHRINK);
    let tensor = Tensor::from_fd(fd, &[4], DType::Bool).unwrap();
    let map = tensor.map().unwrap();
    assert!(matches!(map.as_slice::<bool>(), Err(Error::Changeable { .. })));
    assert!(map.get::<bool>(&[0]).unwrap());
    assert!(matches!(map.get::<bool>(&[3]), Err(Error::InvalidValue { .. })));
    assert!(matches!(tensor.to_vec::<bool>(), Err(Error::InvalidValue { .. })));
    let sealed = sealed_memfd(&[1, 0], SealFlags::SHRINK | SealFlags::FUTURE_WRITE);
    let tensor = Tensor::from_fd(sealed, &[2], DType::Bool).unwrap();
    assert_eq!(tensor.map().unwrap().as_slice::<bool>().unwrap(), [true, false]);
}

fn sealed_memfd(bytes: &[u8], seals: SealFlags) -> OwnedFd {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let fd = rustix::fs::memfd_create("sealed", flags).unwrap();
    rustix::io::pwrite(&fd, bytes, 0).unwrap();
    rustix::fs::fcntl_add_seals(&fd, seals).unwrap();
    fd
}

fn more_elements_than_memory_are_an_error_value() {
    let one = counting(&[1]);
    let endless = Layout::strided(&[1 << 45], &[0], 0, 1).unwrap();
    let tensor = Tensor::from_fd_layout(one.clone_fd().unwrap(), endless, DType::U8).unwrap();
    assert!(tensor.to_vec::<u8>().is_err());
    assert!(tensor.to_contiguous().is_err());
}

fn only_unix_sockets_carry_tensors() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let tcp = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let mut tensor = counting(&[4]);
    assert!(matches!(tensor.send(&tcp), Err(Error::NotUnixSocket)));
    tensor.map_mut().unwrap();
}

fn truncated_messages_are_errors() {
    let (message, fds) = message_of(&counting(&[4]));
    for len in [1, 7, 8, 16, message.len() / 2, message.len() - 1] {
        for with in [&fds[..], &[]] {
            let part = recv_raw(streams, &message[..len], with);
            assert!(matches!(part, Err(Error::Disconnected { mid_message: true })), "{part:?}");
            let part = recv_raw(packets, &message[..len], with);
            assert!(matches!(part, Err(Error::BadMessage { .. })), "{part:?}");
        }
    }
    // In pieces it is whole again.
    let (here, there) = streams();
    send_raw(&here, &message[..1], &[fds[0].as_fd()]);
    message[1..].chunks(7).for_each(|piece| send_raw(&here, piece, &[]));
    assert!(Tensor::recv(&there).unwrap().to_vec::<u16>().unwrap().into_iter().eq(0..4));
}

fn packets_of_the_wrong_length_do_not_spoil_the_next() {
    let (message, fds) = message_of(&counting(&[4]));
    let long = [&message[..], &message[..]].concat();
    let (here, there) = packets();
    for bad in [&message[..100], &long] {
        send_raw(&here, bad, &[fds[0].as_fd()]);
        counting(&[2]).send(&here).unwrap();
        assert!(Tensor::recv(&there).is_err(), "a packet of {} bytes", bad.len());
        assert_eq!(Tensor::recv(&there).unwrap().to_vec::<u16>().unwrap(), [0, 1]);
    }
}

/// Looks at everything a tensor has to say. The point is that it returns.
fn exercise(tensor: &Tensor) {
    let mut seen = 0u64;
    for plane in 0..tensor.plane_count() {
        let view = tensor.plane(plane).unwrap();
        view.map().unwrap().runs().take(1000).flatten().for_each(|&byte| seen += u64::from(byte));
    }
    let _ = (format!("{tensor:?}"), tensor.image_size(), tensor.row_stride());
    let _ = (tensor.effective_row_stride(), tensor.plane_offset(), tensor.len(), tensor.nbytes());
    let _ = (tensor.map().unwrap().as_bytes().map(<[u8]>::len), tensor.clone());
    if let Some((width, height)) = tensor.image_size() {
        assert!(width > 0 && height > 0);
        let _ = tensor.roi(0, 0, width.div_ceil(2), height.div_ceil(2));
        if tensor.nbytes() < 1 << 20 {
            let copy = tensor.to_contiguous().unwrap();
            assert_eq!(copy.image_size(), tensor.image_size());
        }
    }
    if tensor.len() < 1 << 20 {
        let _ = (tensor.to_vec::<u8>(), tensor.to_vec::<bool>(), tensor.to_vec::<u16>());
        let _ = (tensor.to_array::<u8>(), tensor.to_array::<u16>());
    }
}

/// Flips every bit of a message, and some bytes altogether, with the right descriptors attached.
fn flip_everything(tensor: &Tensor) -> usize {
    let (message, fds) = message_of(tensor);
    let every: &[u8] = &[1, 2, 4, 8, 16, 32, 64, 128, 255];
    let changes = if is_emulated() { &[1, 128, 255] } else { every };
    let mut valid = 0;
    for at in 0..message.len() {
        for change in changes {
            let mut changed = message.clone();
            changed[at] ^= change;
            if let Ok(tensor) = recv_raw(streams, &changed, &fds) {
                exercise(&tensor);
                valid += 1;
            }
        }
    }
    valid
}

fn any_flipped_bit_is_an_error_or_a_valid_tensor() {
    let tensor = shm().create_from_slice(&[1u8; 4096], &[4, 64, 16]).unwrap();
    // What nobody reads may be anything: the unused axes and views.
    assert!(flip_everything(&tensor.narrow(1, 8, 32).unwrap()) > 0);
    flip_everything(&shm().row_alignment(64).image(7, 5, PixelFormat::Rgb8).unwrap());
    flip_everything(&shm().image(8, 6, PixelFormat::Nv12).unwrap());
    flip_everything(&shm().image(8, 6, PixelFormat::PlanarRgb).unwrap());
}

fn any_flipped_bit_of_far_planes_is_an_error_or_a_valid_image() {
    let luma = sealed(&[1; 4096]);
    let chroma = sealed(&[2; 4096]);
    let planes = vec![PlaneDescriptor::new(luma).unwrap(), PlaneDescriptor::new(chroma).unwrap()];
    flip_everything(&Tensor::from_planes(6, 4, PixelFormat::Nv12, planes).unwrap());
    let i420 = shm().image(16, 12, PixelFormat::I420).unwrap();
    flip_everything(&i420.roi(2, 2, 8, 6).unwrap());

    // Planes that lie in their buffers, but are not the planes of an image.
    let (message, fds) = message_of(&i420.roi(2, 2, 8, 6).unwrap());
    let view = |index: usize| 16 + 144 * index;
    for (at, word) in [(4, 0u32), (4, 1), (4, 3), (4, 8)] {
        for plane in 0..3 {
            let mut changed = message.clone();
            changed[view(plane) + at..][..4].copy_from_slice(&word.to_ne_bytes());
            // The shape beyond what was sent is zeros: give it ones.
            for axis in 2..8 {
                changed[view(plane) + 16 + 8 * axis..][..8].copy_from_slice(&1u64.to_ne_bytes());
            }
            let refused = recv_raw(streams, &changed, &fds);
            assert!(refused.is_err(), "plane {plane} of {word} dimensions: {refused:?}");
        }
    }
    for (axis, len) in [(0, 1u64), (1, 1), (0, 2), (1, 3)] {
        for plane in 0..3 {
            let mut changed = message.clone();
            changed[view(plane) + 16 + 8 * axis..][..8].copy_from_slice(&len.to_ne_bytes());
            let refused = recv_raw(streams, &changed, &fds);
            assert!(refused.is_err(), "plane {plane} with {len} on axis {axis}: {refused:?}");
        }
    }
    let mut changed = message.clone();
    changed[9] = DType::I8.code();
    assert!(recv_raw(streams, &changed, &fds).is_err(), "another dtype than the format's");
    let mut changed = message;
    changed[10] = PixelFormat::PlanarRgb.code();
    assert!(recv_raw(streams, &changed, &fds).is_err(), "another format with as many planes");
}

fn descriptors_must_be_as_many_as_announced() {
    let tensor = counting(&[4]);
    let (message, fds) = message_of(&tensor);
    let bad = |count: usize| {
        let fds: Vec<OwnedFd> = (0..count).map(|_| fds[0].try_clone().unwrap()).collect();
        [streams, packets].map(|pair| recv_raw(pair, &message, &fds).unwrap_err())
    };
    let mut counts = vec![0, 2, 4, 5, 8];
    if is_emulated() {
        eprintln!("note: qemu leaks descriptors that do not fit, so no more than 8 are sent");
    } else {
        counts.extend([9, 30]);
    }
    for count in counts {
        for error in bad(count) {
            assert!(matches!(error, Error::BadMessage { .. }), "{count}: {error}");
        }
    }
    // More of them with every byte. They are not collected without end.
    let (here, there) = streams();
    for byte in &message[..100] {
        send_raw(&here, &[*byte], &[fds[0].as_fd()]);
    }
    assert!(matches!(Tensor::recv(&there), Err(Error::BadMessage { .. })));
}

fn descriptors_of_the_wrong_kind_are_refused() {
    let (message, _) = message_of(&counting(&[4]));
    let send = |fd: OwnedFd| recv_raw(streams, &message, &[fd]).unwrap_err();
    for (fd, kind) in not_memory() {
        let error = send(fd);
        assert!(matches!(error, Error::WrongFdKind { found } if found == kind), "{error}");
    }
    assert!(matches!(send(memfd(8, SealFlags::empty())), Error::Unsealed));
    assert!(matches!(send(sealed(&[7; 7])), Error::FdTooSmall { needed: 8, size: 7 }));
    assert!(matches!(send(memfd(0, SealFlags::SHRINK)), Error::FdTooSmall { .. }));
}

// ---- planes ---------------------------------------------------------------------------------------

fn plane_descriptors_keep_the_callers_descriptor() {
    let fd = sealed(&[7; 8]);
    let plane = PlaneDescriptor::new(&fd).unwrap().with_stride(4).with_offset(2);
    assert_eq!((plane.stride(), plane.offset()), (Some(4), Some(2)));
    assert_ne!(plane.fd().as_raw_fd(), fd.as_raw_fd());
    drop(plane);
    rustix::fs::fstat(&fd).unwrap();
    let plane = PlaneDescriptor::new(fd).unwrap();
    assert_eq!((plane.stride(), plane.offset()), (None, None));
    rustix::fs::fstat(plane.fd()).unwrap();
}

fn bad_plane_descriptors_fail_at_once() {
    // SAFETY: nothing in this process has a descriptor of that number, and it is only duplicated.
    #[allow(unsafe_code, reason = "a descriptor that is not open cannot be had otherwise")]
    let closed = unsafe { BorrowedFd::borrow_raw(1_000_000_000) };
    assert!(matches!(PlaneDescriptor::new(closed), Err(Error::Os { .. })));
}

fn plane(fd: &OwnedFd) -> PlaneDescriptor {
    PlaneDescriptor::new(fd).unwrap()
}

fn images_from_one_plane() {
    let bytes: Vec<u8> = (0..=255).collect();
    let file = sealed(&bytes);
    let one =
        |width, height, format, plane| Tensor::from_planes(width, height, format, vec![plane]);
    let rgb = one(3, 4, PixelFormat::Rgb8, plane(&file).with_stride(16).with_offset(20)).unwrap();
    assert_eq!((rgb.image_size(), rgb.row_stride()), (Some((3, 4)), Some(16)));
    assert_eq!(rgb.plane_offset(), Some(20));
    assert_eq!(rgb.index(0, 3).unwrap().to_vec::<u8>().unwrap(), (68..77).collect::<Vec<u8>>());
    let nv12 = one(6, 4, PixelFormat::Nv12, plane(&file)).unwrap();
    assert_eq!((nv12.row_stride(), nv12.shape()), (None, &[6, 6][..]));
    assert!(nv12.plane(1).unwrap().to_vec::<u8>().unwrap().into_iter().eq(24..36));
    let odd = one(5, 3, PixelFormat::I420, plane(&file).with_offset(1)).unwrap();
    assert_eq!(odd.plane(2).unwrap().to_vec::<u8>().unwrap(), [25, 26, 27, 28, 29, 30]);

    let refused = one(3, 4, PixelFormat::Rgb8, plane(&file).with_stride(8));
    assert!(matches!(refused, Err(Error::BadRowStride { min: 9, .. })));
    let refused = one(3, 4, PixelFormat::Rgb8, plane(&file).with_stride(usize::MAX));
    assert!(refused.is_err());
    let refused = one(3, 4, PixelFormat::Rgb8, plane(&file).with_offset(221));
    assert!(matches!(refused, Err(Error::FdTooSmall { needed: 257, size: 256 })));
    assert!(one(3, 4, PixelFormat::Rgb8, plane(&file).with_offset(220)).is_ok());
    assert!(one(3, 4, PixelFormat::Rgb8, plane(&file).with_offset(usize::MAX)).is_err());
    assert!(one(0, 4, PixelFormat::Rgb8, plane(&file)).is_err());
    assert!(one(usize::MAX, usize::MAX, PixelFormat::Nv12, plane(&file)).is_err());
    // The last row of chroma must be there too.
    assert!(one(16, 10, PixelFormat::Nv12, plane(&file).with_offset(16)).is_ok());
    assert!(one(16, 10, PixelFormat::Nv12, plane(&file).with_offset(17)).is_err());
}

fn images_from_planes_in_one_file() {
    let bytes: Vec<u8> = (0..=255).collect();
    let file = sealed(&bytes);
    let nv12 = |luma, chroma| Tensor::from_planes(6, 4, PixelFormat::Nv12, vec![luma, chroma]);
    // Where the format puts them: an ordinary tensor.
    for image in [
        nv12(plane(&file), plane(&file)),
        nv12(plane(&file), plane(&file).with_offset(24)),
        nv12(plane(&file).with_stride(6), plane(&file).with_stride(6)),
    ] {
        let image = image.unwrap();
        assert_eq!(image.shape(), [6, 6]);
        assert!(image.plane(1).unwrap().to_vec::<u8>().unwrap().into_iter().eq(24..36));
    }
    let base = nv12(plane(&file).with_offset(10), plane(&file)).unwrap();
    assert_eq!(base.plane(1).unwrap().plane_offset(), Some(34));
    // Elsewhere in the file, as drivers that align planes do.
    let apart =
        nv12(plane(&file).with_stride(8), plane(&file).with_offset(64).with_stride(16)).unwrap();
    assert_eq!((apart.shape(), apart.image_size()), (&[4, 6][..], Some((6, 4))));
    assert_eq!(apart.row_stride(), Some(8));
    let chroma = apart.plane(1).unwrap();
    assert!(chroma.index(0, 1).unwrap().to_vec::<u8>().unwrap().into_iter().eq(80..86));
    assert_eq!(chroma.buffer_identity().id(), apart.buffer_identity().id(), "mapped once");
    assert!(matches!(
        nv12(plane(&file).with_stride(8), plane(&file).with_stride(5)),
        Err(Error::BadRowStride { .. })
    ));
}

fn images_from_planes_in_several_files() {
    let (luma, chroma) =
        (sealed(&(0..64).collect::<Vec<u8>>()), sealed(&(64..128).collect::<Vec<u8>>()));
    let image = |planes| Tensor::from_planes(6, 4, PixelFormat::I420, planes).unwrap();
    let read = |image: &Tensor, index| image.plane(index).unwrap().to_vec::<u8>().unwrap();
    // Both chroma planes in one file, in which they follow each other.
    let two = image(vec![plane(&luma), plane(&chroma), plane(&chroma)]);
    assert!(read(&two, 0).into_iter().eq(0..24));
    assert!(read(&two, 1).into_iter().eq(64..70));
    assert!(read(&two, 2).into_iter().eq(70..76));
    let moved =
        image(vec![plane(&luma).with_offset(8), plane(&chroma).with_offset(16), plane(&chroma)]);
    assert!(read(&moved, 0).into_iter().eq(8..32));
    assert!(read(&moved, 1).into_iter().eq(80..86));
    assert!(read(&moved, 2).into_iter().eq(86..92));
    let mixed = image(vec![plane(&luma), plane(&chroma), plane(&luma).with_offset(40)]);
    assert!(read(&mixed, 2).into_iter().eq(40..46));
    let strided =
        image(vec![plane(&luma).with_stride(10), plane(&chroma), plane(&luma).with_offset(50)]);
    assert_eq!(read(&strided, 1), [64, 65, 66, 69, 70, 71], "half of the luma's stride");
    assert_ne!(
        two.plane(1).unwrap().buffer_identity().id(),
        two.buffer_identity().id(),
        "another file is another buffer"
    );
    assert_eq!(two.to_contiguous().unwrap().shape(), [6, 6]);
    assert!(
        two.to_contiguous().unwrap().to_vec::<u8>().unwrap().into_iter().eq((0..24).chain(64..76))
    );
}

fn planes_that_do_not_fit_are_refused() {
    let file = sealed(&[7; 64]);
    let small = sealed(&[7; 11]);
    let nv12 = |planes| Tensor::from_planes(6, 4, PixelFormat::Nv12, planes).unwrap_err();
    assert!(matches!(nv12(vec![]), Error::PlaneCount { expected: 2, given: 0, .. }));
    let three = vec![plane(&file), plane(&file), plane(&file)];
    assert!(matches!(nv12(three), Error::PlaneCount { given: 3, .. }));
    let short = nv12(vec![plane(&file), plane(&small)]);
    assert!(matches!(short, Error::FdTooSmall { needed: 12, size: 11 }), "{short}");
    nv12(vec![plane(&file).with_offset(41), plane(&small)]);
    nv12(vec![plane(&file), plane(&file).with_offset(53)]);
    nv12(vec![plane(&file), plane(&file).with_offset(usize::MAX)]);
    nv12(vec![plane(&file), plane(&file).with_stride(usize::MAX)]);
    nv12(vec![plane(&file).with_offset(usize::MAX), plane(&file)]);
    for (fd, _) in not_memory() {
        nv12(vec![plane(&fd)]);
        nv12(vec![plane(&file), plane(&fd)]);
    }
    assert!(matches!(nv12(vec![plane(&memfd(64, SealFlags::empty()))]), Error::Unsealed));
}

// ---- mappings -------------------------------------------------------------------------------------

fn dropped_tensors_leave_no_mapping() {
    let round = || {
        for memory in [TensorMemory::Mem, TensorMemory::Shm] {
            for align in [64, 2 << 20] {
                let options = Tensor::options().memory(memory).alignment(align);
                let tensor = options.huge_pages(align > 64).create(&[4 << 20], DType::U8).unwrap();
                let view = tensor.narrow(0, 1, 100).unwrap();
                drop(tensor);
                drop(view);
            }
        }
        let tensor = shm().create(&[4 << 20], DType::U8).unwrap();
        drop(travel(&tensor));
        let _ = Tensor::from_fd(tensor.clone_fd().unwrap(), &[5 << 20], DType::U8);
    };
    round();
    let before = address_space();
    (0..50).for_each(|_| round());
    // Each round maps 24 MiB. What remains is the allocator's.
    let growth = address_space().saturating_sub(before);
    assert!(growth < 24 << 20, "{growth} bytes");
}

/// Bytes of address space in use.
fn address_space() -> usize {
    let statm = fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = statm.split(' ').next().unwrap().parse().unwrap();
    pages * rustix::param::page_size()
}
