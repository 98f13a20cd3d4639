//! `cenote.Tensor`.

pub(crate) mod index;
mod protocols;
mod scalar;
pub(crate) mod tensor;
mod views;

pub(crate) use tensor::Tensor;
