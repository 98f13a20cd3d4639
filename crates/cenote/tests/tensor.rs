//! What must hold for a tensor, in every kind of memory. Each function of the table below runs once
//! for each kind; a new kind is one more word in `kinds`.

#![allow(clippy::unwrap_used)]

mod model;

use std::cell::RefCell;
use std::process::ExitCode;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cenote::{
    Complex, CopyReason, DType, Element, Error, Layout, NotWritable, PixelFormat, Tensor,
    TensorMemory, TensorOptions, Unavailable, Wish, bf16, f16,
};
use libtest_mimic::{Arguments, Trial};
use model::{Model, indices, view};
use proptest::collection::vec as many;
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};

/// DMA-BUFs are not on every machine; where `scripts/test` runs this to test them, they have to be.
fn kinds() -> Vec<TensorMemory> {
    let mut kinds = vec![TensorMemory::Mem, TensorMemory::Shm];
    if std::env::var_os("CENOTE_TEST_VM").is_some() || TensorMemory::Dma.is_available() {
        kinds.push(TensorMemory::Dma);
    }
    kinds
}

macro_rules! table {
    ($($name:ident)*) => { &[$((stringify!($name), $name as Test)),*] };
}

/// A test, for one kind of memory.
pub(crate) type Test = fn(TensorMemory);

/// All of them.
pub(crate) const TABLE: &[(&str, Test)] = table![
    zeroed
    lives_in_the_memory_asked_for
    aligned_as_asked
    impossible_alignments_are_errors
    names_have_rules
    wishes_are_granted_or_reported
    bad_shapes_are_errors
    typed_slices_of_every_dtype
    bytes_and_elements_are_the_same_memory
    a_wrong_dtype_is_an_error
    a_bad_index_is_an_error
    data_of_the_wrong_length_is_an_error
    bools_are_only_ever_zero_or_one
    misaligned_elements_are_never_referenced
    views_show_the_same_bytes
    views_out_of_range_are_errors
    slices_of_strided_views_are_refused
    writes_go_through_strided_handles
    others_alive_forbid_writing
    what_is_lent_can_be_written_by_pointer_and_not_be_shared
    make_mut_copies_only_when_it_must
    make_mut_leaves_the_others_alone
    identity_is_shared_by_views_and_clones
    identity_ids_only_grow
    images_have_the_shape_of_their_format
    formats_refuse_what_they_do_not_fit
    a_format_needs_rows_of_pixels
    row_stride_needs_a_format_and_room
    rows_are_aligned_as_asked
    plane_offset_moves_inside_the_buffer
    planes_cover_the_image
    planes_can_be_written_one_by_one
    the_format_of_a_region_can_change
    make_mut_keeps_the_row_stride
    roi_keeps_the_format
    roi_of_roi_is_roi
    contiguous_images_equal_a_naive_copy
    contiguous_copies_keep_the_shape
    copies_are_counted_byte_for_byte
    setting_a_format_again_changes_nothing
    one_row_has_no_stride_to_get_wrong
    arrays_out
    arrays_of_one_long_axes
    arrays_mutable
    selection_tells_the_story
    chains_of_views_agree_with_the_model
];

