//! Loans: access by pointer for code that Rust's borrows do not reach, such as arrays in Python.
//!
//! [`Tensor::map_mut`](crate::Tensor::map_mut) needs the sole holder, for the duration of a borrow. An array in
//! another language keeps a pointer without such a limit. So the buffer counts the loans to write: while one is
//! alive the buffer is not published, and once it is published no loan to write begins.

use crate::error::{Error, NotWritable, Result};
use crate::memory::cpu_access::{CpuAccess, Direction};
use crate::memory::kind::TensorMemory;
use crate::tensor::tensor::Tensor;

/// Access to the bytes of a tensor by pointer, until dropped.
///
/// While a loan [to write](Tensor::lend) is alive, the tensor cannot be sent without a copy:
/// [`Topic::send`](crate::Topic::send) copies it first and counts that, and [`descriptor`](Tensor::descriptor)
/// fails.
///
/// ```
/// use cenote::{DType, Tensor};
///
/// let tensor = Tensor::new(&[4], DType::U8)?;
/// let loan = tensor.lend()?;
/// // SAFETY: the loan is for these four bytes, and no other code accesses them now.
/// unsafe { loan.as_ptr().write_bytes(7, 4) };
/// drop(loan);
/// assert_eq!(tensor.to_vec::<u8>()?, [7; 4]);
/// # Ok::<(), cenote::Error>(())
/// ```
#[derive(Debug)]
pub struct Loan {
    /// Ends the access of the CPU for devices. Declared first, so that it is dropped before the tensor.
    _access: CpuAccess<'static>,
    tensor: Tensor,
    /// Whether it is a loan to write, which the buffer counts.
    writable: bool,
}

impl Loan {
    /// The address of the first element. Until the loan is dropped, the caller may read the bytes of the
    /// [`layout`](Tensor::layout) around it, and write them if the loan [is to write](Loan::is_writable). Only one
    /// thread may do so at a time, and only while the tensor is not [mapped](Tensor::map).
    pub fn as_ptr(&self) -> *mut u8 {
        self.tensor.as_ptr().cast_mut()
    }

    /// Returns whether the bytes may be written.
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    /// The tensor that is on loan.
    pub fn tensor(&self) -> &Tensor {
        &self.tensor
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        if self.writable {
            self.tensor.buffer.write_state().end_loan();
        }
    }
}

impl Tensor {
    /// Lends the bytes to code that writes by pointer. Several loans and other handles may exist: the writer must
    /// make sure that no other code reads at the same time.
    ///
    /// Fails if the bytes were published, are foreign memory, or a device uses them too.
    pub fn lend(&self) -> Result<Loan> {
        let refused = |why| Error::NotWritable { why };
        match self.not_writable() {
            None | Some(NotWritable::Shared) => {}
            Some(why) => return Err(refused(why)),
        }
        // CPU access to such memory needs a begin and an end, which writes through a pointer do not have.
        if matches!(self.memory(), TensorMemory::Dma | TensorMemory::Pbo) {
            return Err(refused(NotWritable::Device));
        }
        let mut loan = self.lend_to_read()?;
        loan.writable = self.buffer.write_state().begin_loan();
        loan.writable.then_some(loan).ok_or(refused(NotWritable::Published))
    }

    /// Lends the bytes to code that reads by pointer. The tensor can still be sent without a copy. Fails for OpenGL
    /// buffers, which have no fixed address, and for images whose planes are in several buffers.
    pub fn lend_to_read(&self) -> Result<Loan> {
        if self.far_planes.is_some() {
            return Err(Error::FarPlanes { op: "lend" });
        }
        let storage = self.buffer.storage();
        if storage.memory == TensorMemory::Pbo {
            let (memory, wanted, instead) = ("pbo", "address that stays", "shm memory");
            return Err(Error::NoFd { memory, wanted, instead });
        }
        let _access = CpuAccess::begin(&storage.dma, Direction::Read)?;
        Ok(Loan { tensor: self.clone(), writable: false, _access })
    }

    /// Returns whether the bytes stay the same, at [one address](Tensor::as_ptr), as long as any handle of them
    /// exists. They are in shared memory, were sent or received, and no process can write them. Code that reads
    /// them by pointer needs no loan. Memory that a forked child inherited is not immutable.
    ///
    /// ```
    /// use cenote::{DType, Tensor, TensorPool, TensorPoolConfig};
    /// # let dir = std::env::temp_dir().join(format!("cenote-immutable-{}", std::process::id()));
    /// # unsafe { std::env::set_var("CENOTE_DIR", &dir) };
    ///
    /// let pool = TensorPool::new("frames", TensorPoolConfig::default())?;
    /// let tensor = pool.alloc(&[4], DType::U8)?;
    /// assert!(!tensor.is_immutable());
    /// let descriptor = tensor.descriptor()?; // for another process
    /// assert!(tensor.is_immutable());
    /// # drop((tensor, pool));
    /// # std::fs::remove_dir_all(dir).ok();
    /// # Ok::<(), cenote::Error>(())
    /// ```
    pub fn is_immutable(&self) -> bool {
        let done =
            matches!(self.not_writable(), Some(NotWritable::Published | NotWritable::Received));
        let shared = self.memory() == TensorMemory::Shm && self.far_planes.is_none();
        done && shared && self.buffer.stays_unchanged()
    }

    /// Returns whether a [`Loan`] to write its bytes is alive.
    #[inline]
    pub fn is_lent(&self) -> bool {
        self.buffer.write_state().has_loans()
    }

    /// The address of the first element, for code that reads by pointer. It is valid while any handle of the buffer
    /// exists. With negative strides, elements are at lower addresses. It must not be used for OpenGL buffers, which
    /// have an address only while they are mapped.
    pub fn as_ptr(&self) -> *const u8 {
        let start = self.buffer.storage().region.start();
        start.as_ptr().wrapping_add(self.layout.offset()).cast_const()
    }
}
