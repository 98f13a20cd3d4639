//! `cenote.Tensor`.

pub(crate) mod index;
pub(crate) mod scalar;
pub(crate) mod tensor;

pub(crate) use tensor::Tensor;