fn main() -> ExitCode {
    let mut trials = Vec::new();
    for memory in kinds() {
        for &(name, test) in TABLE {
            trials.push(Trial::test(format!("{memory}::{name}"), move || {
                test(memory);
                Ok(())
            }));
        }
    }
    for &(name, test) in ADOPTED {
        trials.push(Trial::test(name, move || {
            test();
            Ok(())
        }));
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

thread_local! {
    /// What makes the tensors of a test, where the kind of memory is not enough to say.
    pub(crate) static MAKER: RefCell<Option<TensorOptions>> = const { RefCell::new(None) };
}

fn on(memory: TensorMemory) -> TensorOptions {
    MAKER.with_borrow(Option::clone).unwrap_or_else(|| Tensor::options().memory(memory))
}

/// A tensor of `u16` that counts up.
fn counting(memory: TensorMemory, shape: &[usize]) -> Tensor {
    let len = shape.iter().product::<usize>();
    let data: Vec<u16> = (0..len).map(|i| u16::try_from(i).unwrap()).collect();
    on(memory).create_from_slice(&data, shape).unwrap()
}

fn count(reason: CopyReason) -> (u64, u64) {
    let copies = cenote::copies().into_iter().find(|copies| copies.reason == reason).unwrap();
    (copies.count, copies.bytes)
}

fn why(tensor: &mut Tensor) -> NotWritable {
    let expected = tensor.not_writable();
    match tensor.map_mut().map(drop) {
        Err(Error::NotWritable { why }) => {
            assert_eq!(expected, Some(why), "not_writable and map_mut disagree");
            why
        }
        other => panic!("writable: {other:?}"),
    }
}

// ---- allocating -----------------------------------------------------------------------------------

fn zeroed(memory: TensorMemory) {
    for dtype in DType::all() {
        // Small ones come from the allocator, large ones from the kernel.
        for shape in [&[][..], &[1], &[3, 5, 7], &[300, 500]] {
            let tensor = on(memory).create(shape, dtype).unwrap();
            assert_eq!((tensor.shape(), tensor.dtype()), (shape, dtype));
            let len = shape.iter().product::<usize>();
            assert_eq!((tensor.len(), tensor.nbytes()), (len, len * dtype.size()));
            assert_eq!((tensor.ndim(), tensor.strides().len()), (shape.len(), shape.len()));
            let map = tensor.map().unwrap();
            let bytes = map.as_bytes().unwrap();
            assert_eq!(bytes.len(), tensor.nbytes());
            assert!(bytes.iter().all(|&byte| byte == 0), "{dtype} {shape:?}");
        }
    }
}

fn lives_in_the_memory_asked_for(memory: TensorMemory) {
    let tensor = on(memory).create(&[7], DType::I64).unwrap();
    assert_eq!(tensor.memory(), memory);
    assert_eq!(tensor.selection().chosen(), memory);
    assert_eq!(memory.is_available(), memory != TensorMemory::Pbo, "only a context makes those");
    assert!(format!("{tensor:?}").contains(&format!("{memory:?}")));
}

fn aligned_as_asked(memory: TensorMemory) {
    for shape in [&[1][..], &[1000], &[1 << 20]] {
        for align in [1, 64, 4096, 1 << 16, 2 << 20] {
            let tensor = on(memory).alignment(align).create(shape, DType::U8);
            if memory == TensorMemory::Pbo && align > 64 {
                // The driver chooses the address.
                assert!(matches!(tensor, Err(Error::BadAlignment { max: 64, .. })));
                continue;
            }
            let tensor = tensor.unwrap();
            let map = tensor.map().unwrap();
            let place = map.as_bytes().unwrap().as_ptr().addr();
            assert!(place.is_multiple_of(align.max(64)), "{place:#x} for {align}");
        }
        let tensor = on(memory).create(shape, DType::U8).unwrap();
        assert!(tensor.map().unwrap().as_bytes().unwrap().as_ptr().addr().is_multiple_of(64));
    }
}

fn impossible_alignments_are_errors(memory: TensorMemory) {
    for align in [0, 3, 48, (1 << 30) + 1, 1 << 31, usize::MAX] {
        let refused = on(memory).alignment(align).create(&[4], DType::U8).unwrap_err();
        assert!(
            matches!(refused, Error::BadAlignment { given, .. } if given == align),
            "{refused}"
        );
        let rows = on(memory).row_alignment(align).image(4, 4, PixelFormat::Grey);
        assert!(matches!(rows, Err(Error::BadAlignment { .. })));
    }
}

fn names_have_rules(memory: TensorMemory) {
    for name in ["", "camera", "front/left", "caméra", &"n".repeat(249)] {
        on(memory).name(name).create(&[4], DType::U8).unwrap();
    }
    for name in ["nul\0nul", &"n".repeat(250), &"é".repeat(125)] {
        let refused = on(memory).name(name).create(&[4], DType::U8).unwrap_err();
        assert!(matches!(&refused, Error::BadName { given, .. } if **given == *name), "{refused}");
    }
}

fn shared_memory_has_huge_pages() -> bool {
    let setting = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
    let setting = setting.unwrap_or_default();
    ["[always]", "[within_size]", "[force]"].iter().any(|chosen| setting.contains(chosen))
}

fn wishes_are_granted_or_reported(memory: TensorMemory) {
    for (huge, prefault) in [(true, false), (false, true), (true, true)] {
        let options = on(memory).huge_pages(huge).prefault(prefault);
        let mut tensor = options.create(&[3 << 20], DType::U8).unwrap();
        let selection = tensor.selection();
        for refused in selection.not_granted() {
            let wished = match refused.wish {
                Wish::HugePages => huge,
                Wish::Prefault => prefault,
                other => panic!("{other:?}"),
            };
            assert!(wished, "{refused:?}");
            assert!(selection.to_string().contains(&refused.why.to_string()), "{selection}");
        }
        if memory == TensorMemory::Shm {
            let refused = selection.not_granted().iter().any(|one| one.wish == Wish::HugePages);
            assert_eq!(refused, huge && !shared_memory_has_huge_pages(), "{selection}");
        }
        if memory == TensorMemory::Pbo {
            assert_eq!(selection.not_granted().len(), usize::from(huge) + usize::from(prefault));
        } else if huge {
            let start = tensor.map().unwrap().as_bytes().unwrap().as_ptr().addr();
            assert!(start.is_multiple_of(2 << 20), "huge pages need a start on one");
        }
        tensor.map_mut().unwrap().as_mut_slice::<u8>().unwrap().fill(1);
    }
    let plain = on(memory).create(&[4], DType::U8).unwrap();
    assert!(plain.selection().not_granted().is_empty());
}

fn bad_shapes_are_errors(memory: TensorMemory) {
    let create = |shape: &[usize]| on(memory).create(shape, DType::F32).unwrap_err();
    assert!(matches!(create(&[3, 0]), Error::ZeroDim { axis: 1, .. }));
    assert!(matches!(create(&[usize::MAX, 2]), Error::SizeOverflow { .. }));
    assert!(matches!(create(&[1 << 32, 1 << 30]), Error::SizeOverflow { .. }));
    assert!(matches!(create(&[1; 9]), Error::TooManyDims { found: 9, .. }));
    let image = |w, h| on(memory).image(w, h, PixelFormat::Nv12).unwrap_err();
    assert!(matches!(image(0, 4), Error::ZeroDim { .. }));
    assert!(matches!(image(usize::MAX - 1, 4), Error::SizeOverflow { .. }));
    assert!(matches!(image(4, usize::MAX), Error::SizeOverflow { .. }));
}

// ---- access ---------------------------------------------------------------------------------------

fn typed_slices_of_every_dtype(memory: TensorMemory) {
    fn check<T: Element>(memory: TensorMemory, seen: &mut Vec<DType>, data: [T; 6]) {
        seen.push(T::DTYPE);
        let mut tensor = on(memory).create(&[2, 3], T::DTYPE).unwrap();
        assert_eq!(tensor.to_vec::<T>().unwrap(), [T::default(); 6]);
        tensor.map_mut().unwrap().as_mut_slice::<T>().unwrap().copy_from_slice(&data);
        let map = tensor.map().unwrap();
        assert_eq!(map.as_slice::<T>().unwrap(), data);
        assert_eq!(map.get::<T>(&[1, 0]).unwrap(), data[3]);
        assert_eq!(tensor.to_vec::<T>().unwrap(), data);
        let column = tensor.index(1, 2).unwrap();
        assert_eq!(column.to_vec::<T>().unwrap(), [data[2], data[5]]);

        let mut copy = on(memory).create_from_slice(&data, &[3, 2]).unwrap();
        assert_eq!(copy.memory(), memory);
        assert_eq!(copy.to_vec::<T>().unwrap(), data);
        let mut map = copy.map_mut().unwrap();
        map.set(&[2, 1], data[0]).unwrap();
        assert_eq!(map.as_map().get::<T>(&[2, 1]).unwrap(), data[0]);

        assert_eq!(Tensor::from_vec(data.to_vec(), &[6]).unwrap().to_vec::<T>().unwrap(), data);
        assert_eq!(Tensor::from_slice(&data, &[6]).unwrap().to_vec::<T>().unwrap(), data);
    }
    let mut seen = Vec::new();
    let of = &mut seen;
    check(memory, of, [1.5f32, -0.0, f32::MAX, f32::INFINITY, 1e-40, 6.0]);
    check(memory, of, [1.5f64, -0.0, f64::MAX, f64::NEG_INFINITY, 1e-310, 6.0]);
    check(memory, of, [1.0, -2.0, 3.5, 65504.0, 0.0, 6.0].map(f16::from_f32));
    check(memory, of, [1.0, -2.0, 3.5, 1e38, 0.0, 6.0].map(bf16::from_f32));
    check(memory, of, [1i8, -2, i8::MIN, i8::MAX, 0, 6]);
    check(memory, of, [1i16, -2, i16::MIN, i16::MAX, 0, 6]);
    check(memory, of, [1i32, -2, i32::MIN, i32::MAX, 0, 6]);
    check(memory, of, [1i64, -2, i64::MIN, i64::MAX, 0, 6]);
    check(memory, of, [1u8, 2, u8::MAX, 4, 0, 6]);
    check(memory, of, [1u16, 2, u16::MAX, 4, 0, 6]);
    check(memory, of, [1u32, 2, u32::MAX, 4, 0, 6]);
    check(memory, of, [1u64, 2, u64::MAX, 4, 0, 6]);
    check(memory, of, [true, false, true, true, false, false]);
    check(memory, of, [1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0].map(|re| Complex::<f32>::new(re, -re)));
    check(memory, of, [1.0f64, 2.0, 3.0, 4.0, 5.0, 6.0].map(|re| Complex::<f64>::new(re, -re)));
    seen.sort_unstable();
    assert!(seen.into_iter().eq(DType::all()), "a dtype is missing here");
}

fn bytes_and_elements_are_the_same_memory(memory: TensorMemory) {
    let mut tensor = on(memory).create(&[3], DType::U32).unwrap();
    let mut map = tensor.map_mut().unwrap();
    map.as_mut_bytes().unwrap().copy_from_slice(&[1; 12]);
    map.set(&[1], u32::MAX).unwrap();
    let word = u32::from_ne_bytes([1; 4]);
    assert_eq!(map.as_map().as_slice::<u32>().unwrap(), [word, u32::MAX, word]);
    map.for_each_run(|run| run[4] = 0);
    drop(map);
    assert_eq!(tensor.map().unwrap().as_bytes().unwrap()[3..6], [1, 0, 255]);
}

fn a_wrong_dtype_is_an_error(memory: TensorMemory) {
    let wrong = |error| matches!(error, Error::WrongDType { asked: "i32", found: "f32" });
    let mut tensor = on(memory).create(&[4], DType::F32).unwrap();
    assert!(wrong(tensor.to_vec::<i32>().unwrap_err()));
    assert!(wrong(tensor.to_array::<i32>().unwrap_err()));
    let map = tensor.map().unwrap();
    assert!(wrong(map.as_slice::<i32>().unwrap_err()));
    assert!(wrong(map.get::<i32>(&[0]).unwrap_err()));
    assert!(wrong(map.as_array::<i32>().unwrap_err()));
    drop(map);
    let mut map = tensor.map_mut().unwrap();
    assert!(wrong(map.as_mut_slice::<i32>().unwrap_err()));
    assert!(wrong(map.set(&[0], 1i32).unwrap_err()));
    assert!(wrong(map.as_array_mut::<i32>().unwrap_err()));
}

fn a_bad_index_is_an_error(memory: TensorMemory) {
    let mut tensor = counting(memory, &[2, 3]);
    for index in [&[2, 0][..], &[0, 3], &[0], &[0, 0, 0], &[], &[usize::MAX, usize::MAX]] {
        let read = tensor.map().unwrap().get::<u16>(index).unwrap_err();
        assert!(matches!(&read, Error::BadIndex { index: given, .. } if **given == *index));
        let written = tensor.map_mut().unwrap().set(index, 1u16);
        assert!(matches!(written, Err(Error::BadIndex { .. })));
    }
    assert!(tensor.to_vec::<u16>().unwrap().into_iter().eq(0..6));
}

fn data_of_the_wrong_length_is_an_error(memory: TensorMemory) {
    for len in [0, 5, 7] {
        let data = vec![1u8; len];
        for result in [
            on(memory).create_from_slice(&data, &[2, 3]),
            Tensor::from_slice(&data, &[2, 3]),
            Tensor::from_vec(data, &[2, 3]),
        ] {
            let refused = result.unwrap_err();
            assert!(matches!(refused, Error::WrongLen { expected: 6, given, .. } if given == len));
        }
    }
}

fn bools_are_only_ever_zero_or_one(memory: TensorMemory) {
    let mut tensor = on(memory).create(&[2, 2], DType::Bool).unwrap();
    tensor.map_mut().unwrap().as_mut_bytes().unwrap()[3] = 2;
    let invalid = |error| matches!(error, Error::InvalidValue { dtype: "bool" });
    assert!(invalid(tensor.to_vec::<bool>().unwrap_err()));
    assert!(invalid(tensor.to_array::<bool>().unwrap_err()));
    assert!(invalid(tensor.transpose().to_vec::<bool>().unwrap_err()));
    assert!(invalid(tensor.map().unwrap().as_slice::<bool>().unwrap_err()));
    assert!(invalid(tensor.map().unwrap().get::<bool>(&[1, 1]).unwrap_err()));
    assert!(!tensor.map().unwrap().get::<bool>(&[1, 0]).unwrap());
    assert_eq!(tensor.index(0, 0).unwrap().to_vec::<bool>().unwrap(), [false; 2]);
    let mut map = tensor.map_mut().unwrap();
    assert!(invalid(map.as_mut_slice::<bool>().unwrap_err()));
    assert!(invalid(map.as_array_mut::<bool>().unwrap_err()));
    map.set(&[1, 1], true).unwrap();
    assert_eq!(map.as_mut_slice::<bool>().unwrap(), [false, false, false, true]);
}

fn misaligned_elements_are_never_referenced(memory: TensorMemory) {
    let bytes: Vec<u8> = (0..16).collect();
    let mut tensor = on(memory).create(&[4], DType::U32).unwrap();
    tensor.map_mut().unwrap().as_mut_bytes().unwrap().copy_from_slice(&bytes);
    let odd = tensor.narrow(0, 0, 3).unwrap().with_plane_offset(1).unwrap();
    drop(tensor);
    let words: Vec<u32> =
        bytes[1..13].chunks(4).map(|c| u32::from_ne_bytes(c.try_into().unwrap())).collect();
    assert_eq!(odd.to_vec::<u32>().unwrap(), words);
    let map = odd.map().unwrap();
    assert_eq!(map.get::<u32>(&[2]).unwrap(), words[2]);
    assert!(matches!(map.as_slice::<u32>(), Err(Error::Misaligned { align: 4, .. })));
    assert!(matches!(map.as_array::<u32>(), Err(Error::Misaligned { align: 4, .. })));
    assert_eq!(map.as_bytes().unwrap(), &bytes[1..13]);
    drop(map);
    let mut odd = odd;
    let mut map = odd.map_mut().unwrap();
    assert!(matches!(map.as_mut_slice::<u32>(), Err(Error::Misaligned { .. })));
    map.set(&[0], 7u32).unwrap();
    assert_eq!(map.as_map().get::<u32>(&[0]).unwrap(), 7);
}

// ---- views ----------------------------------------------------------------------------------------

fn views_show_the_same_bytes(memory: TensorMemory) {
    let tensor = counting(memory, &[3, 4]);
    let show = |view: cenote::Result<Tensor>| view.unwrap().to_vec::<u16>().unwrap();
    assert_eq!(show(tensor.narrow(0, 1, 2)), [4, 5, 6, 7, 8, 9, 10, 11]);
    assert_eq!(show(tensor.narrow(1, 3, 1)), [3, 7, 11]);
    assert_eq!(show(tensor.slice(1, 0..4, 3)), [0, 3, 4, 7, 8, 11]);
    assert_eq!(show(tensor.index(0, 2)), [8, 9, 10, 11]);
    assert_eq!(show(tensor.roi(1, 0, 2, 2)), [1, 2, 5, 6]);
    assert_eq!(show(Ok(tensor.transpose())), [0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11]);
    assert_eq!(show(tensor.permute(&[0, 1])), show(Ok(tensor.clone())));
    assert_eq!(show(tensor.flip(1)), [3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8]);
    assert_eq!(tensor.reshape(&[2, 2, 3]).unwrap().shape(), [2, 2, 3]);
    assert_eq!(show(tensor.reshape(&[12])), show(Ok(tensor.clone())));
    assert_eq!(tensor.unsqueeze(1).unwrap().shape(), [3, 1, 4]);
    assert_eq!(tensor.unsqueeze(1).unwrap().squeeze(1).unwrap().shape(), [3, 4]);
    let scalar = tensor.index(0, 1).unwrap().index(0, 2).unwrap();
    assert_eq!((scalar.shape(), show(Ok(scalar.clone()))), (&[][..], vec![6]));
    assert_eq!(scalar.map().unwrap().get::<u16>(&[]).unwrap(), 6);
    // A view is where its parent is.
    let row = tensor.index(0, 1).unwrap();
    let there = tensor.map().unwrap().as_bytes().unwrap()[8..].as_ptr();
    assert_eq!(row.map().unwrap().as_bytes().unwrap().as_ptr(), there);
}

fn views_out_of_range_are_errors(memory: TensorMemory) {
    let tensor = counting(memory, &[3, 4]);
    let error = |view: cenote::Result<Tensor>| view.unwrap_err();
    assert!(matches!(error(tensor.narrow(0, 2, 2)), Error::OutOfRange { len: 3, .. }));
    assert!(matches!(error(tensor.narrow(0, 1, usize::MAX)), Error::OutOfRange { .. }));
    assert!(matches!(error(tensor.narrow(2, 0, 1)), Error::NoSuchAxis { axis: 2, ndim: 2 }));
    assert!(matches!(error(tensor.slice(1, 0..5, 2)), Error::OutOfRange { .. }));
    assert!(matches!(error(tensor.slice(1, 1..1, 1)), Error::EmptyView { .. }));
    assert!(matches!(error(tensor.slice(1, 0..4, 0)), Error::EmptyView { step: 0, .. }));
    assert!(matches!(error(tensor.index(1, 4)), Error::OutOfRange { .. }));
    assert!(matches!(error(tensor.roi(2, 0, 3, 1)), Error::OutOfRange { axis: 1, .. }));
    assert!(matches!(error(tensor.roi(0, 0, 1, 4)), Error::OutOfRange { axis: 0, .. }));
    assert!(matches!(error(tensor.permute(&[0, 0])), Error::NotAPermutation { .. }));
    assert!(matches!(error(tensor.reshape(&[5, 2])), Error::ReshapeLen { .. }));
    assert!(matches!(error(tensor.transpose().reshape(&[12])), Error::ReshapeNeedsCopy { .. }));
    assert!(matches!(error(tensor.squeeze(0)), Error::SqueezeLen { len: 3, .. }));
    assert!(matches!(error(tensor.unsqueeze(3)), Error::NoSuchAxis { .. }));
    assert!(matches!(error(tensor.flip(9)), Error::NoSuchAxis { .. }));
}

fn slices_of_strided_views_are_refused(memory: TensorMemory) {
    let tensor = counting(memory, &[3, 4]);
    for view in [tensor.transpose(), tensor.index(1, 0).unwrap(), tensor.flip(0).unwrap()] {
        let map = view.map().unwrap();
        assert!(matches!(map.as_slice::<u16>(), Err(Error::NotContiguous { .. })));
        assert!(matches!(map.as_bytes(), Err(Error::NotContiguous { .. })));
    }
    // An axis of length 1 does not count.
    assert!(tensor.narrow(0, 1, 1).unwrap().map().unwrap().as_slice::<u16>().is_ok());
}

fn writes_go_through_strided_handles(memory: TensorMemory) {
    let mut right = counting(memory, &[3, 4]).narrow(1, 2, 2).unwrap();
    let mut map = right.map_mut().unwrap();
    assert!(matches!(map.as_mut_slice::<u16>(), Err(Error::NotContiguous { .. })));
    assert!(matches!(map.as_mut_bytes(), Err(Error::NotContiguous { .. })));
    map.for_each_run(|run| run.fill(0xff));
    map.set(&[1, 1], 7u16).unwrap();
    drop(map);
    assert_eq!(right.to_vec::<u16>().unwrap(), [0xffff, 0xffff, 0xffff, 7, 0xffff, 0xffff]);
    let left = right.with_plane_offset(0).unwrap();
    assert_eq!(left.to_vec::<u16>().unwrap(), [0, 1, 4, 5, 8, 9], "only the view was written");
}

// ---- sharing --------------------------------------------------------------------------------------

fn others_alive_forbid_writing(memory: TensorMemory) {
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
    // The last handle is writable whichever it is.
    let mut view = tensor.transpose();
    drop(tensor);
    view.map_mut().unwrap().set(&[0, 0], 9u16).unwrap();
    assert_eq!(view.map().unwrap().get::<u16>(&[0, 0]).unwrap(), 9);
}

#[allow(unsafe_code, reason = "what is tested")]
fn what_is_lent_can_be_written_by_pointer_and_not_be_shared(memory: TensorMemory) {
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
    // SAFETY: the first element of the row, which nobody looks at.
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
    let _only = counting_copies();
    let before = count(CopyReason::MakeMut);
    let mut tensor = counting(memory, &[3, 4]);
    let id = tensor.buffer_identity().id();
    tensor.make_mut().unwrap().set(&[0, 0], 5u16).unwrap();
    assert_eq!((tensor.buffer_identity().id(), count(CopyReason::MakeMut)), (id, before));

    let other = tensor.clone();
    tensor.make_mut().unwrap();
    assert_ne!(tensor.buffer_identity().id(), id);
    assert_eq!(count(CopyReason::MakeMut), (before.0 + 1, before.1 + 24));
    drop(other);
    tensor.make_mut().unwrap();
    assert_eq!(count(CopyReason::MakeMut), (before.0 + 1, before.1 + 24));
}

/// Tests that count copies do so one at a time. Only they may make copies that are counted.
fn counting_copies() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    // A test that failed has no say in the others.
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn make_mut_leaves_the_others_alone(memory: TensorMemory) {
    let _only = counting_copies();
    let before = counting(memory, &[3, 4]);
    let mut after = before.transpose();
    after.make_mut().unwrap().set(&[3, 0], 100u16).unwrap();
    assert_eq!(after.memory(), memory);
    assert_eq!(after.shape(), [4, 3]);
    assert_eq!(after.to_vec::<u16>().unwrap(), [0, 4, 8, 1, 5, 9, 2, 6, 10, 100, 7, 11]);
    assert!(before.to_vec::<u16>().unwrap().into_iter().eq(0..12));
}

// ---- identity -------------------------------------------------------------------------------------

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
        let id = on(memory).create(&[1], DType::U8).unwrap().buffer_identity().id();
        assert!(id > last);
        last = id;
    }
    assert!(Tensor::from_vec(vec![1u8], &[1]).unwrap().buffer_identity().id() > last);
}

