//! Loans: access for code that Rust's borrows do not reach, such as arrays of Python.
//!
//! [`Tensor::map_mut`](crate::Tensor::map_mut) asks for the sole holder, for as long as a borrow
//! lasts. An array in another language has a pointer, for as long as it likes. So the buffer counts
//! those: while there are any it is not published, and once it is there are none.

use crate::error::{Error, NotWritable, Result};
use crate::memory::cpu_access::{CpuAccess, Direction};
use crate::memory::kind::TensorMemory;
use crate::tensor::Tensor;

/// Access to the bytes of a tensor by pointer, until dropped.
///
/// While a loan [to write](Tensor::lend) is alive, the tensor cannot be sent as it is:
/// [`Topic::send`](crate::Topic::send) copies it first, and says so; [`descriptor`](Tensor::descriptor)
/// refuses.
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
    /// Devices have their caches put in order when it ends, which is before the tensor does.
    _access: CpuAccess<'static>,
    tensor: Tensor,
    /// Counted by the buffer.
    writable: bool,
}

impl Loan {
    /// The address of the first element. The bytes of the [`layout`](Tensor::layout) around it may
    /// be read, and written if the loan [is to write](Loan::is_writable), until it is dropped; by one
    /// thread at a time, and while nobody has them [mapped](Tensor::map).
    pub fn as_ptr(&self) -> *mut u8 {
        self.tensor.as_ptr().cast_mut()
    }

    /// Whether the bytes may be written.
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    /// The tensor that was lent.
    pub fn tensor(&self) -> &Tensor {
        &self.tensor
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        if self.writable {
            self.tensor.buffer.sharing().give_back();
        }
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
        // Its access by the CPU has a beginning and an end, which a pointer that writes has not.
        if matches!(self.memory(), TensorMemory::Dma | TensorMemory::Pbo) {
            return Err(refused(NotWritable::Device));
        }
        let mut loan = self.lend_to_read()?;
        loan.writable = self.buffer.sharing().lend();
        loan.writable.then_some(loan).ok_or(refused(NotWritable::Published))
    }

    /// Lends the bytes to code that reads by pointer, whoever else has them. It does not keep them from
    /// being sent. An error for memory that has an address only now and then (OpenGL).
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

    /// Whether the bytes stay as they are, at [one address](Tensor::as_ptr), for as long as any handle of them
    /// lives: they are in shared memory, were sent or received, and nobody else can write them. Who reads those by
    /// pointer needs no loan. What a forked child inherited is not settled.
    ///
    /// ```
    /// use cenote::{DType, Tensor, TensorPool, TensorPoolConfig};
    /// # let dir = std::env::temp_dir().join(format!("cenote-settled-{}", std::process::id()));
    /// # unsafe { std::env::set_var("CENOTE_DIR", &dir) };
    ///
    /// let pool = TensorPool::new("frames", TensorPoolConfig::default())?;
    /// let tensor = pool.alloc(&[4], DType::U8)?;
    /// assert!(!tensor.is_settled());
    /// let descriptor = tensor.descriptor()?; // for another process
    /// assert!(tensor.is_settled());
    /// # drop((tensor, pool));
    /// # std::fs::remove_dir_all(dir).ok();
    /// # Ok::<(), cenote::Error>(())
    /// ```
    pub fn is_settled(&self) -> bool {
        let done =
            matches!(self.not_writable(), Some(NotWritable::Published | NotWritable::Received));
        let shared = self.memory() == TensorMemory::Shm && self.far_planes.is_none();
        done && shared && self.buffer.stays()
    }

    /// Whether a [`Loan`] of its bytes to write is alive.
    #[inline]
    pub fn is_lent(&self) -> bool {
        self.buffer.sharing().is_lent()
    }

    /// The address of the first element, for code that reads by pointer. It is valid while any handle
    /// of the buffer lives; strides may lead to lower addresses. Of no use for OpenGL buffers, which have
    /// an address only while they are mapped.
    pub fn as_ptr(&self) -> *const u8 {
        let start = self.buffer.storage().region.start();
        start.as_ptr().wrapping_add(self.layout.offset()).cast_const()
    }
}
