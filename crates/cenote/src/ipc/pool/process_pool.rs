//! The pool that every process has, so that its tensors can be sent without a copy and without a setup.
//!
//! The first use makes it. A forked child makes its own. On systems without shared memory, and under
//! `CENOTE_FORCE_MEM`, tensors are on the heap instead.

use crate::copies;
use crate::copies::CopyReason;
use crate::error::Result;
use crate::memory::choose::choose;
use crate::tensor::Tensor;
use crate::tensor::image::image_layout::ImageLayout;
use crate::tensor::map::TensorMapMut;
use crate::types::dtype::DType;
use crate::types::pixel_format::PixelFormat;

impl Tensor {
    /// Allocates a tensor of zeros in the [pool of this process](crate::TensorPool::of_process), so that it can be
    /// sent or described without a copy. Under `CENOTE_FORCE_MEM`, and on systems without shared memory, it is on the
    /// heap.
    pub fn pooled_zeros(shape: &[usize], dtype: DType) -> Result<Tensor> {
        zeros(shape, dtype)
    }

    /// A packed copy in the pool of this process, or on the heap where [`pooled_zeros`](Tensor::pooled_zeros)
    /// allocates there. [`copies`](crate::copies) counts it.
    pub fn to_pooled(&self) -> Result<Tensor> {
        copy(self, CopyReason::CopiedIn)
    }
}

/// A tensor of zeros in the process's pool.
pub(crate) fn zeros(shape: &[usize], dtype: DType) -> Result<Tensor> {
    cleared(alloc(shape, dtype)?)
}

/// A black image in the process's pool.
pub(crate) fn black(width: usize, height: usize, format: PixelFormat) -> Result<Tensor> {
    let image = ImageLayout::new((width, height), format, 1)?;
    let bytes = alloc(&[image.bytes()], DType::U8)?;
    cleared(image.over(bytes.buffer)?)
}

/// Write access to `tensor`. A tensor that cannot be written becomes a copy in the process's pool first.
pub(crate) fn make_mut(tensor: &mut Tensor) -> Result<TensorMapMut<'_>> {
    if tensor.map_mut().is_err() {
        *tensor = copy(tensor, CopyReason::MakeMut)?;
    }
    tensor.map_mut()
}

/// A packed copy in the process's pool.
pub(crate) fn copy(tensor: &Tensor, reason: CopyReason) -> Result<Tensor> {
    let (layout, len) = tensor.copy_layout()?;
    let room = alloc(&[len], DType::U8)?.reinterpreted(layout, tensor.dtype)?;
    let (copy, bytes) = room.filled_from(tensor)?;
    copies::count(reason, bytes);
    Ok(copy)
}

/// A tensor in the process's pool. Its bytes are those of an earlier tensor.
pub(crate) fn alloc(shape: &[usize], dtype: DType) -> Result<Tensor> {
    if choose::force_mem()? {
        return Tensor::new(shape, dtype);
    }
    #[cfg(target_os = "linux")]
    return crate::ipc::pool::tensor_pool::TensorPool::of_process()?.alloc(shape, dtype);
    #[cfg(not(target_os = "linux"))]
    Tensor::new(shape, dtype)
}

/// Clears the whole buffer: an image may have samples beyond its elements.
fn cleared(mut tensor: Tensor) -> Result<Tensor> {
    tensor.map_mut()?.all_mut().fill(0);
    Ok(tensor)
}

#[cfg(target_os = "linux")]
mod linux {
    use crate::sync::{Ordering, StaticBool};
    use std::convert::Infallible;
    use std::path::Path;
    use std::sync::{Mutex, PoisonError};

    use rustix::process::getpid;
    use rustix::rand::{GetRandomFlags, getrandom};

    use crate::error::{Error, Result};
    use crate::ipc::discovery::access::PoolAccess;
    use crate::ipc::discovery::socket_dir::SocketDir;
    use crate::ipc::pool::config::TensorPoolConfig;
    use crate::ipc::pool::tensor_pool::TensorPool;
    use crate::sys::exit;
    use crate::sys::fork::PerProcess;

