//! Creating tensors: memory, alignment, names, wishes, shapes.

use cenote::{DType, Error, PixelFormat, TensorMemory, Wish};

use super::{Case, cases, options_for};

pub(super) const CASES: &[Case] = cases![
    new_tensors_are_zeroed
    a_tensor_is_in_the_requested_memory
    the_requested_alignment_is_kept
    impossible_alignments_are_errors
    bad_names_are_errors
    refused_wishes_are_reported
    bad_shapes_are_errors
];

fn new_tensors_are_zeroed(memory: TensorMemory) {
    for dtype in DType::all() {
        // Small tensors come from the allocator, large ones from the kernel.
        for shape in [&[][..], &[1], &[3, 5, 7], &[300, 500]] {
            let tensor = options_for(memory).create(shape, dtype).unwrap();
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

fn a_tensor_is_in_the_requested_memory(memory: TensorMemory) {
    let tensor = options_for(memory).create(&[7], DType::I64).unwrap();
    assert_eq!(tensor.memory(), memory);
    assert_eq!(tensor.selection().chosen(), memory);
    assert_eq!(
        memory.is_available(),
        memory != TensorMemory::Pbo,
        "only a GL context allocates PBOs"
    );
    assert!(format!("{tensor:?}").contains(&format!("{memory:?}")));
}

fn the_requested_alignment_is_kept(memory: TensorMemory) {
    for shape in [&[1][..], &[1000], &[1 << 20]] {
        for align in [1, 64, 4096, 1 << 16, 2 << 20] {
            let tensor = options_for(memory).alignment(align).create(shape, DType::U8);
            if memory == TensorMemory::Pbo && align > 64 {
                // The driver chooses the address.
                assert!(matches!(tensor, Err(Error::BadAlignment { max: 64, .. })));
                continue;
            }
            let tensor = tensor.unwrap();
            let map = tensor.map().unwrap();
            let start = map.as_bytes().unwrap().as_ptr().addr();
            assert!(start.is_multiple_of(align.max(64)), "{start:#x} for {align}");
        }
        let tensor = options_for(memory).create(shape, DType::U8).unwrap();
        assert!(tensor.map().unwrap().as_bytes().unwrap().as_ptr().addr().is_multiple_of(64));
    }
}

fn impossible_alignments_are_errors(memory: TensorMemory) {
    for align in [0, 3, 48, (1 << 30) + 1, 1 << 31, usize::MAX] {
        let refused = options_for(memory).alignment(align).create(&[4], DType::U8).unwrap_err();
        assert!(
            matches!(refused, Error::BadAlignment { given, .. } if given == align),
            "{refused}"
        );
        let rows = options_for(memory).row_alignment(align).image(4, 4, PixelFormat::Grey);
        assert!(matches!(rows, Err(Error::BadAlignment { .. })));
    }
}

fn bad_names_are_errors(memory: TensorMemory) {
    for name in ["", "camera", "front/left", "caméra", &"n".repeat(249)] {
        options_for(memory).name(name).create(&[4], DType::U8).unwrap();
    }
    for name in ["nul\0nul", &"n".repeat(250), &"é".repeat(125)] {
        let refused = options_for(memory).name(name).create(&[4], DType::U8).unwrap_err();
        assert!(matches!(&refused, Error::BadName { given, .. } if **given == *name), "{refused}");
    }
}

fn shared_memory_has_huge_pages() -> bool {
    let setting = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
    let setting = setting.unwrap_or_default();
    ["[always]", "[within_size]", "[force]"].iter().any(|chosen| setting.contains(chosen))
}

fn refused_wishes_are_reported(memory: TensorMemory) {
    for (huge, prefault) in [(true, false), (false, true), (true, true)] {
        let options = options_for(memory).huge_pages(huge).prefault(prefault);
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
            assert!(start.is_multiple_of(2 << 20), "huge pages need an aligned start");
        }
        tensor.map_mut().unwrap().as_mut_slice::<u8>().unwrap().fill(1);
    }
    let plain = options_for(memory).create(&[4], DType::U8).unwrap();
    assert!(plain.selection().not_granted().is_empty());
}

fn bad_shapes_are_errors(memory: TensorMemory) {
    let create = |shape: &[usize]| options_for(memory).create(shape, DType::F32).unwrap_err();
    assert!(matches!(create(&[3, 0]), Error::ZeroDim { axis: 1, .. }));
    assert!(matches!(create(&[usize::MAX, 2]), Error::SizeOverflow { .. }));
    assert!(matches!(create(&[1 << 32, 1 << 30]), Error::SizeOverflow { .. }));
    assert!(matches!(create(&[1; 9]), Error::TooManyDims { found: 9, .. }));
    let image = |w, h| options_for(memory).image(w, h, PixelFormat::Nv12).unwrap_err();
    assert!(matches!(image(0, 4), Error::ZeroDim { .. }));
    assert!(matches!(image(usize::MAX - 1, 4), Error::SizeOverflow { .. }));
    assert!(matches!(image(4, usize::MAX), Error::SizeOverflow { .. }));
}
