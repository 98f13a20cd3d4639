//! `Layout` against a naive model that knows no strides.

#![allow(clippy::unwrap_used)]

mod model;

use std::ops::Range;

use cenote::{Error, Layout, MAX_DIMS};
use model::{Model, View, indices, number, view};
use proptest::collection::vec;
use proptest::prelude::*;

fn config() -> ProptestConfig {
    ProptestConfig { failure_persistence: None, ..ProptestConfig::default() }
}

/// A contiguous layout of at most 240 elements.
fn contiguous() -> impl Strategy<Value = (Layout, Model)> {
    (vec(1_usize..7, 0..5), 1_usize..5, 0_usize..20)
        .prop_filter("too large", |(shape, ..)| shape.iter().product::<usize>() <= 240)
        .prop_map(|(shape, item_size, offset)| {
            let layout = Layout::contiguous(&shape, item_size).unwrap();
            let len: usize = shape.iter().product();
            let starts = (0..len).map(|i| offset + i * item_size).collect();
            (layout.with_offset(offset).unwrap(), Model { shape, starts, item_size })
        })
}

/// Any small strides: overlapping, zero, negative, out of order.
fn strided() -> impl Strategy<Value = (Layout, Model)> {
    (vec((1_usize..5, -12_isize..13), 0..4), 1_usize..4).prop_map(|(axes, item_size)| {
        let (shape, strides): (Vec<_>, Vec<_>) = axes.into_iter().unzip();
        let layout = Layout::strided(&shape, &strides, 300, item_size).unwrap();
        let start = |index: Vec<usize>| {
            let steps = index.iter().zip(&strides);
            steps.fold(300, |at: usize, (&i, &stride)| {
                at.checked_add_signed(isize::try_from(i).unwrap() * stride).unwrap()
            })
        };
        let starts = indices(&shape).into_iter().map(start).collect();
        (layout, Model { shape, starts, item_size })
    })
}

fn assert_agree(layout: &Layout, model: &Model) {
    assert_eq!(layout.shape(), model.shape);
    assert_eq!((layout.ndim(), layout.strides().len()), (model.shape.len(), model.shape.len()));
    assert_eq!((layout.len(), layout.offset()), (model.starts.len(), model.starts[0]));
    assert_eq!(layout.nbytes(), model.starts.len() * model.item_size);
    for index in indices(&model.shape) {
        assert_eq!(layout.offset_of(&index), Some(model.at(&index)), "{layout:?} at {index:?}");
    }
    let range = layout.byte_range();
    assert_eq!(range, model.byte_range(), "{layout:?}");
    assert!(layout.fits(range.end).is_ok() && layout.fits(range.end - 1).is_err());
    assert_eq!(layout.is_contiguous(), model.is_packed_by(usize::MAX), "{layout:?}");
    assert!(layout.overlaps_itself() || !model.shares_bytes(), "{layout:?}");
    assert_eq!(layout.runs().flatten().collect::<Vec<_>>(), model.bytes(), "{layout:?}");
    assert_eq!(layout.runs().len(), layout.runs().count());
    assert_eq!(layout.runs().len(), model.run_count(), "{layout:?}");
    let rebuilt = Layout::strided(&model.shape, layout.strides(), layout.offset(), model.item_size);
    assert_eq!(rebuilt.unwrap(), *layout);
}

/// Takes the views that can be taken, one of the other, and compares every one.
fn assert_views_agree((mut layout, mut model): (Layout, Model), views: Vec<View>) -> Layout {
    assert_agree(&layout, &model);
    for view in views {
        let view = view.resolve(&model.shape);
        match (view.of_layout(&layout), view.of_model(&model)) {
            (Ok(next), Some(expected)) => {
                assert_agree(&next, &expected);
                (layout, model) = (next, expected);
            }
            (Err(Error::ReshapeNeedsCopy { .. }), Some(expected)) => {
                assert!(!expected.is_affine(), "{view:?} of {layout:?} needs no copy");
            }
            (Err(_), None) => {}
            (got, expected) => panic!("{view:?} of {layout:?}: {got:?}, expected {expected:?}"),
        }
    }
    layout
}