// ---- images ---------------------------------------------------------------------------------------

const SIZES: [(usize, usize); 6] = [(1, 1), (2, 2), (5, 3), (6, 5), (7, 4), (16, 9)];

/// A rectangle: x, y, width, height.
type Rect = (usize, usize, usize, usize);

/// An image with padded rows, and all bytes of its buffer. The padding is painted too.
fn padded(
    memory: TensorMemory,
    format: PixelFormat,
    (width, height): (usize, usize),
    padding: usize,
) -> (Tensor, Vec<u8>) {
    let wide = (width + padding).next_multiple_of(2);
    let shape = format.shape(wide, height).unwrap();
    let len = shape.iter().product::<usize>();
    let value = |i: usize| u16::try_from(i % 251 + 1).unwrap();
    let (tensor, bytes) = match format.dtype() {
        DType::U8 => {
            let data: Vec<u8> = (0..len).map(|i| value(i).to_ne_bytes()[0]).collect();
            (on(memory).create_from_slice(&data, &shape), data)
        }
        DType::U16 => {
            let data: Vec<u16> = (0..len).map(|i| value(i) * 257 - 1).collect();
            let bytes = data.iter().flat_map(|v| v.to_ne_bytes()).collect();
            (on(memory).create_from_slice(&data, &shape), bytes)
        }
        DType::F32 => {
            let data: Vec<f32> = (0..len).map(|i| f32::from(value(i)) / 3.0).collect();
            let bytes = data.iter().flat_map(|v| v.to_ne_bytes()).collect();
            (on(memory).create_from_slice(&data, &shape), bytes)
        }
        other => panic!("{format} has {other}"),
    };
    let columns = if is_planar(format) { 2 } else { 1 };
    let image = tensor.unwrap().narrow(columns, 0, width).unwrap().with_format(format).unwrap();
    (image, bytes)
}

