//! Several handles of one buffer: which of them may write, loans, copies, identity.

use cenote::{CopyReason, DType, Error, NotWritable, Tensor, TensorMemory};

use super::{Case, cases, copies_made, counting, lock_copy_counters, options_for, why};

pub(super) const CASES: &[Case] = cases![
    another_live_handle_forbids_writing
    a_loan_is_written_by_pointer_and_forbids_sharing
    make_mut_copies_only_when_it_must
    make_mut_leaves_other_handles_unchanged
    identity_is_shared_by_views_and_clones
    identity_ids_only_grow
];

fn another_live_handle_forbids_writing(memory: TensorMemory) {
    let mut tensor = counting(memory, &[3, 4]);
    assert_eq!(tensor.not_writable(), None);
    let mut clone = tensor.clone();
    assert_eq!(why(&mut tensor), NotWritable::Shared);
    assert_eq!(why(&mut clone), NotWritable::Shared);
    drop(clone);
    tensor.map_mut().unwrap().set(&[0, 0], 1u16).unwrap();
    let view = tensor.index(0, 0).unwrap();
    assert_eq!(why(&mut tensor), NotWritable::Shared);
    drop(view);
    tensor.map_mut().unwrap();
    // The last handle may write, even if it is a view.
    let mut view = tensor.transpose();
    drop(tensor);
    view.map_mut().unwrap().set(&[0, 0], 9u16).unwrap();
    assert_eq!(view.map().unwrap().get::<u16>(&[0, 0]).unwrap(), 9);
}

#[allow(unsafe_code, reason = "what is tested")]
fn a_loan_is_written_by_pointer_and_forbids_sharing(memory: TensorMemory) {
    let mut tensor = counting(memory, &[3, 4]);
    if matches!(memory, TensorMemory::Dma | TensorMemory::Pbo) {
        let refused = tensor.lend().map(drop).unwrap_err();
        assert!(matches!(refused, Error::NotWritable { why: NotWritable::Device }), "{refused}");
        return assert!(!tensor.is_lent());
    }
    let row = tensor.index(0, 1).unwrap();
    let (first, second) = (tensor.lend().unwrap(), row.lend().unwrap());
    assert!(tensor.is_lent() && row.is_lent());
    assert_eq!(second.as_ptr().addr() - first.as_ptr().addr(), 8);
    let reading = row.lend_to_read().unwrap();
    assert_eq!((second.as_ptr(), second.is_writable()), (reading.as_ptr(), true));
    assert!(!reading.is_writable() && reading.tensor().shape() == row.shape());
    // SAFETY: the pointer is to the first element of the row, and no guard of the buffer is alive.
    unsafe { second.as_ptr().cast::<u16>().write(99) };
    assert_eq!(tensor.map().unwrap().get::<u16>(&[1, 0]).unwrap(), 99);
    drop(first);
    #[cfg(target_os = "linux")]
    {
        let shared = tensor.clone_fd().map(drop).unwrap_err();
        let expected = matches!(shared, Error::Lent | Error::NoFd { .. });
        assert!(expected && (memory != TensorMemory::Shm || shared.to_string().contains("lent")));
    }
    assert_eq!(why(&mut tensor), NotWritable::Shared);
    drop((second, row));
    assert!(!tensor.is_lent());
    assert_eq!(why(&mut tensor), NotWritable::Shared);
    drop(reading);
    tensor.map_mut().unwrap();
    #[cfg(target_os = "linux")]
    if tensor.clone_fd().is_ok() {
        let refused = tensor.lend().map(drop).unwrap_err();
        assert!(matches!(refused, Error::NotWritable { why: NotWritable::Published }));
    }
}

fn make_mut_copies_only_when_it_must(memory: TensorMemory) {
    let _lock = lock_copy_counters();
    let before = copies_made(CopyReason::MakeMut);
    let mut tensor = counting(memory, &[3, 4]);
    let id = tensor.buffer_identity().id();
    tensor.make_mut().unwrap().set(&[0, 0], 5u16).unwrap();
    assert_eq!((tensor.buffer_identity().id(), copies_made(CopyReason::MakeMut)), (id, before));

    let other = tensor.clone();
    tensor.make_mut().unwrap();
    assert_ne!(tensor.buffer_identity().id(), id);
    assert_eq!(copies_made(CopyReason::MakeMut), (before.0 + 1, before.1 + 24));
    drop(other);
    tensor.make_mut().unwrap();
    assert_eq!(copies_made(CopyReason::MakeMut), (before.0 + 1, before.1 + 24));
}

fn make_mut_leaves_other_handles_unchanged(memory: TensorMemory) {
    let _lock = lock_copy_counters();
    let before = counting(memory, &[3, 4]);
    let mut after = before.transpose();
    after.make_mut().unwrap().set(&[3, 0], 100u16).unwrap();
    assert_eq!(after.memory(), memory);
    assert_eq!(after.shape(), [4, 3]);
    assert_eq!(after.to_vec::<u16>().unwrap(), [0, 4, 8, 1, 5, 9, 2, 6, 10, 100, 7, 11]);
    assert!(before.to_vec::<u16>().unwrap().into_iter().eq(0..12));
}

fn identity_is_shared_by_views_and_clones(memory: TensorMemory) {
    let tensor = counting(memory, &[3, 4]);
    let id = tensor.buffer_identity().id();
    let weak = tensor.buffer_identity().weak();
    let clone = tensor.clone();
    let view = clone.index(0, 1).unwrap().reshape(&[2, 2]).unwrap();
    assert_eq!((clone.buffer_identity().id(), view.buffer_identity().id()), (id, id));
    drop(tensor);
    drop(clone);
    assert!(weak.upgrade().is_some(), "a view is alive");
    assert!(view.buffer_identity().weak().ptr_eq(&weak));
    drop(view);
    assert!(weak.upgrade().is_none());
}

fn identity_ids_only_grow(memory: TensorMemory) {
    let mut last = 0;
    for _ in 0..100 {
        let id = options_for(memory).create(&[1], DType::U8).unwrap().buffer_identity().id();
        assert!(id > last);
        last = id;
    }
    assert!(Tensor::from_vec(vec![1u8], &[1]).unwrap().buffer_identity().id() > last);
}
