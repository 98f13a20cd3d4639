//! A naive model of a strided layout, which knows no strides: a shape, and a list of where each
//! element starts. And the views that can be taken of it, of a `Layout` and of a `Tensor` alike.

#![allow(dead_code, reason = "each test uses its part")]

use std::ops::Range;

use cenote::{Layout, MAX_DIMS, Result, Tensor};
use proptest::collection::vec;
use proptest::prelude::*;

/// Every index into a shape, in row-major order.
pub(crate) fn indices(shape: &[usize]) -> Vec<Vec<usize>> {
    shape.iter().fold(vec![vec![]], |outer, &len| {
        let extend = |index: &Vec<usize>, i| [index.as_slice(), &[i]].concat();
        outer.iter().flat_map(|index| (0..len).map(move |i| extend(index, i))).collect()
    })
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Model {
    pub(crate) shape: Vec<usize>,
    /// First byte of each element, in row-major order.
    pub(crate) starts: Vec<usize>,
    pub(crate) item_size: usize,
}

impl Model {
    pub(crate) fn at(&self, index: &[usize]) -> usize {
        let flat = index.iter().zip(&self.shape).fold(0, |flat, (i, len)| flat * len + i);
        self.starts[flat]
    }

    /// The model of another shape whose element at `index` is ours at `source(index)`.
    pub(crate) fn gather(
        &self,
        shape: Vec<usize>,
        source: impl Fn(Vec<usize>) -> Vec<usize>,
    ) -> Model {
        let starts = indices(&shape).into_iter().map(|index| self.at(&source(index))).collect();
        Model { shape, starts, item_size: self.item_size }
    }

    pub(crate) fn slice(&self, axis: usize, range: Range<usize>, step: usize) -> Option<Model> {
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

    pub(crate) fn narrow(&self, axis: usize, start: usize, len: usize) -> Option<Model> {
        self.slice(axis, start..start.checked_add(len)?, 1)
    }

    pub(crate) fn index(&self, axis: usize, i: usize) -> Option<Model> {
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

    pub(crate) fn permute(&self, axes: &[usize]) -> Option<Model> {
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

    pub(crate) fn flip(&self, axis: usize) -> Option<Model> {
        let len = *self.shape.get(axis)?;
        Some(self.gather(self.shape.clone(), |mut index| {
            index[axis] = len - 1 - index[axis];
            index
        }))
    }

    pub(crate) fn squeeze(&self, axis: usize) -> Option<Model> {
        (self.shape.get(axis) == Some(&1)).then(|| self.index(axis, 0))?
    }

    pub(crate) fn unsqueeze(&self, axis: usize) -> Option<Model> {
        if axis > self.shape.len() || self.shape.len() == MAX_DIMS {
            return None;
        }
        let mut shape = self.shape.clone();
        shape.insert(axis, 1);
        Some(Model { shape, ..self.clone() })
    }

    /// What a copy of any cost could be reshaped to.
    pub(crate) fn reshape(&self, shape: &[usize]) -> Option<Model> {
        let len = shape.iter().try_fold(1_usize, |n, &len| n.checked_mul(len))?;
        (len == self.starts.len() && shape.len() <= MAX_DIMS)
            .then(|| Model { shape: shape.to_vec(), ..self.clone() })
    }

    /// Whether some strides lead to every element: those from the first element to its neighbours
    /// are the only candidates.
    pub(crate) fn is_affine(&self) -> bool {
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
    pub(crate) fn is_packed_by(&self, count: usize) -> bool {
        let follows = |pair: &[usize]| pair[0] + self.item_size == pair[1];
        self.starts.chunks(count).all(|group| group.windows(2).all(follows))
    }

    pub(crate) fn byte_range(&self) -> Range<usize> {
        let (min, max) = (self.starts.iter().min(), self.starts.iter().max());
        *min.unwrap()..max.unwrap() + self.item_size
    }

    pub(crate) fn bytes(&self) -> Vec<usize> {
        self.starts.iter().flat_map(|&start| start..start + self.item_size).collect()
    }

    pub(crate) fn shares_bytes(&self) -> bool {
        let mut bytes = self.bytes();
        bytes.sort_unstable();
        bytes.windows(2).any(|pair| pair[0] == pair[1])
    }

    /// Runs follow the axes, so they have one length: the longest that packs all elements.
    pub(crate) fn run_count(&self) -> usize {
        let len = self.starts.len();
        let fits = |count: &usize| len.is_multiple_of(*count) && self.is_packed_by(*count);
        len / (1..=len).rev().find(fits).unwrap()
    }
}

/// A view to take. Numbers mostly fit the layouts here, and sometimes are far outside.
#[derive(Debug, Clone)]
pub(crate) enum View {
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

pub(crate) fn number() -> impl Strategy<Value = usize> {
    prop_oneof![20 => 0_usize..6, 2 => 0_usize..40, 1 => any::<usize>(), 1 => usize::MAX - 2..=usize::MAX]
}

/// Mostly an axis that is there.
pub(crate) fn axis() -> impl Strategy<Value = usize> {
    prop_oneof![30 => 0_usize..4, 1 => number()]
}

pub(crate) fn view() -> impl Strategy<Value = View> {
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

/// Takes the view of a layout or of a tensor, which have the same methods.
macro_rules! take {
    ($view:expr, $of:expr) => {
        match $view.clone() {
            View::Narrow(axis, start, len) => $of.narrow(axis, start, len),
            View::Slice(axis, range, step) => $of.slice(axis, range, step),
            View::Index(axis, i) => $of.index(axis, i),
            View::Roi(x, y, width, height) => $of.roi(x, y, width, height),
            View::Transpose => Ok($of.transpose()),
            View::Permute(axes) => $of.permute(&axes),
            View::Reshape(shape) => $of.reshape(&shape),
            View::Squeeze(axis) => $of.squeeze(axis),
            View::Unsqueeze(axis) => $of.unsqueeze(axis),
            View::Flip(axis) => $of.flip(axis),
            View::Shuffle(_) | View::Factor(_) => unreachable!("resolved"),
        }
    };
}

impl View {
    /// Replaces what depends on the shape at hand.
    pub(crate) fn resolve(self, shape: &[usize]) -> View {
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

    pub(crate) fn of_layout(&self, layout: &Layout) -> Result<Layout> {
        take!(self, layout)
    }

    pub(crate) fn of_tensor(&self, tensor: &Tensor) -> Result<Tensor> {
        take!(self, tensor)
    }

    pub(crate) fn of_model(&self, model: &Model) -> Option<Model> {
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
