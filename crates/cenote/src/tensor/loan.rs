//! Loans: write access for code that Rust's borrows do not reach, such as arrays of Python.
//!
//! [`Tensor::map_mut`](crate::Tensor::map_mut) asks for the sole holder, for as long as a borrow
//! lasts. An array in another language has a pointer, for as long as it likes. So the buffer counts
//! those: while there are any it is not published, and once it is there are none.

use std::ptr::NonNull;

use crate::error::{Error, NotWritable, Result};
use crate::memory::TensorMemory;
use crate::tensor::Tensor;

/// Write access to the bytes of a tensor by pointer, until dropped.
///
/// While a loan is alive, the tensor cannot be sent as it is: [`Topic::send`](crate::Topic::send)
/// copies it first, and says so; [`descriptor`](Tensor::descriptor) refuses.
///
/// ```
/// use cenote::{DType, Tensor};
///
/// let tensor = Tensor::new(&[4], DType::U8)?;
/// let loan = tensor.lend()?;
/// // SAFETY: four bytes, lent to us, and nobody looks meanwhile.
/// unsafe { loan.as_ptr().write_bytes(7, 4) };
/// drop(loan);
/// assert_eq!(tensor.to_vec::<u8>()?, [7; 4]);
/// # Ok::<(), cenote::Error>(())
/// ```
#[derive(Debug)]
pub struct Loan {
    tensor: Tensor,
}

impl Loan {
    /// The address of the first element. The bytes of the [`layout`](Tensor::layout) around it may
    /// be read and written until the loan is dropped, by one thread at a time, and while nobody has
    /// them [mapped](Tensor::map).
    pub fn as_ptr(&self) -> *mut u8 {
        self.tensor.as_ptr().cast_mut()
    }

    /// The tensor that was lent.
    pub fn tensor(&self) -> &Tensor {
        &self.tensor
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        self.tensor.buffer.sharing().give_back();
    }
}

impl Tensor {
    /// Lends the bytes to code that writes by pointer. Any number of loans can be alive, and other
    /// handles too: whoever writes has to see to it that nobody reads meanwhile.
    ///
    /// An error if the bytes were published, belong to somebody else, or are a device's too.
    pub fn lend(&self) -> Result<Loan> {
        let refused = |why| Error::NotWritable { why };
        match self.not_writable() {
            None | Some(NotWritable::Shared) => {}
            Some(why) => return Err(refused(why)),
        }
        if self.far_planes.is_some() {
            return Err(Error::FarPlanes { op: "lend" });
        }
        // Its access by the CPU has a beginning and an end, which a pointer has not.
        if matches!(self.memory(), TensorMemory::Dma | TensorMemory::Pbo) {
            return Err(refused(NotWritable::Device));
        }
        // The loan is made first: dropping it gives back what was counted.
        let tensor = self.clone();
        match self.buffer.sharing().lend() {
            true => Ok(Loan { tensor }),
            false => Err(refused(NotWritable::Published)),
        }
    }

    /// Whether a [`Loan`] of its bytes is alive.
    pub fn is_lent(&self) -> bool {
        self.buffer.sharing().is_lent()
    }

    /// The address of the first element, for code that reads by pointer. It is valid while any handle
    /// of the buffer lives; strides may lead to lower addresses. Of no use for OpenGL buffers, which have
    /// an address only while they are mapped.
    pub fn as_ptr(&self) -> *const u8 {
        let start: NonNull<u8> = self.buffer.storage().region.start();
        start.as_ptr().wrapping_add(self.layout.offset()).cast_const()
    }
}