fn is_planar(format: PixelFormat) -> bool {
    matches!(format, PixelFormat::PlanarRgb | PixelFormat::PlanarRgba)
}

/// The samples of a rectangle of an image, plane by plane, column by column, by plain arithmetic.
fn naive(
    format: PixelFormat,
    bytes: &[u8],
    size: (usize, usize),
    stride: usize,
    (x, y, width, height): Rect,
) -> Vec<Vec<u8>> {
    let whole = format.planes(size.0, size.1, stride).unwrap();
    let part = format.planes(width, height, format.min_row_stride(width).unwrap()).unwrap();
    let plane = |(index, (whole, part)): (usize, (cenote::Plane, cenote::Plane))| {
        let (h, v) = if index == 0 { (1, 1) } else { format.subsampling() };
        let sample = part.channels * format.dtype().size();
        let mut samples = Vec::new();
        for column in x / h..x / h + part.width {
            for row in y / v..y / v + part.rows {
                let at = whole.offset + row * whole.stride + column * sample;
                samples.extend_from_slice(&bytes[at..at + sample]);
            }
        }
        samples
    };
    whole.into_iter().zip(part).enumerate().map(plane).collect()
}

/// The same, from the tensor, of which every sample is looked at: also that half of the last pair of
/// an odd row of YUYV which the shape does not count.
fn samples(image: &Tensor) -> Vec<Vec<u8>> {
    let format = image.format().unwrap();
    let (width, height) = image.image_size().unwrap();
    let planes = format.planes(width, height, format.min_row_stride(width).unwrap()).unwrap();
    let plane = |(index, plane): (usize, cenote::Plane)| {
        let view = image.plane(index).unwrap();
        let start = view.layout().offset();
        let sample = plane.channels * format.dtype().size();
        let first = view.narrow(1, 0, 1).unwrap();
        let column = |i: usize| {
            let column = first.clone().with_plane_offset(start + i * sample).unwrap();
            column.map().unwrap().runs().collect::<Vec<_>>().concat()
        };
        (0..plane.width).flat_map(column).collect()
    };
    planes.into_iter().enumerate().map(plane).collect()
}

