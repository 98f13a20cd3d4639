//! Tensors as arrays of `ndarray`.

use std::ptr::NonNull;

use cenote::{DType, Element, Layout, Tensor, TensorMemory};

use super::model::indices;
use super::{Case, cases, counting, options_for};

pub(super) const CASES: &[Case] = cases![
    every_view_reads_as_an_array
    an_axis_of_length_one_may_have_any_stride
    a_view_is_written_as_an_array
];

fn every_view_reads_as_an_array(memory: TensorMemory) {
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

fn an_axis_of_length_one_may_have_any_stride(memory: TensorMemory) {
    // The stride of such an axis is never used. Here it is no multiple of the element size.
    let mut tensor = options_for(memory).create(&[3, 1], DType::U16).unwrap();
    tensor.map_mut().unwrap().as_mut_slice::<u16>().unwrap().copy_from_slice(&[1, 2, 3]);
    let layout = Layout::strided(&[1, 3, 1], &[-5, 2, isize::MAX], 0, 2).unwrap();
    let view = adopt(vec![1u16, 2, 3], layout);
    assert_eq!(view.to_vec::<u16>().unwrap(), [1, 2, 3]);
    let map = view.map().unwrap();
    assert!(map.as_array::<u16>().unwrap().iter().eq(&[1, 2, 3]));
    let mut map = tensor.map_mut().unwrap();
    assert!(map.as_array_mut::<u16>().unwrap().iter().eq(&[1, 2, 3]));
}

/// A tensor of any layout over a vector, which it owns.
fn adopt<T: Element>(elements: Vec<T>, layout: Layout) -> Tensor {
    let len = size_of_val(&*elements);
    let start = NonNull::new(elements.as_ptr().cast_mut()).unwrap().cast();
    // SAFETY: the closure owns the vector, so its memory stays valid and unwritten until the release.
    #[allow(unsafe_code, reason = "no other constructor takes any layout")]
    unsafe { Tensor::from_raw_parts(start, len, layout, T::DTYPE, move || drop(elements)) }.unwrap()
}

fn a_view_is_written_as_an_array(memory: TensorMemory) {
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