/// Calls everything, for layouts too large to enumerate. The point is that it returns.
fn exercise(layout: &Layout) {
    let Range { start, end } = layout.byte_range();
    assert!(start <= layout.offset() && layout.offset() < end && isize::try_from(end).is_ok());
    assert!(layout.fits(end).is_ok() && layout.fits(0).is_err());
    assert_eq!(layout.nbytes(), layout.len() * layout.item_size());
    let last: Vec<usize> = layout.shape().iter().map(|len| len - 1).collect();
    let last = layout.offset_of(&last).unwrap();
    assert!(start <= last && last + layout.item_size() <= end);
    layout.overlaps_itself();
    assert_eq!(layout.is_contiguous(), layout.runs().len() == 1);
    assert!(layout.runs().take(20).all(|run| start <= run.start && run.end <= end));
}

/// Lengths, strides and offsets around the edges of the address space.
fn hostile() -> impl Strategy<Value = usize> {
    let power = (0..usize::BITS, 0_usize..3).prop_map(|(n, d)| (1_usize << n).wrapping_sub(d));
    prop_oneof![4 => 0_usize..5, 3 => power, 1 => any::<usize>()]
}

fn hostile_stride() -> impl Strategy<Value = isize> {
    (hostile(), any::<bool>()).prop_map(|(size, negative)| {
        let stride = size.cast_signed();
        if negative { stride.wrapping_neg() } else { stride }
    })
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn views_of_contiguous_layouts_agree_with_the_model(
        base in contiguous(),
        views in vec(view(), 0..12),
    ) {
        let view = assert_views_agree(base, views);
        prop_assert!(!view.overlaps_itself(), "{:?}", view);
    }

    #[test]
    fn views_of_strided_layouts_agree_with_the_model(
        base in strided(),
        views in vec(view(), 0..8),
    ) {
        assert_views_agree(base, views);
    }

    #[test]
    fn indices_outside_have_no_offset(base in contiguous(), index in vec(number(), 0..10)) {
        let inside = index.len() == base.1.shape.len()
            && index.iter().zip(&base.1.shape).all(|(i, len)| i < len);
        prop_assert_eq!(base.0.offset_of(&index), inside.then(|| base.1.at(&index)));
    }

    #[test]
    fn hostile_shapes_never_panic_and_never_shrink(
        shape in vec(hostile(), 0..10),
        item_size in hostile(),
    ) {
        let size = shape.iter().try_fold(item_size, |size, &len| size.checked_mul(len));
        let possible = size.is_some_and(|size| size > 0 && isize::try_from(size).is_ok());
        match Layout::contiguous(&shape, item_size) {
            Ok(layout) => {
                prop_assert_eq!(Some(layout.nbytes()), size);
                prop_assert_eq!(layout.byte_range(), 0..layout.nbytes());
                prop_assert!(layout.is_contiguous() && !layout.overlaps_itself());
                exercise(&layout);
            }
            Err(_) => prop_assert!(!possible || shape.len() > MAX_DIMS),
        }
    }

    #[test]
    fn hostile_strides_and_views_never_panic(
        axes in vec((hostile(), hostile_stride()), 0..5),
        offset in hostile(),
        item_size in hostile(),
        views in vec(view(), 0..8),
    ) {
        let (shape, strides): (Vec<_>, Vec<_>) = axes.into_iter().unzip();
        let Ok(mut layout) = Layout::strided(&shape, &strides, offset, item_size) else {
            return Ok(());
        };
        exercise(&layout);
        let whole = layout.byte_range();
        for view in views {
            let view = view.resolve(layout.shape());
            layout = view.of_layout(&layout).unwrap_or(layout);
            exercise(&layout);
            let part = layout.byte_range();
            prop_assert!(whole.start <= part.start && part.end <= whole.end);
        }
    }

    #[test]
    fn hostile_offsets_never_panic(base in strided(), offset in hostile()) {
        if let Ok(layout) = base.0.clone().with_offset(offset) {
            exercise(&layout);
            prop_assert_eq!(layout.byte_range().len(), base.0.byte_range().len());
        }
    }
}