/// Rectangles that lie on the format's pixel groups, odd ones among them.
fn rects(format: PixelFormat, (width, height): (usize, usize)) -> Vec<Rect> {
    let (w, h) = format.pixel_group();
    let mut rects = vec![(0, 0, width, height), (0, 0, 1, 1)];
    let (x, y) = (width / 2 / w * w, height / 2 / h * h);
    rects.push((x, y, width - x, height - y));
    rects.push((x, y, (width - x).div_ceil(2), (height - y).div_ceil(2)));
    rects.push((0, y, width, 1));
    rects
}

fn images_have_the_shape_of_their_format(memory: TensorMemory) {
    for format in PixelFormat::all() {
        for (width, height) in SIZES {
            let image = on(memory).image(width, height, format).unwrap();
            assert_eq!(*image.shape(), *format.shape(width, height).unwrap());
            assert_eq!((image.dtype(), image.format()), (format.dtype(), Some(format)));
            assert_eq!(image.image_size(), Some((width, height)));
            let smallest = format.min_row_stride(width).unwrap();
            let (alignment, noted) = match memory {
                TensorMemory::Dma => (64, Some(64)),
                _ => (1, None),
            };
            let stride = smallest.next_multiple_of(alignment);
            assert_eq!(image.effective_row_stride(), Some(stride));
            assert_eq!(image.selection().row_alignment(), noted);
            assert_eq!(image.plane_offset(), None);
            assert!(samples(&image).concat().iter().all(|&byte| byte == 0));

            let shape = format.shape(width, height).unwrap();
            let bare = on(memory).create(&shape, format.dtype()).unwrap();
            // Chroma of odd widths needs padding that a bare tensor does not have.
            if width.is_multiple_of(2) {
                assert_eq!(bare.with_format(format).unwrap().row_stride(), None);
            } else {
                let subsampled = format.subsampling().0 > 1;
                assert_eq!(bare.with_format(format).is_err(), subsampled, "{format} {width}");
            }
        }
    }
}

fn formats_refuse_what_they_do_not_fit(memory: TensorMemory) {
    use PixelFormat::{Grey, I420, Mono16, Nv12, PlanarRgb, Rgb8, Rgba8};
    let refused = |shape: &[usize], dtype, format| {
        let mut tensor = on(memory).create(shape, dtype).unwrap();
        let error = tensor.set_format(format).unwrap_err();
        assert_eq!(tensor.format(), None, "a refused format must not stick");
        error
    };
    assert!(matches!(refused(&[4, 6, 3], DType::U8, Rgba8), Error::FormatShape { .. }));
    assert!(matches!(refused(&[4, 6], DType::U8, Rgb8), Error::FormatShape { .. }));
    assert!(matches!(refused(&[4, 6, 3], DType::U8, PlanarRgb), Error::FormatShape { .. }));
    assert!(matches!(refused(&[7, 6], DType::U8, Nv12), Error::FormatShape { .. }));
    assert!(matches!(refused(&[7, 6], DType::U8, I420), Error::FormatShape { .. }));
    assert!(matches!(refused(&[4], DType::U8, Grey), Error::FormatShape { .. }));
    assert!(matches!(refused(&[], DType::U8, Grey), Error::FormatShape { .. }));
    assert!(matches!(refused(&[4, 6], DType::U8, Mono16), Error::FormatDType { .. }));
    assert!(matches!(refused(&[4, 6], DType::I8, Grey), Error::FormatDType { .. }));
    assert!(matches!(refused(&[3, 5], DType::U8, Nv12), Error::BadRowStride { min: 6, .. }));

    let mut grey = on(memory).image(6, 4, Grey).unwrap();
    grey.set_format(PixelFormat::BayerRggb8).unwrap();
    assert!(grey.set_format(Rgb8).is_err());
    assert_eq!(grey.format(), Some(PixelFormat::BayerRggb8));
}

fn a_format_needs_rows_of_pixels(memory: TensorMemory) {
    let tensor = on(memory).create(&[8, 8, 3], DType::U8).unwrap();
    let refused = |view: cenote::Result<Tensor>| {
        let error = view.unwrap().with_format(PixelFormat::Rgb8).unwrap_err();
        matches!(error, Error::FormatLayout { .. } | Error::BadRowStride { .. })
    };
    assert!(refused(tensor.flip(0)));
    assert!(refused(tensor.flip(1)));
    assert!(refused(tensor.flip(2)));
    assert!(refused(tensor.permute(&[1, 0, 2])));
    assert!(refused(tensor.slice(1, 0..8, 2)));
    // Every other row is only another stride.
    let half = tensor.slice(0, 0..8, 2).unwrap().with_format(PixelFormat::Rgb8).unwrap();
    assert_eq!(half.row_stride(), Some(48));
    // A view has no format; only a region of interest keeps it.
    let image = tensor.with_format(PixelFormat::Rgb8).unwrap();
    assert_eq!(image.clone().format(), Some(PixelFormat::Rgb8));
    assert_eq!(image.narrow(0, 0, 2).unwrap().format(), None);
}

fn row_stride_needs_a_format_and_room(memory: TensorMemory) {
    let mut bare = on(memory).create(&[4 * 64], DType::U8).unwrap();
    assert!(matches!(bare.set_row_stride(64), Err(Error::NoFormat { .. })));
    assert_eq!((bare.row_stride(), bare.effective_row_stride()), (None, None));

    let rows = bare.reshape(&[4, 64]).unwrap();
    drop(bare);
    let mut grey = rows.narrow(1, 0, 10).unwrap().with_format(PixelFormat::Grey).unwrap();
    drop(rows);
    assert_eq!((grey.row_stride(), grey.effective_row_stride()), (Some(64), Some(64)));
    assert!(matches!(grey.set_row_stride(9), Err(Error::BadRowStride { min: 10, .. })));
    assert!(matches!(grey.set_row_stride(0), Err(Error::BadRowStride { .. })));
    assert!(matches!(grey.set_row_stride(83), Err(Error::OutOfBuffer { .. })));
    assert!(grey.set_row_stride(usize::MAX).is_err());
    assert_eq!(grey.row_stride(), Some(64), "a refused stride must not stick");
    grey.set_row_stride(82).unwrap();
    assert_eq!(grey.strides(), [82, 1]);
    let grey = grey.with_row_stride(10).unwrap();
    assert_eq!((grey.row_stride(), grey.effective_row_stride()), (None, Some(10)));

    for format in PixelFormat::all() {
        let mut image = on(memory).row_alignment(256).image(7, 5, format).unwrap();
        let min = format.min_row_stride(7).unwrap();
        assert!(image.set_row_stride(min - 1).is_err());
        image.set_row_stride(min).unwrap();
        assert_eq!(image.effective_row_stride(), Some(min));
        image.set_row_stride(256).unwrap();
        assert!(image.set_row_stride(1 << 20).is_err(), "{format}: no room for that");
        assert_eq!(image.effective_row_stride(), Some(256));
    }
}

fn rows_are_aligned_as_asked(memory: TensorMemory) {
    for format in PixelFormat::all() {
        for (width, height) in SIZES {
            let image = on(memory).row_alignment(64).image(width, height, format).unwrap();
            let stride = image.effective_row_stride().unwrap();
            assert!(stride.is_multiple_of(64), "{format} {stride}");
            let first = image.plane(0).unwrap();
            assert!(first.layout().offset().is_multiple_of(64));
        }
    }
}

