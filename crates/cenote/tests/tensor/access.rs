//! Reading and writing elements.

use cenote::{Complex, DType, Element, Error, Tensor, TensorMemory, bf16, f16};

use super::{Case, cases, counting, options_for};

pub(super) const CASES: &[Case] = cases![
    every_dtype_reads_and_writes_as_a_slice
    bytes_and_elements_are_the_same_memory
    a_wrong_dtype_is_an_error
    a_bad_index_is_an_error
    data_of_the_wrong_length_is_an_error
    a_bool_that_is_not_zero_or_one_is_an_error
    misaligned_elements_are_never_referenced
];

fn every_dtype_reads_and_writes_as_a_slice(memory: TensorMemory) {
    fn check<T: Element>(memory: TensorMemory, seen: &mut Vec<DType>, data: [T; 6]) {
        seen.push(T::DTYPE);
        let mut tensor = options_for(memory).create(&[2, 3], T::DTYPE).unwrap();
        assert_eq!(tensor.to_vec::<T>().unwrap(), [T::default(); 6]);
        tensor.map_mut().unwrap().as_mut_slice::<T>().unwrap().copy_from_slice(&data);
        let map = tensor.map().unwrap();
        assert_eq!(map.as_slice::<T>().unwrap(), data);
        assert_eq!(map.get::<T>(&[1, 0]).unwrap(), data[3]);
        assert_eq!(tensor.to_vec::<T>().unwrap(), data);
        let column = tensor.index(1, 2).unwrap();
        assert_eq!(column.to_vec::<T>().unwrap(), [data[2], data[5]]);

        let mut copy = options_for(memory).create_from_slice(&data, &[3, 2]).unwrap();
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
    let mut tensor = options_for(memory).create(&[3], DType::U32).unwrap();
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
    let mut tensor = options_for(memory).create(&[4], DType::F32).unwrap();
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
            options_for(memory).create_from_slice(&data, &[2, 3]),
            Tensor::from_slice(&data, &[2, 3]),
            Tensor::from_vec(data, &[2, 3]),
        ] {
            let refused = result.unwrap_err();
            assert!(matches!(refused, Error::WrongLen { expected: 6, given, .. } if given == len));
        }
    }
}

fn a_bool_that_is_not_zero_or_one_is_an_error(memory: TensorMemory) {
    let mut tensor = options_for(memory).create(&[2, 2], DType::Bool).unwrap();
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
    let mut tensor = options_for(memory).create(&[4], DType::U32).unwrap();
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