    /// The prefix of the names of these pools. The process id and a random number follow.
    const PREFIX: &str = "process-";

    impl TensorPool {
        /// The pool of this process, in which [`Image::new`](crate::Image::new) and similar functions allocate. The first
        /// call makes it. It reserves memory when needed, up to 2 GiB and 8192 tensors. For more, make a pool and use
        /// [`Image::new_in`](crate::Image::new_in).
        ///
        /// A forked child gets its own.
        ///
        /// ```
        /// use cenote::{DType, TensorPool};
        /// # let dir = std::env::temp_dir().join(format!("cenote-doc3-{}", std::process::id()));
        /// # std::fs::create_dir_all(&dir)?; unsafe { std::env::set_var("CENOTE_DIR", &dir) };
        ///
        /// let tensor = TensorPool::of_process()?.alloc(&[480, 640], DType::U8)?;
        /// let descriptor = tensor.descriptor()?; // for any process of this user
        /// # drop(tensor); TensorPool::close_of_process(); std::fs::remove_dir_all(&dir)?;
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
        pub fn of_process() -> Result<TensorPool> {
            // A panic would leave it as it was, or filled.
            let mut pool = current().lock().unwrap_or_else(PoisonError::into_inner);
            match &*pool {
                Some(pool) => Ok(pool.clone()),
                None => Ok(pool.insert(make()?).clone()),
            }
        }

        /// Closes the pool that [`of_process`](TensorPool::of_process) made, if it did. Other processes no longer find
        /// it; tensors from it stay valid. The next call of `of_process` makes another pool. A process that exits closes its
        /// pool by itself.
        pub fn close_of_process() {
            close();
        }
    }

    fn current() -> &'static Mutex<Option<TensorPool>> {
        static CURRENT: PerProcess<Mutex<Option<TensorPool>>> = PerProcess::new();
        let Ok(current) = CURRENT.get(|| Ok::<_, Infallible>(Mutex::default()));
        current
    }

    fn make() -> Result<TensorPool> {
        // No lock: in a child that was forked while another thread held it, it would stay locked for ever.
        static AT_EXIT: StaticBool = StaticBool::new(false);
        if !AT_EXIT.swap(true, Ordering::Relaxed) {
            exit::at_exit(close);
        }
        remove_dead();
        let mut random = [0; 4];
        getrandom(&mut random, GetRandomFlags::empty())
            .map_err(|source| Error::os("getrandom", source))?;
        // Process ids are not unique where containers share a directory.
        let pid = getpid().as_raw_nonzero();
        let name = format!("{PREFIX}{pid}-{:08x}", u32::from_ne_bytes(random));
        TensorPool::new(name, config())
    }

    /// A large pool, with segments that are short enough to be reserved at once.
    fn config() -> TensorPoolConfig {
        TensorPoolConfig { pool_size: 2 << 30, max_slots: 8192, ..TensorPoolConfig::default() }
    }

    /// Removes the endpoints of such pools whose processes were killed. No process looks for their names, so no other
    /// code would remove them.
    fn remove_dead() {
        let Ok(socket_dir) = SocketDir::open("pools", PoolAccess::SameUser) else { return };
        for endpoint in socket_dir.endpoints().unwrap_or_default() {
            let rest = endpoint.name.strip_prefix(PREFIX).and_then(|rest| rest.split_once('-'));
            // A process with this id may be another one. Then the endpoint stays.
            if rest.is_some_and(|(pid, _)| !Path::new("/proc").join(pid).exists()) {
                socket_dir.remove_dead(&endpoint);
            }
        }
    }

    /// Statics are never dropped, so this removes the endpoint when the process exits.
    extern "C" fn close() {
        // A thread that holds the lock still uses the pool. An endpoint that stays does no harm.
        drop(current().try_lock().ok().and_then(|mut pool| pool.take()));
    }
}
