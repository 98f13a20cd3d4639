//! `Layout` against a naive model that knows no strides: a shape, and a list of where each element
//! starts.

#![allow(clippy::unwrap_used)]

use std::ops::Range;

use cenote::{Error, Layout, MAX_DIMS, Result};
use proptest::collection::vec;
use proptest::prelude::*;

fn config() -> ProptestConfig {
    ProptestConfig { failure_persistence: None, ..ProptestConfig::default() }
}

/// Every index into a shape, in row-major order.
fn indices(shape: &[usize]) -> Vec<Vec<usize>> {
    shape.iter().fold(vec![vec![]], |outer, &len| {
        let extend = |index: &Vec<usize>, i| [index.as_slice(), &[i]].concat();
        outer.iter().flat_map(|index| (0..len).map(move |i| extend(index, i))).collect()
    })
}

#[derive(Debug, Clone, PartialEq)]
struct Model {
    shape: Vec<usize>,
    /// First byte of each element, in row-major order.
    starts: Vec<usize>,
    item_size: usize,
}

impl Model {
    fn at(&self, index: &[usize]) -> usize {
        let flat = index.iter().zip(&self.shape).fold(0, |flat, (i, len)| flat * len + i);
        self.starts[flat]
    }

    /// The model of another shape whose element at `index` is ours at `source(index)`.
    fn gather(&self, shape: Vec<usize>, source: impl Fn(Vec<usize>) -> Vec<usize>) -> Model {
        let starts = indices(&shape).into_iter().map(|index| self.at(&source(index))).collect();
        Model { shape, starts, item_size: self.item_size }
    }

    fn slice(&self, axis: usize, range: Range<usize>, step: usize) -> Option<Model> {
        let len = *self.shape.get(axis)?;
        if range.start > len || range.end > len || step == 0 {
            return None;
        }
        let picked: Vec<usize> = range.step_by(step).collect();
        let mut shape = self.shape.clone();
        shape[axis] = picked.len();
        (!picked.is_empty()).then(|| {
            self.gather(shape, |mut index| {
                index[axis] = picked[index[axis]];
                index
            })
        })
    }

    fn narrow(&self, axis: usize, start: usize, len: usize) -> Option<Model> {
        self.slice(axis, start..start.checked_add(len)?, 1)
    }

    fn index(&self, axis: usize, i: usize) -> Option<Model> {
        if i >= *self.shape.get(axis)? {
            return None;
        }
        let mut shape = self.shape.clone();
        shape.remove(axis);
        Some(self.gather(shape, |mut index| {
            index.insert(axis, i);
            index
        }))
    }

    fn permute(&self, axes: &[usize]) -> Option<Model> {
        let mut sorted = axes.to_vec();
        sorted.sort_unstable();
        if !sorted.into_iter().eq(0..self.shape.len()) {
            return None;
        }
        let shape = axes.iter().map(|&axis| self.shape[axis]).collect();
        Some(self.gather(shape, |index| {
            let mut source = vec![0; index.len()];
            axes.iter().zip(index).for_each(|(&axis, i)| source[axis] = i);
            source
        }))
    }

    fn flip(&self, axis: usize) -> Option<Model> {
        let len = *self.shape.get(axis)?;
        Some(self.gather(self.shape.clone(), |mut index| {
            index[axis] = len - 1 - index[axis];
            index
        }))
    }

    fn squeeze(&self, axis: usize) -> Option<Model> {
        (self.shape.get(axis) == Some(&1)).then(|| self.index(axis, 0))?
    }

    fn unsqueeze(&self, axis: usize) -> Option<Model> {
        if axis > self.shape.len() || self.shape.len() == MAX_DIMS {
            return None;
        }
        let mut shape = self.shape.clone();
        shape.insert(axis, 1);
        Some(Model { shape, ..self.clone() })
    }

    /// What a copy of any cost could be reshaped to.
    fn reshape(&self, shape: &[usize]) -> Option<Model> {
        let len = shape.iter().try_fold(1_usize, |n, &len| n.checked_mul(len))?;
        (len == self.starts.len() && shape.len() <= MAX_DIMS)
            .then(|| Model { shape: shape.to_vec(), ..self.clone() })
    }

    /// Whether some strides lead to every element: those from the first element to its neighbours
    /// are the only candidates.
    fn is_affine(&self) -> bool {
        let offset = |index: &[usize]| self.at(index) as i128 - self.starts[0] as i128;
        let unit = |axis| (0..self.shape.len()).map(|a| usize::from(a == axis)).collect::<Vec<_>>();
        let stride = |axis| if self.shape[axis] > 1 { offset(&unit(axis)) } else { 0 };
        let strides: Vec<i128> = (0..self.shape.len()).map(stride).collect();
        indices(&self.shape).iter().all(|index| {
            let sum: i128 = index.iter().zip(&strides).map(|(&i, s)| i as i128 * s).sum();
            sum == offset(index)
        })
    }

    /// Whether each group of `count` elements lies side by side.
    fn is_packed_by(&self, count: usize) -> bool {
        let follows = |pair: &[usize]| pair[0] + self.item_size == pair[1];
        self.starts.chunks(count).all(|group| group.windows(2).all(follows))
    }

    fn byte_range(&self) -> Range<usize> {
        let (min, max) = (self.starts.iter().min(), self.starts.iter().max());
        *min.unwrap()..max.unwrap() + self.item_size
    }

    fn bytes(&self) -> Vec<usize> {
        self.starts.iter().flat_map(|&start| start..start + self.item_size).collect()
    }