fn plane_offset_moves_inside_the_buffer(memory: TensorMemory) {
    let mut tensor = counting(memory, &[4, 4]).narrow(0, 0, 2).unwrap();
    assert_eq!(tensor.plane_offset(), None);
    tensor.set_plane_offset(16).unwrap();
    assert_eq!(tensor.plane_offset(), Some(16));
    assert!(tensor.to_vec::<u16>().unwrap().into_iter().eq(8..16));
    assert!(matches!(tensor.set_plane_offset(17), Err(Error::OutOfBuffer { .. })));
    assert!(tensor.set_plane_offset(usize::MAX).is_err());
    assert_eq!(tensor.plane_offset(), Some(16), "a refused offset must not stick");
    let back = tensor.with_plane_offset(0).unwrap();
    assert!(back.to_vec::<u16>().unwrap().into_iter().eq(0..8));

    // All planes of an image must have room, not only the first.
    let tensor = on(memory).create(&[6 * 4 + 10], DType::U8).unwrap();
    let image = tensor.narrow(0, 0, 24).unwrap().reshape(&[6, 4]).unwrap();
    let image = image.with_format(PixelFormat::Nv12).unwrap();
    assert_eq!(
        image.clone().with_plane_offset(10).unwrap().plane(1).unwrap().plane_offset(),
        Some(26)
    );
    assert!(image.with_plane_offset(11).is_err());
}

fn planes_can_be_written_one_by_one(memory: TensorMemory) {
    for format in PixelFormat::all() {
        let options = on(memory).row_alignment(64);
        let mut image = options.image(7, 5, format).unwrap();
        for plane in 0..format.plane_count() {
            let value = u8::try_from(plane + 1).unwrap();
            image.map_mut().unwrap().plane_mut(plane).unwrap().for_each_run(|row| row.fill(value));
        }
        for plane in 0..format.plane_count() {
            let value = u8::try_from(plane + 1).unwrap();
            let samples = image.plane(plane).unwrap();
            let map = samples.map().unwrap();
            assert!(map.runs().flatten().all(|&byte| byte == value), "{format} plane {plane}");
        }
        let beyond = image.map_mut().unwrap().plane_mut(format.plane_count()).map(drop);
        assert!(matches!(beyond, Err(Error::NoSuchPlane { .. })), "{format}");
    }
}

fn the_format_of_a_region_can_change(memory: TensorMemory) {
    let frame = on(memory).image(64, 64, PixelFormat::Nv12).unwrap();
    let mut region = frame.roi(16, 16, 32, 32).unwrap();
    let chroma = region.plane(1).unwrap().plane_offset();
    region.set_format(PixelFormat::Nv21).unwrap();
    assert_eq!(region.image_size(), Some((32, 32)));
    assert_eq!(region.plane(1).unwrap().plane_offset(), chroma);
    assert!(region.set_format(PixelFormat::I420).is_err());
    region.set_format(PixelFormat::Grey).unwrap();
    assert_eq!((region.image_size(), region.plane_count()), (Some((32, 32)), 1));
}

fn make_mut_keeps_the_row_stride(memory: TensorMemory) {
    let options = on(memory).row_alignment(64);
    let mut image = options.image(100, 10, PixelFormat::Rgb8).unwrap();
    let before = image.clone();
    image.make_mut().unwrap();
    assert_eq!((image.row_stride(), before.row_stride()), (Some(320), Some(320)));
    assert_eq!(image.to_contiguous().unwrap().row_stride(), None);
}

fn planes_cover_the_image(memory: TensorMemory) {
    for format in PixelFormat::all() {
        for size in SIZES {
            let (image, bytes) = padded(memory, format, size, 3);
            let stride = image.effective_row_stride().unwrap();
            assert_eq!(image.plane_count(), format.plane_count());
            let planes = format.planes(size.0, size.1, stride).unwrap();
            for (index, plane) in planes.iter().enumerate() {
                let view = image.plane(index).unwrap();
                assert_eq!(view.format(), None);
                assert_eq!(view.layout().offset(), plane.offset);
                assert_eq!(view.shape()[0], plane.rows);
            }
            let whole = (0, 0, size.0, size.1);
            assert_eq!(
                samples(&image),
                naive(format, &bytes, size, stride, whole),
                "{format} {size:?}"
            );
            let missing = image.plane(format.plane_count()).unwrap_err();
            assert!(matches!(missing, Error::NoSuchPlane { .. }));
        }
    }
    let bare = counting(memory, &[4]);
    assert_eq!(bare.plane(0).unwrap().to_vec::<u16>().unwrap(), [0, 1, 2, 3]);
    assert!(matches!(bare.plane(1), Err(Error::NoSuchPlane { planes: 1, index: 1, .. })));
}

fn roi_keeps_the_format(memory: TensorMemory) {
    for format in PixelFormat::all() {
        for size in SIZES {
            let (image, bytes) = padded(memory, format, size, 2);
            let stride = image.effective_row_stride().unwrap();
            for rect in rects(format, size) {
                let (x, y, width, height) = rect;
                let roi = image.roi(x, y, width, height).unwrap();
                let about = format!("{format} {size:?} {rect:?}");
                assert_eq!((roi.format(), roi.image_size()), (Some(format), Some((width, height))));
                assert_eq!(roi.effective_row_stride(), Some(stride), "{about}");
                assert_eq!(samples(&roi), naive(format, &bytes, size, stride, rect), "{about}");
                assert_eq!(roi.buffer_identity().id(), image.buffer_identity().id());
            }
            let (width, height) = size;
            assert!(image.roi(0, 0, width + 2, height).is_err());
            assert!(image.roi(0, 0, width, height + 2).is_err());
            assert!(image.roi(usize::MAX - 1, 0, 2, 1).is_err());
            assert!(matches!(image.roi(0, 0, 0, 1), Err(Error::EmptyView { .. })));
            if format.pixel_group().0 > 1 {
                assert!(matches!(image.roi(1, 0, 1, 1), Err(Error::UnalignedRoi { x: 1, .. })));
            }
        }
    }
}

fn roi_of_roi_is_roi(memory: TensorMemory) {
    for format in PixelFormat::all() {
        let size = (16, 12);
        let (image, bytes) = padded(memory, format, size, 0);
        let inner = image.roi(4, 2, 11, 9).unwrap().roi(2, 4, 5, 3).unwrap();
        let stride = image.effective_row_stride().unwrap();
        assert_eq!(samples(&inner), naive(format, &bytes, size, stride, (6, 6, 5, 3)), "{format}");
        assert_eq!(inner.clone().image_size(), Some((5, 3)));
        if format.plane_count() > 1 {
            let mut inner = inner;
            assert!(matches!(inner.set_row_stride(64), Err(Error::FarPlanes { .. })));
            assert!(matches!(inner.set_plane_offset(0), Err(Error::FarPlanes { .. })));
        }
    }
}

fn contiguous_images_equal_a_naive_copy(memory: TensorMemory) {
    let _only = counting_copies();
    for format in PixelFormat::all() {
        for size in SIZES {
            let (image, bytes) = padded(memory, format, size, 3);
            let stride = image.effective_row_stride().unwrap();
            for rect in rects(format, size) {
                let (x, y, width, height) = rect;
                let copy = image.roi(x, y, width, height).unwrap().to_contiguous().unwrap();
                let about = format!("{format} {size:?} {rect:?}");
                assert_eq!(
                    (copy.format(), copy.image_size()),
                    (Some(format), Some((width, height)))
                );
                assert_eq!(copy.effective_row_stride(), format.min_row_stride(width).ok());
                assert_eq!(copy.memory(), memory);
                assert_ne!(copy.buffer_identity().id(), image.buffer_identity().id());
                assert_eq!(samples(&copy), naive(format, &bytes, size, stride, rect), "{about}");
            }
        }
    }
}

