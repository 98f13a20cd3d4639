//! Views: other shapes over the same bytes.

use cenote::{Error, Tensor, TensorMemory};
use proptest::collection::vec as many;
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};

use super::model::{Model, indices, view};
use super::{Case, cases, counting};

pub(super) const CASES: &[Case] = cases![
    views_show_the_same_bytes
    views_out_of_range_are_errors
    slices_of_strided_views_are_refused
    a_strided_view_writes_only_its_own_elements
    chains_of_views_agree_with_the_model
];

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
    // A view starts inside the memory of its parent.
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
    // The stride of an axis of length 1 does not matter.
    assert!(tensor.narrow(0, 1, 1).unwrap().map().unwrap().as_slice::<u16>().is_ok());
}

fn a_strided_view_writes_only_its_own_elements(memory: TensorMemory) {
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