    fn shares_bytes(&self) -> bool {
        let mut bytes = self.bytes();
        bytes.sort_unstable();
        bytes.windows(2).any(|pair| pair[0] == pair[1])
    }

    /// Runs follow the axes, so they have one length: the longest that packs all elements.
    fn run_count(&self) -> usize {
        let len = self.starts.len();
        let fits = |count: &usize| len.is_multiple_of(*count) && self.is_packed_by(*count);
        len / (1..=len).rev().find(fits).unwrap()
    }
}

/// A view to take. Numbers mostly fit the layouts here, and sometimes are far outside.
#[derive(Debug, Clone)]
enum View {
    Narrow(usize, usize, usize),
    Slice(usize, Range<usize>, usize),
    Index(usize, usize),
    Roi(usize, usize, usize, usize),
    Transpose,
    /// Sorts the axes by these keys, which is always a permutation.
    Shuffle([u8; MAX_DIMS]),
    Permute(Vec<usize>),
    /// Splits the length by these numbers wherever they divide it, which is always a shape.
    Factor(Vec<usize>),
    Reshape(Vec<usize>),
    Squeeze(usize),
    Unsqueeze(usize),
    Flip(usize),
}

fn number() -> impl Strategy<Value = usize> {
    prop_oneof![20 => 0_usize..6, 2 => 0_usize..40, 1 => any::<usize>(), 1 => usize::MAX - 2..=usize::MAX]
}

/// Mostly an axis that is there.
fn axis() -> impl Strategy<Value = usize> {
    prop_oneof![30 => 0_usize..4, 1 => number()]
}

fn view() -> impl Strategy<Value = View> {
    // A whole axis shows up often enough only when starts are small.
    let start = || prop_oneof![3 => 0_usize..2, 1 => number()];
    prop_oneof![
        2 => (axis(), start(), number()).prop_map(|(a, s, l)| View::Narrow(a, s, l)),
        3 => (axis(), start(), number(), number()).prop_map(|(a, s, e, n)| View::Slice(a, s..e, n)),
        1 => (axis(), number()).prop_map(|(a, i)| View::Index(a, i)),
        1 => (start(), start(), number(), number()).prop_map(|(x, y, w, h)| View::Roi(x, y, w, h)),
        1 => Just(View::Transpose),
        2 => any::<[u8; MAX_DIMS]>().prop_map(View::Shuffle),
        1 => vec(axis(), 0..5).prop_map(View::Permute),
        4 => vec(1_usize..7, 0..MAX_DIMS).prop_map(View::Factor),
        1 => vec(number(), 0..MAX_DIMS + 2).prop_map(View::Reshape),
        1 => axis().prop_map(View::Squeeze),
        2 => axis().prop_map(View::Unsqueeze),
        2 => axis().prop_map(View::Flip),
    ]
}

impl View {
    /// Replaces what depends on the shape at hand.
    fn resolve(self, shape: &[usize]) -> View {
        match self {
            View::Shuffle(keys) => {
                let mut axes: Vec<usize> = (0..shape.len()).collect();
                axes.sort_by_key(|&axis| keys[axis]);
                View::Permute(axes)
            }
            View::Factor(factors) => {
                let mut rest: usize = shape.iter().product();
                let divides = |factor: &usize| {
                    let fits = rest.is_multiple_of(*factor);
                    rest /= if fits { *factor } else { 1 };
                    fits
                };
                let mut factored: Vec<usize> = factors.into_iter().filter(divides).collect();
                factored.insert(factored.len() / 2, rest);
                View::Reshape(factored)
            }
            other => other,
        }
    }

    fn of_layout(&self, layout: &Layout) -> Result<Layout> {
        match self.clone() {
            View::Narrow(axis, start, len) => layout.narrow(axis, start, len),
            View::Slice(axis, range, step) => layout.slice(axis, range, step),
            View::Index(axis, i) => layout.index(axis, i),
            View::Roi(x, y, width, height) => layout.roi(x, y, width, height),
            View::Transpose => Ok(layout.transpose()),
            View::Permute(axes) => layout.permute(&axes),
            View::Reshape(shape) => layout.reshape(&shape),
            View::Squeeze(axis) => layout.squeeze(axis),
            View::Unsqueeze(axis) => layout.unsqueeze(axis),
            View::Flip(axis) => layout.flip(axis),
            View::Shuffle(_) | View::Factor(_) => unreachable!("resolved"),
        }
    }

    fn of_model(&self, model: &Model) -> Option<Model> {
        match self.clone() {
            View::Narrow(axis, start, len) => model.narrow(axis, start, len),
            View::Slice(axis, range, step) => model.slice(axis, range, step),
            View::Index(axis, i) => model.index(axis, i),
            View::Roi(x, y, width, height) => model.narrow(1, x, width)?.narrow(0, y, height),
            View::Transpose => model.permute(&(0..model.shape.len()).rev().collect::<Vec<_>>()),
            View::Permute(axes) => model.permute(&axes),
            View::Reshape(shape) => model.reshape(&shape),
            View::Squeeze(axis) => model.squeeze(axis),
            View::Unsqueeze(axis) => model.unsqueeze(axis),
            View::Flip(axis) => model.flip(axis),
            View::Shuffle(_) | View::Factor(_) => unreachable!("resolved"),
        }
    }
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
        if let Ok(layout) = base.0.with_offset(offset) {
            exercise(&layout);
            prop_assert_eq!(layout.byte_range().len(), base.0.byte_range().len());
        }
    }
}
