//! A handful of values without an allocation: the axes of an image, its planes.

use std::fmt;
use std::ops::Deref;

/// Up to `N` values in place, without an allocation. It reads as a slice: `&few[..]`, `few.iter()`.
#[derive(Clone, Copy)]
pub struct Few<T, const N: usize> {
    values: [T; N],
    /// At most `N`; what lies beyond is `T::default()` and never shown.
    len: usize,
}

impl<T: Copy + Default, const N: usize> Few<T, N> {
    pub(crate) fn new(values: impl IntoIterator<Item = T>) -> Self {
        let mut few = Few { values: [T::default(); N], len: 0 };
        values.into_iter().for_each(|value| few.push(value));
        few
    }

    /// Adds a value. There is room: the tests hold every row of the table against `N`.
    pub(crate) fn push(&mut self, value: T) {
        if let Some(place) = self.values.get_mut(self.len) {
            *place = value;
            self.len += 1;
        }
    }
}

impl<T, const N: usize> Deref for Few<T, N> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.values[..self.len]
    }
}

impl<T, const N: usize> IntoIterator for Few<T, N> {
    type Item = T;
    type IntoIter = std::iter::Take<std::array::IntoIter<T, N>>;

    fn into_iter(self) -> Self::IntoIter {
        self.values.into_iter().take(self.len)
    }
}

impl<'a, T, const N: usize> IntoIterator for &'a Few<T, N> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<T: PartialEq, const N: usize> PartialEq for Few<T, N> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: Eq, const N: usize> Eq for Few<T, N> {}

impl<T: fmt::Debug, const N: usize> fmt::Debug for Few<T, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