fn contiguous_copies_keep_the_shape(memory: TensorMemory) {
    let _only = counting_copies();
    let grey = on(memory).create(&[3, 5, 1], DType::U8).unwrap();
    let mut grey = grey.with_format(PixelFormat::Grey).unwrap();
    assert_eq!(grey.to_contiguous().unwrap().shape(), [3, 5, 1]);
    let shared = grey.clone();
    grey.make_mut().unwrap().set(&[2, 4, 0], 1u8).unwrap();
    assert_eq!(
        (grey.format(), shared.format()),
        (Some(PixelFormat::Grey), Some(PixelFormat::Grey))
    );
    let strided = counting(memory, &[3, 4]).transpose();
    let copy = strided.to_contiguous().unwrap();
    assert_eq!(copy.strides(), [6, 2]);
    assert_eq!(copy.to_vec::<u16>().unwrap(), strided.to_vec::<u16>().unwrap());
}

fn copies_are_counted_byte_for_byte(memory: TensorMemory) {
    let _only = counting_copies();
    let image = on(memory).image(8, 4, PixelFormat::Nv12).unwrap();
    let before = count(CopyReason::ToContiguous);
    image.to_contiguous().unwrap();
    assert_eq!(count(CopyReason::ToContiguous), (before.0 + 1, before.1 + 48));
    image.roi(0, 0, 4, 4).unwrap().to_contiguous().unwrap();
    assert_eq!(count(CopyReason::ToContiguous), (before.0 + 2, before.1 + 48 + 24));
    let before = count(CopyReason::MakeMut);
    image.roi(2, 2, 2, 2).unwrap().make_mut().unwrap();
    assert_eq!(count(CopyReason::MakeMut), (before.0 + 1, before.1 + 6));
}

fn setting_a_format_again_changes_nothing(memory: TensorMemory) {
    for format in PixelFormat::all() {
        let (image, bytes) = padded(memory, format, (12, 12), 0);
        let stride = image.effective_row_stride().unwrap();
        let roi = image.roi(0, 0, 6, 6).unwrap().with_format(format).unwrap();
        assert_eq!(roi.image_size(), Some((6, 6)), "{format}");
        assert_eq!(samples(&roi), naive(format, &bytes, (12, 12), stride, (0, 0, 6, 6)));
    }
}

fn one_row_has_no_stride_to_get_wrong(memory: TensorMemory) {
    // The stride of an axis of length 1 may be anything, as in numpy.
    let row = on(memory).create(&[8, 1], DType::U8).unwrap().transpose();
    assert_eq!((row.shape(), row.strides()), (&[1, 8][..], &[1, 1][..]));
    let row = row.with_format(PixelFormat::Grey).unwrap();
    assert_eq!(row.image_size(), Some((8, 1)));
    assert_eq!((row.row_stride(), row.effective_row_stride()), (None, Some(8)));
}

// ---- arrays ---------------------------------------------------------------------------------------

fn arrays_out(memory: TensorMemory) {
    let tensor = counting(memory, &[3, 4, 2]);
    let views = [
        tensor.clone(),
        tensor.transpose(),
        tensor.permute(&[2, 0, 1]).unwrap(),
        tensor.flip(0).unwrap(),
        tensor.flip(1).unwrap().flip(2).unwrap(),
        tensor.slice(1, 1..4, 2).unwrap(),
        tensor.index(1, 3).unwrap().flip(0).unwrap().transpose(),
        tensor.index(0, 2).unwrap().index(0, 1).unwrap().index(0, 0).unwrap(),
    ];
    for view in views {
        let map = view.map().unwrap();
        let array = map.as_array::<u16>().unwrap();
        assert_eq!(array.shape(), view.shape());
        for index in indices(view.shape()) {
            assert_eq!(array[&*index], map.get::<u16>(&index).unwrap(), "{view:?} {index:?}");
        }
        let elements = view.to_vec::<u16>().unwrap();
        assert!(view.to_array::<u16>().unwrap().iter().eq(&elements));
        let back = Tensor::from_array(view.to_array::<u16>().unwrap()).unwrap();
        assert_eq!((back.shape(), back.to_vec::<u16>().unwrap()), (view.shape(), elements.clone()));
        let copy = Tensor::from_array_view(&array).unwrap();
        assert_eq!((copy.shape(), copy.to_vec::<u16>().unwrap()), (view.shape(), elements));
    }
}

fn arrays_of_one_long_axes(memory: TensorMemory) {
    // Such an axis has a stride that nobody uses: here one that is no multiple of an element.
    let mut tensor = on(memory).create(&[3, 1], DType::U16).unwrap();
    tensor.map_mut().unwrap().as_mut_slice::<u16>().unwrap().copy_from_slice(&[1, 2, 3]);
    let layout = Layout::strided(&[1, 3, 1], &[-5, 2, isize::MAX], 0, 2).unwrap();
    let strange = lend(vec![1u16, 2, 3], layout);
    assert_eq!(strange.to_vec::<u16>().unwrap(), [1, 2, 3]);
    let map = strange.map().unwrap();
    assert!(map.as_array::<u16>().unwrap().iter().eq(&[1, 2, 3]));
    let mut map = tensor.map_mut().unwrap();
    assert!(map.as_array_mut::<u16>().unwrap().iter().eq(&[1, 2, 3]));
}

/// A tensor of any layout over elements that live as long as it.
fn lend<T: Element>(elements: Vec<T>, layout: Layout) -> Tensor {
    let len = size_of_val(&*elements);
    let start = NonNull::new(elements.as_ptr().cast_mut()).unwrap().cast();
    // SAFETY: the vector's memory stays where it is until `release` is called, and nobody writes it.
    #[allow(unsafe_code, reason = "only this way can a layout be anything")]
    unsafe { Tensor::from_raw_parts(start, len, layout, T::DTYPE, move || drop(elements)) }.unwrap()
}

fn arrays_mutable(memory: TensorMemory) {
    let write = |take: fn(Tensor) -> Tensor| {
        let mut view = take(counting(memory, &[3, 4]));
        let mut map = view.map_mut().unwrap();
        let mut array = map.as_array_mut::<u16>().unwrap();
        for (i, element) in array.iter_mut().enumerate() {
            *element = 100 + u16::try_from(i).unwrap();
        }
        drop(map);
        let written = 100..100 + u16::try_from(view.len()).unwrap();
        assert!(view.to_vec::<u16>().unwrap().into_iter().eq(written));
        let mut first = view;
        while first.ndim() > 0 {
            first = first.index(0, 0).unwrap();
        }
        let at =
            |i: usize| first.clone().with_plane_offset(2 * i).unwrap().to_vec::<u16>().unwrap();
        (0..12).flat_map(at).collect::<Vec<u16>>()
    };
    assert!(write(|whole| whole).into_iter().eq(100..112));
    assert_eq!(
        write(|whole| whole.flip(0).unwrap().narrow(1, 0, 1).unwrap()),
        [102, 1, 2, 3, 101, 5, 6, 7, 100, 9, 10, 11]
    );
    assert_eq!(
        write(|whole| whole.transpose().slice(0, 0..4, 3).unwrap()),
        [100, 1, 2, 103, 101, 5, 6, 104, 102, 9, 10, 105]
    );
    assert_eq!(
        write(|whole| whole.index(0, 1).unwrap().flip(0).unwrap()),
        [0, 1, 2, 3, 103, 102, 101, 100, 8, 9, 10, 11]
    );
}

// ---- selection ------------------------------------------------------------------------------------

