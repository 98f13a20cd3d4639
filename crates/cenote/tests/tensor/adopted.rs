//! Tensors over memory that existed before them: vectors, owners, raw pointers, arrays.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use cenote::{DType, Error, Layout, NotWritable, Tensor, TensorMemory};

use super::{cases, lock_copy_counters, why};

pub(super) const CASES: &[(&str, fn())] = cases![
    a_vector_is_adopted_without_a_copy
    an_owner_is_dropped_once_with_the_last_handle
    foreign_memory_is_released_when_it_does_not_fit
    changeable_foreign_memory_gives_no_bool_slice
    arrays_are_adopted_or_copied_in_order
];

fn a_vector_is_adopted_without_a_copy() {
    let data: Vec<u32> = (0..6).collect();
    let start = data.as_ptr();
    let mut tensor = Tensor::from_vec(data, &[2, 3]).unwrap();
    assert_eq!(tensor.map().unwrap().as_slice::<u32>().unwrap().as_ptr(), start);
    assert_eq!(tensor.memory(), TensorMemory::Mem);
    assert_eq!(tensor.selection().to_string(), "mem (adopted from its owner)");
    tensor.map_mut().unwrap().set(&[0, 0], 9u32).unwrap();
    assert_eq!(tensor.to_vec::<u32>().unwrap(), [9, 1, 2, 3, 4, 5]);
    // The spare capacity of the vector is not part of the tensor.
    let mut roomy = Vec::with_capacity(100);
    roomy.extend_from_slice(&[1u8, 2]);
    let tensor = Tensor::from_vec(roomy, &[2]).unwrap();
    assert!(tensor.narrow(0, 0, 2).unwrap().with_plane_offset(1).is_err());
}

/// Bytes that count how often they are dropped.
struct CountsDrops(Vec<u8>, Arc<AtomicUsize>);

impl AsRef<[u8]> for CountsDrops {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for CountsDrops {
    fn drop(&mut self) {
        self.1.fetch_add(1, Ordering::Relaxed);
    }
}

fn an_owner_is_dropped_once_with_the_last_handle() {
    let drops = Arc::new(AtomicUsize::new(0));
    let mut tensor =
        Tensor::from_owner(CountsDrops(vec![1, 2, 3, 4], drops.clone()), &[2, 2], DType::U8)
            .unwrap();
    assert_eq!(why(&mut tensor), NotWritable::Foreign);
    let view = tensor.index(0, 1).unwrap();
    drop(tensor);
    assert_eq!((view.to_vec::<u8>().unwrap(), drops.load(Ordering::Relaxed)), (vec![3, 4], 0));
    let mut copy = view;
    let _lock = lock_copy_counters();
    copy.make_mut().unwrap().set(&[0], 9u8).unwrap();
    assert_eq!(drops.load(Ordering::Relaxed), 1);
    let small = Tensor::from_owner(CountsDrops(vec![0; 3], drops.clone()), &[4], DType::U8);
    assert!(matches!(small, Err(Error::OutOfBuffer { end: 4, len: 3, .. })));
    assert_eq!(drops.load(Ordering::Relaxed), 2);
}

fn foreign_memory_is_released_when_it_does_not_fit() {
    static BYTES: [u8; 4] = [1, 2, 3, 4];
    let adopt = |layout: Layout, dtype| {
        let released = Arc::new(AtomicBool::new(false));
        let flag = released.clone();
        let release = move || flag.store(true, Ordering::Relaxed);
        let start = NonNull::from(&BYTES).cast();
        // SAFETY: static bytes live forever and never change.
        #[allow(unsafe_code, reason = "what is tested")]
        let tensor = unsafe { Tensor::from_raw_parts(start, 4, layout, dtype, release) };
        (tensor, released)
    };
    let (tensor, released) = adopt(Layout::contiguous(&[2, 2], 1).unwrap(), DType::U8);
    let tensor = tensor.unwrap();
    let clone = tensor.clone();
    drop(tensor);
    assert_eq!(clone.to_vec::<u8>().unwrap(), BYTES);
    assert!(!released.load(Ordering::Relaxed));
    drop(clone);
    assert!(released.load(Ordering::Relaxed));

    let (tensor, released) = adopt(Layout::contiguous(&[5], 1).unwrap(), DType::U8);
    assert!(matches!(tensor, Err(Error::OutOfBuffer { .. })));
    assert!(released.load(Ordering::Relaxed));
    let (tensor, released) = adopt(Layout::contiguous(&[2], 1).unwrap(), DType::U16);
    assert!(matches!(tensor, Err(Error::ItemSize { layout: 1, size: 2, .. })));
    assert!(released.load(Ordering::Relaxed));
}

fn changeable_foreign_memory_gives_no_bool_slice() {
    static BYTES: [u8; 4] = [0, 1, 0, 1];
    let layout = Layout::contiguous(&[4], 1).unwrap();
    let start = NonNull::from(&BYTES).cast();
    // SAFETY: static bytes live forever and never change.
    #[allow(unsafe_code, reason = "what is tested")]
    let tensor = unsafe { Tensor::from_changeable_parts(start, 4, layout, DType::Bool, || ()) };
    let tensor = tensor.unwrap();
    assert!(matches!(tensor.lend(), Err(Error::NotWritable { why: NotWritable::Foreign })));
    let refused = tensor.map().unwrap().as_slice::<bool>().map(drop).unwrap_err();
    assert!(matches!(refused, Error::Changeable { .. }), "{refused}");
    assert_eq!(tensor.to_vec::<bool>().unwrap(), [false, true, false, true]);
}

fn arrays_are_adopted_or_copied_in_order() {
    use ndarray::{Array, Array2, s};
    let whole = || Array2::from_shape_vec((3, 4), (0..12u64).collect()).unwrap();
    let array = whole();
    let start = array.as_ptr();
    let tensor = Tensor::from_array(array).unwrap();
    assert_eq!(tensor.map().unwrap().as_slice::<u64>().unwrap().as_ptr(), start);
    let check = |array: Array2<u64>| {
        let expected: Vec<u64> = array.iter().copied().collect();
        let shape = array.shape().to_vec();
        let view = Tensor::from_array_view(&array).unwrap();
        assert_eq!((view.shape(), view.to_vec::<u64>().unwrap()), (&*shape, expected.clone()));
        let tensor = Tensor::from_array(array).unwrap();
        assert_eq!((tensor.shape(), tensor.to_vec::<u64>().unwrap()), (&*shape, expected));
    };
    check(whole().slice_move(s![1.., ..]));
    check(whole().slice_move(s![..2, ..]));
    check(whole().slice_move(s![.., 1..3]));
    check(whole().slice_move(s![..;-1, ..]));
    check(whole().reversed_axes());
    let empty = Array::<f32, _>::zeros((3, 0));
    assert!(matches!(Tensor::from_array(empty), Err(Error::ZeroDim { axis: 1, .. })));
    let deep = Array::<f32, _>::zeros(ndarray::IxDyn(&[1; 9]));
    assert!(matches!(Tensor::from_array(deep), Err(Error::TooManyDims { found: 9, .. })));
}
