//! Tensors over descriptors that other programs made.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;

use cenote::{DType, Error, Layout, NotWritable, Tensor, TensorMemory};
use rustix::fs::{MemfdFlags, OFlags, SealFlags};

use super::memory_file::{memfd, other_descriptors, reopen, sealed, sealed_memfd};
use super::{Case, cases, counting};

pub(super) const CASES: &[Case] = cases![
    an_import_may_have_any_layout
    imports_are_read_only
    trusted_imports_are_writable
    import_refuses_other_files_than_shared_memory
    write_only_descriptors_are_refused
    memory_that_is_too_small_is_refused
    memory_that_could_shrink_is_refused
    memory_that_shrinks_during_import_is_refused
    memory_that_others_can_write_gives_no_bool_slice
    copying_more_elements_than_memory_is_an_error
];

fn an_import_may_have_any_layout() {
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
    // A read-only descriptor is enough.
    let read_only = reopen(&sealed(&[7; 8]), OFlags::RDONLY);
    let tensor = Tensor::from_fd(read_only, &[8], DType::U8).unwrap();
    assert_eq!(tensor.to_vec::<u8>().unwrap(), [7; 8]);
}

fn trusted_imports_are_writable() {
    let layout = Layout::contiguous(&[8], 1).unwrap();
    // SAFETY: the only other descriptors of these files are in this function, which writes none of them
    // while a guard is alive.
    #[allow(unsafe_code, reason = "what is tested")]
    let import = |fd: OwnedFd| unsafe { Tensor::from_fd_mut(fd, layout.clone(), DType::U8) };
    // The file is not sealed against shrinking: the caller of `from_fd_mut` promises that.
    let file = memfd(8, SealFlags::empty());
    let mut tensor = import(file.try_clone().unwrap()).unwrap();
    tensor.map_mut().unwrap().as_mut_slice::<u8>().unwrap().fill(3);
    let mut seen = [0; 8];
    rustix::io::pread(&file, &mut seen, 0).unwrap();
    assert_eq!(seen, [3; 8]);
    // After an export it is as read-only as any other.
    drop(tensor.clone_fd().unwrap());
    assert!(tensor.map_mut().is_err());
    assert!(rustix::io::pwrite(&file, b"x", 0).is_err());

    let read_only = import(reopen(&sealed(&[7; 8]), OFlags::RDONLY));
    assert!(matches!(read_only, Err(Error::FdAccess { access: "for writing", .. })));
    let frozen = import(memfd(8, SealFlags::SHRINK | SealFlags::WRITE));
    assert!(matches!(frozen, Err(Error::FdAccess { access: "for writing", .. })));
}

fn import_refuses_other_files_than_shared_memory() {
    for (fd, kind) in other_descriptors() {
        let refused = Tensor::from_fd(fd.try_clone().unwrap(), &[1], DType::U8).unwrap_err();
        assert!(matches!(refused, Error::WrongFdKind { found } if found == kind), "{refused}");
        // SAFETY: nothing writes it, and the call is refused.
        #[allow(unsafe_code, reason = "the refusal is tested")]
        let refused =
            unsafe { Tensor::from_fd_mut(fd, Layout::contiguous(&[1], 1).unwrap(), DType::U8) };
        assert!(matches!(refused, Err(Error::WrongFdKind { found }) if found == kind));
    }
}

fn write_only_descriptors_are_refused() {
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
    // A sparse file, larger than any address space.
    let huge = memfd(i64::MAX as u64, SealFlags::SHRINK);
    assert!(Tensor::from_fd(huge, &[1], DType::U8).is_err());
}

fn memory_that_could_shrink_is_refused() {
    for seals in [SealFlags::empty(), SealFlags::GROW, SealFlags::GROW | SealFlags::SEAL] {
        let refused = Tensor::from_fd(memfd(8, seals), &[8], DType::U8);
        assert!(matches!(refused, Err(Error::Unsealed)), "{seals:?}");
    }
    // A file of a tmpfs cannot be sealed.
    let path = format!("/dev/shm/cenote-test-{}", std::process::id());
    let create = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path);
    let mut file = create.unwrap();
    fs::remove_file(&path).unwrap();
    file.write_all(&[7; 8]).unwrap();
    let refused = Tensor::from_fd(file.into(), &[8], DType::U8);
    assert!(matches!(refused, Err(Error::Unsealed)));
}

/// Another thread truncates and seals the file during the import, as a hostile peer would.
fn memory_that_shrinks_during_import_is_refused() {
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

fn memory_that_others_can_write_gives_no_bool_slice() {
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

fn copying_more_elements_than_memory_is_an_error() {
    let one = counting(&[1]);
    let endless = Layout::strided(&[1 << 45], &[0], 0, 1).unwrap();
    let tensor = Tensor::from_fd_layout(one.clone_fd().unwrap(), endless, DType::U8).unwrap();
    assert!(tensor.to_vec::<u8>().is_err());
    assert!(tensor.to_contiguous().is_err());
}
