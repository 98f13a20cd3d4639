//! Tensors as `ndarray` arrays, and arrays as tensors.

use ndarray::{
    ArrayBase, ArrayD, ArrayViewD, ArrayViewMutD, Axis, Data, Dimension, IxDyn, ShapeBuilder,
};

use crate::copies;
use crate::copies::CopyReason;
use crate::error::{Error, Result};
use crate::tensor::map::{TensorMap, TensorMapMut, cast, cast_mut, check_dtype, check_stable};
use crate::tensor::tensor::Tensor;
use crate::types::dtype::Element;
use crate::types::layout::Layout;

impl Tensor {
    /// Makes a heap tensor of an array. Copies it only if its memory is not exactly its elements in row-major
    /// order.
    ///
    /// ```
    /// use cenote::Tensor;
    ///
    /// let tensor = Tensor::from_array(ndarray::array![[1.0f32, 2.0], [3.0, 4.0]])?;
    /// assert_eq!(tensor.map()?.as_array::<f32>()?.sum(), 10.0);
    /// # Ok::<(), cenote::Error>(())
    /// ```
    pub fn from_array<T: Element, D: Dimension>(array: ndarray::Array<T, D>) -> Result<Tensor> {
        let shape = array.shape().to_vec();
        let len = array.len();
        if !array.is_standard_layout() {
            copies::count(CopyReason::CopiedIn, size_of::<T>() * len);
            return Tensor::from_vec(array.iter().copied().collect(), &shape);
        }
        let (mut data, start) = array.into_raw_vec_and_offset();
        // An array that was sliced in place owns more elements than it shows.
        let start = start.unwrap_or(0);
        if start > 0 {
            data.copy_within(start..start + len, 0);
            copies::count(CopyReason::CopiedIn, size_of::<T>() * len);
        }
        data.truncate(len);
        Tensor::from_vec(data, &shape)
    }

    /// Allocates a tensor as [`Tensor::new`] does, and copies the elements of an array into it.
    pub fn from_array_view<T, S, D>(array: &ArrayBase<S, D>) -> Result<Tensor>
    where
        T: Element,
        S: Data<Elem = T>,
        D: Dimension,
    {
        let mut tensor = Tensor::new(array.shape(), T::DTYPE)?;
        for (to, from) in tensor.map_mut()?.as_mut_slice::<T>()?.iter_mut().zip(array) {
            *to = *from;
        }
        copies::count(CopyReason::CopiedIn, tensor.nbytes());
        Ok(tensor)
    }

    /// Copies the elements into an array.
    pub fn to_array<T: Element>(&self) -> Result<ArrayD<T>> {
        let elements = self.to_vec::<T>()?;
        let shape = IxDyn(self.shape());
        ArrayD::from_shape_vec(shape, elements).map_err(|_| self.layout.not_contiguous())
    }
}

impl TensorMap<'_> {
    /// Returns the elements as an array, contiguous or not, without a copy. Fails if they are not of type `T`, or
    /// a stride is no multiple of their size.
    ///
    /// ```
    /// use cenote::Tensor;
    ///
    /// let tensor = Tensor::from_vec(vec![1i32, 2, 3, 4, 5, 6], &[2, 3])?;
    /// let column = tensor.index(1, 2)?;
    /// assert_eq!(column.map()?.as_array::<i32>()?, ndarray::array![3, 6].into_dyn());
    /// # Ok::<(), cenote::Error>(())
    /// ```
    pub fn as_array<T: Element>(&self) -> Result<ArrayViewD<'_, T>> {
        check_dtype::<T>(self.dtype)?;
        check_stable::<T>(self.stable)?;
        let steps = Steps::of(self.layout)?;
        let elements = cast(self.at(self.layout.byte_range()))?;
        let array = ArrayViewD::from_shape(steps.shape(self.layout), elements);
        let mut array = array.map_err(|_| steps.unfit(self.layout))?;
        steps.backwards().for_each(|axis| array.invert_axis(axis));
        Ok(array)
    }
}

impl TensorMapMut<'_> {
    /// Returns the elements as a mutable array, contiguous or not. Fails as [`TensorMap::as_array`] does, and if
    /// elements overlap.
    pub fn as_array_mut<T: Element>(&mut self) -> Result<ArrayViewMutD<'_, T>> {
        check_dtype::<T>(self.dtype)?;
        let layout = self.layout.clone();
        let steps = Steps::of(&layout)?;
        let elements = cast_mut(self.at_mut(layout.byte_range()))?;
        let array = ArrayViewMutD::from_shape(steps.shape(&layout), elements);
        let mut array = array.map_err(|_| steps.unfit(&layout))?;
        steps.backwards().for_each(|axis| array.invert_axis(axis));
        Ok(array)
    }
}

/// Strides in elements, as ndarray counts them. It takes no negative strides: a reversed axis is made forward
/// first, and then inverted.
struct Steps(Vec<isize>);

impl Steps {
    fn of(layout: &Layout) -> Result<Steps> {
        let item = layout.item_size().cast_signed();
        // The stride of an axis of length 1 is never used, and may have any value.
        let step = |(&stride, &len): (&isize, &usize)| match len {
            1 => Some(0),
            _ => (stride % item == 0).then_some(stride / item),
        };
        let axes = layout.strides().iter().zip(layout.shape());
        let steps = axes.map(step).collect::<Option<_>>();
        let (strides, item_size) = (layout.strides(), layout.item_size());
        steps.map(Steps).ok_or_else(|| Error::OddStrides { strides: strides.into(), item_size })
    }

    fn shape(&self, layout: &Layout) -> ndarray::StrideShape<IxDyn> {
        let steps: Vec<usize> = self.0.iter().map(|step| step.unsigned_abs()).collect();
        IxDyn(layout.shape()).strides(IxDyn(&steps))
    }

    /// The axes with negative strides.
    fn backwards(&self) -> impl Iterator<Item = Axis> + '_ {
        self.0.iter().enumerate().filter(|(_, step)| **step < 0).map(|(axis, _)| Axis(axis))
    }

    /// The error for a mutable view in which two elements share memory, which ndarray refuses.
    fn unfit(&self, layout: &Layout) -> Error {
        Error::Overlapping { shape: layout.shape().into(), strides: layout.strides().into() }
    }
}
