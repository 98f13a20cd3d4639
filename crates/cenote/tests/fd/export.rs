//! Descriptors of a tensor's memory, given to other programs.

use std::os::unix::net::UnixStream;
use std::ptr;

use cenote::{DType, Error, NotWritable, Tensor, TensorMemory};
use rustix::fs::OFlags;
use rustix::mm::{MapFlags, ProtFlags};

use super::memory_file::reopen;
use super::socket::send_and_receive;
use super::{Case, cases, counting};

pub(super) const CASES: &[Case] = cases![
    exported_memory_reads_the_same
    exported_memory_is_read_only
    an_exported_tensor_is_never_writable_again
    heap_memory_has_no_descriptor
];

fn exported_memory_reads_the_same() {
    let tensor = counting(&[3, 4]);
    let other = Tensor::from_fd(tensor.clone_fd().unwrap(), &[12], DType::U16).unwrap();
    assert!(other.to_vec::<u16>().unwrap().into_iter().eq(0..12));
    assert_eq!(other.memory(), TensorMemory::Shm);
    assert_eq!(other.selection().to_string(), "shm (imported from a file descriptor)");
    assert_ne!(other.buffer_identity().id(), tensor.buffer_identity().id());
    drop(tensor);
    assert!(other.to_vec::<u16>().unwrap().into_iter().eq(0..12), "the bytes outlive the exporter");
    // A view exports the descriptor of its whole buffer.
    let row = counting(&[3, 4]).index(0, 2).unwrap();
    let whole = Tensor::from_fd(row.clone_fd().unwrap(), &[12], DType::U16).unwrap();
    assert!(whole.to_vec::<u16>().unwrap().into_iter().eq(0..12));
}

fn exported_memory_is_read_only() {
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
        // SAFETY: the kernel chooses an unused address for the new mapping.
        #[allow(unsafe_code, reason = "the refusal is tested")]
        let map = unsafe { rustix::mm::mmap(ptr::null_mut(), 24, prot, flags, fd, 0) };
        assert!(map.is_err(), "a writable mapping of exported memory");
    }
    let layout = tensor.layout().clone();
    // SAFETY: nothing in this process writes the file.
    #[allow(unsafe_code, reason = "the refusal is tested")]
    let writable = unsafe { Tensor::from_fd_mut(fd, layout, DType::U16) };
    assert!(matches!(writable, Err(Error::FdAccess { access: "for writing", .. })));
    assert!(tensor.to_vec::<u16>().unwrap().into_iter().eq(0..12));
}

fn an_exported_tensor_is_never_writable_again() {
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
    assert_eq!(
        why(&mut tensor),
        NotWritable::Published,
        "the reason that does not end comes first"
    );
    drop(clone);
    assert_eq!(why(&mut tensor), NotWritable::Published);

    // Exporting a view and sending a tensor have the same effect.
    let mut tensor = counting(&[3, 4]);
    drop(send_and_receive(&tensor.index(0, 0).unwrap()));
    assert_eq!(why(&mut tensor), NotWritable::Published);
    let id = tensor.buffer_identity().id();
    tensor.make_mut().unwrap().set(&[0, 0], 9u16).unwrap();
    assert_ne!(tensor.buffer_identity().id(), id);
    assert_eq!(tensor.not_writable(), None);
    assert_eq!(tensor.memory(), TensorMemory::Shm);

    // A refused export has no effect.
    let mut heap = Tensor::options().memory(TensorMemory::Mem).create(&[4], DType::U8).unwrap();
    assert!(heap.clone_fd().is_err());
    heap.map_mut().unwrap();
}

fn heap_memory_has_no_descriptor() {
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
