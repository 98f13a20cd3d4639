//! Tensors over memory that the caller hands over: vectors, owners of slices, and foreign memory.

use std::ptr::NonNull;

use crate::error::{Error, Result};
use crate::memory::choose::selection::{Origin, Selection};
use crate::memory::kind::TensorMemory;
use crate::memory::region::Region;
use crate::memory::storage::Storage;
use crate::tensor::buffer::handle::Handle;
use crate::tensor::tensor::{Tensor, check_len};
use crate::types::dtype::{DType, Element};
use crate::types::layout::Layout;

impl Tensor {
    /// Makes a heap tensor of a vector, in row-major order, without copying it. It can be written. Like all heap
    /// memory it cannot be sent without a copy; [`from_slice`](Tensor::from_slice) copies it into memory that
    /// can. Fails unless there are as many values as elements.
    pub fn from_vec<T: Element>(data: Vec<T>, shape: &[usize]) -> Result<Tensor> {
        let layout = Layout::contiguous(shape, T::DTYPE.size())?;
        check_len(&layout, data.len())?;
        Tensor::adopt(Region::vec(data), layout, T::DTYPE)
    }

    /// Makes a read-only tensor of bytes that `owner` holds. The last handle drops `owner`. Fails if there are
    /// too few bytes.
    ///
    /// ```
    /// use cenote::{DType, Tensor};
    /// use std::sync::Arc;
    ///
    /// let bytes: Arc<[u8]> = Arc::from([1u8, 2, 3, 4]);
    /// let tensor = Tensor::from_owner(bytes, &[2, 2], DType::U8)?;
    /// assert_eq!(tensor.to_vec::<u8>()?, [1, 2, 3, 4]);
    /// # Ok::<(), cenote::Error>(())
    /// ```
    pub fn from_owner(
        owner: impl AsRef<[u8]> + Send + Sync + 'static,
        shape: &[usize],
        dtype: DType,
    ) -> Result<Tensor> {
        let layout = Layout::contiguous(shape, dtype.size())?;
        Tensor::adopt(Region::read_only(owner), layout, dtype)
    }

    /// Makes a tensor of bytes that only `owner` can reach. The last handle drops `owner`. If this fails, it
    /// returns `owner` with the error.
    pub(crate) fn from_buffer<O: AsMut<[u8]> + Send + 'static>(
        mut owner: O,
        layout: Layout,
        dtype: DType,
    ) -> Result<Tensor, (O, Error)> {
        if let Err(error) = Tensor::check(&layout, dtype, owner.as_mut().len()) {
            return Err((owner, error));
        }
        let selection = Selection::given(TensorMemory::Mem, Origin::Adopted);
        let storage = Storage::heap(Region::writable(owner), None);
        Ok(Tensor::of(Handle::new(storage, selection), layout, dtype))
    }

    /// Makes a read-only tensor of foreign memory. The last handle calls `release`. If this fails, it calls
    /// `release` before it returns.
    ///
    /// [`from_owner`](Tensor::from_owner) does the same in safe code, for owners that can be borrowed as a
    /// slice.
    ///
    /// # Safety
    /// Until `release` is called, the `len` bytes at `ptr` are valid for reads, initialised, and never written.
    #[allow(unsafe_code, reason = "foreign memory cannot be checked")]
    pub unsafe fn from_raw_parts(
        ptr: NonNull<u8>,
        len: usize,
        layout: Layout,
        dtype: DType,
        release: impl FnOnce() + Send + 'static,
    ) -> Result<Tensor> {
        // SAFETY: the caller's promise, word for word.
        let region = unsafe { Region::foreign(ptr, len, release) };
        Tensor::adopt(region, layout, dtype)
    }

    /// Like [`from_raw_parts`](Tensor::from_raw_parts), for memory that its owner may write later, such as an
    /// array of another language. Each map shows the bytes at that time. `bool` elements cannot be mapped as a
    /// slice.
    ///
    /// # Safety
    /// Until `release` is called, the `len` bytes at `ptr` are valid for reads and initialised. They are not
    /// written while they are [mapped](Tensor::map) or copied.
    #[allow(unsafe_code, reason = "foreign memory cannot be checked")]
    pub unsafe fn from_changeable_parts(
        ptr: NonNull<u8>,
        len: usize,
        layout: Layout,
        dtype: DType,
        release: impl FnOnce() + Send + 'static,
    ) -> Result<Tensor> {
        // SAFETY: the caller's promise. `stable: false` below keeps code from relying on values that stay the
        // same between maps.
        let region = unsafe { Region::foreign(ptr, len, release) };
        let selection = Selection::given(TensorMemory::Mem, Origin::Adopted);
        let storage = Storage { stable: false, ..Storage::heap(region, None) };
        Tensor::over(Handle::new(storage, selection), layout, dtype)
    }

    fn adopt(region: Region, layout: Layout, dtype: DType) -> Result<Tensor> {
        let selection = Selection::given(TensorMemory::Mem, Origin::Adopted);
        Tensor::over(Handle::new(Storage::heap(region, None), selection), layout, dtype)
    }
}