fn selection_tells_the_story(memory: TensorMemory) {
    let asked = on(memory).create(&[4], DType::U8).unwrap();
    let heap = asked.selection().dma_heap().map(|heap| format!(" from {heap}"));
    assert_eq!(heap.is_some(), memory == TensorMemory::Dma);
    let from = heap.unwrap_or_default();
    assert_eq!(asked.selection().to_string(), format!("{memory} (allocated{from})"));
    assert!(asked.selection().passed_over().is_empty());
    assert_eq!(asked.index(0, 1).unwrap().selection().chosen(), memory);

    let any = Tensor::new(&[4], DType::U8).unwrap();
    let selection = any.selection();
    let tried = TensorMemory::PREFERENCE.into_iter().take_while(|&kind| kind != any.memory());
    assert!(selection.passed_over().iter().map(|passed| passed.memory).eq(tried));
    for passed in selection.passed_over() {
        let words = format!("not {}: {}", passed.memory, passed.why);
        assert!(selection.to_string().contains(&words), "{selection}");
    }
    for kind in TensorMemory::ALL {
        match (kind.availability(), Tensor::options().memory(kind).create(&[4], DType::U8)) {
            (Ok(()), created) => assert_eq!(created.unwrap().memory(), kind),
            (Err(why), created) => {
                let error = created.unwrap_err();
                assert!(
                    matches!(error, Error::Unavailable { memory, .. } if memory == kind.name())
                );
                assert!(error.to_string().contains(&why.to_string()), "{error}");
            }
        }
    }
    // Whatever there is, a context is never started by itself.
    let pbo = Tensor::options().memory(TensorMemory::Pbo).create(&[4], DType::U8);
    assert!(matches!(pbo, Err(Error::Unavailable { why: Unavailable::NeedsContext, .. })));
}

// ---- against the model ----------------------------------------------------------------------------

fn chains_of_views_agree_with_the_model(memory: TensorMemory) {
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(config, rng);
    let shapes = many(1_usize..7, 0..5)
        .prop_filter("too large", |shape| shape.iter().product::<usize>() <= 240);
    let chains = (shapes, many(view(), 0..12));
    let result = runner.run(&chains, |(shape, views)| {
        let mut tensor = counting(memory, &shape);
        let starts = (0..tensor.len()).map(|i| 2 * i).collect();
        let mut model = Model { shape, starts, item_size: 2 };
        for view in views {
            let view = view.resolve(&model.shape);
            match (view.of_tensor(&tensor), view.of_model(&model)) {
                (Ok(next), Some(expected)) => (tensor, model) = (next, expected),
                (Err(Error::ReshapeNeedsCopy { .. }), Some(_)) | (Err(_), None) => {}
                (got, expected) => panic!("{view:?} of {tensor:?}: {got:?}, not {expected:?}"),
            }
            assert_reads_like(&tensor, &model);
        }
        Ok(())
    });
    result.unwrap();
}

fn assert_reads_like(tensor: &Tensor, model: &Model) {
    assert_eq!(tensor.shape(), model.shape);
    let value = |&start: &usize| u16::try_from(start / 2).unwrap();
    let expected: Vec<u16> = model.starts.iter().map(value).collect();
    let bytes: Vec<u8> = expected.iter().flat_map(|value| value.to_ne_bytes()).collect();
    assert_eq!(tensor.to_vec::<u16>().unwrap(), expected);
    let map = tensor.map().unwrap();
    for index in indices(&model.shape) {
        assert_eq!(map.get::<u16>(&index).unwrap(), value(&model.at(&index)));
    }
    assert!(map.as_array::<u16>().unwrap().iter().eq(&expected));
    assert_eq!(map.runs().collect::<Vec<_>>().concat(), bytes);
    match map.as_slice::<u16>() {
        Ok(slice) => assert_eq!(slice, expected),
        Err(_) => assert!(!model.is_packed_by(usize::MAX)),
    }
}

// ---- memory that was there before -----------------------------------------------------------------

macro_rules! plain {
    ($($name:ident)*) => { &[$((stringify!($name), $name as fn())),*] };
}

const ADOPTED: &[(&str, fn())] = plain![
    vectors_are_adopted_where_they_stand
    owners_are_kept_and_dropped_once
    foreign_memory_is_released_when_it_does_not_fit
    foreign_memory_that_may_change_is_not_taken_at_its_word
    arrays_are_adopted_or_copied_in_order
];

fn vectors_are_adopted_where_they_stand() {
    let data: Vec<u32> = (0..6).collect();
    let place = data.as_ptr();
    let mut tensor = Tensor::from_vec(data, &[2, 3]).unwrap();
    assert_eq!(tensor.map().unwrap().as_slice::<u32>().unwrap().as_ptr(), place);
    assert_eq!(tensor.memory(), TensorMemory::Mem);
    assert_eq!(tensor.selection().to_string(), "mem (adopted from its owner)");
    tensor.map_mut().unwrap().set(&[0, 0], 9u32).unwrap();
    assert_eq!(tensor.to_vec::<u32>().unwrap(), [9, 1, 2, 3, 4, 5]);
    // Room that the vector has beyond its elements is not the tensor's.
    let mut roomy = Vec::with_capacity(100);
    roomy.extend_from_slice(&[1u8, 2]);
    let tensor = Tensor::from_vec(roomy, &[2]).unwrap();
    assert!(tensor.narrow(0, 0, 2).unwrap().with_plane_offset(1).is_err());
}

struct Loud(Vec<u8>, Arc<AtomicUsize>);

impl AsRef<[u8]> for Loud {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Loud {
    fn drop(&mut self) {
        self.1.fetch_add(1, Ordering::Relaxed);
    }
}

fn owners_are_kept_and_dropped_once() {
    let drops = Arc::new(AtomicUsize::new(0));
    let mut tensor =
        Tensor::from_owner(Loud(vec![1, 2, 3, 4], drops.clone()), &[2, 2], DType::U8).unwrap();
    assert_eq!(why(&mut tensor), NotWritable::Foreign);
    let view = tensor.index(0, 1).unwrap();
    drop(tensor);
    assert_eq!((view.to_vec::<u8>().unwrap(), drops.load(Ordering::Relaxed)), (vec![3, 4], 0));
    let mut copy = view;
    let _only = counting_copies();
    copy.make_mut().unwrap().set(&[0], 9u8).unwrap();
    assert_eq!(drops.load(Ordering::Relaxed), 1);
    let small = Tensor::from_owner(Loud(vec![0; 3], drops.clone()), &[4], DType::U8);
    assert!(matches!(small, Err(Error::OutOfBuffer { end: 4, len: 3, .. })));
    assert_eq!(drops.load(Ordering::Relaxed), 2);
}

fn foreign_memory_is_released_when_it_does_not_fit() {
    static BYTES: [u8; 4] = [1, 2, 3, 4];
    let lend = |layout: Layout, dtype| {
        let released = Arc::new(AtomicBool::new(false));
        let flag = released.clone();
        let release = move || flag.store(true, Ordering::Relaxed);
        let start = NonNull::from(&BYTES).cast();
        // SAFETY: static bytes live forever and never change.
        #[allow(unsafe_code, reason = "what is tested")]
        let tensor = unsafe { Tensor::from_raw_parts(start, 4, layout, dtype, release) };
        (tensor, released)
    };
    let (tensor, released) = lend(Layout::contiguous(&[2, 2], 1).unwrap(), DType::U8);
    let tensor = tensor.unwrap();
    let clone = tensor.clone();
    drop(tensor);
    assert_eq!(clone.to_vec::<u8>().unwrap(), BYTES);
    assert!(!released.load(Ordering::Relaxed));
    drop(clone);
    assert!(released.load(Ordering::Relaxed));

    let (tensor, released) = lend(Layout::contiguous(&[5], 1).unwrap(), DType::U8);
    assert!(matches!(tensor, Err(Error::OutOfBuffer { .. })));
    assert!(released.load(Ordering::Relaxed));
    let (tensor, released) = lend(Layout::contiguous(&[2], 1).unwrap(), DType::U16);
    assert!(matches!(tensor, Err(Error::ItemSize { layout: 1, size: 2, .. })));
    assert!(released.load(Ordering::Relaxed));
}

fn foreign_memory_that_may_change_is_not_taken_at_its_word() {
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
    let place = array.as_ptr();
    let tensor = Tensor::from_array(array).unwrap();
    assert_eq!(tensor.map().unwrap().as_slice::<u64>().unwrap().as_ptr(), place);
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
