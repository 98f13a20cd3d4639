//! Memory for tensors: one [`Tensor`] over heap memory, shared memory and device buffers, shared
//! between processes without copying.
//!
//! ```
//! use cenote::{DType, Tensor};
//!
//! let mut tensor = Tensor::new(&[2, 3], DType::F32)?;
//! tensor.map_mut()?.as_mut_slice::<f32>()?.fill(1.5);
//! assert_eq!(tensor.transpose().shape(), [3, 2]);
//! # Ok::<(), cenote::Error>(())
//! ```
//!
//! - [`Tensor`] is the handle; [`TensorOptions`] say how to allocate one.
//! - [`TensorMemory`] is the kind of memory that its bytes are in, and [`Selection`] says why.
//! - [`DType`] and [`Element`] are the types of its elements, [`Layout`] is their order in memory.
//! - [`PixelFormat`] makes an image of it; [`Image`], [`PointCloud`] and [`DepthImage`] say what it
//!   means, and where and when it was recorded.
//! - [`Topic`] sends them to other processes and receives them, without a copy. [`TopicConfig`] and
//!   [`Policy`] configure it, [`WaitSet`] waits for several topics, [`topics`] lists them, and an [`Observer`]
//!   reads messages without being a subscriber (Linux).
//! - [`Protection`] says what keeps other processes from writing; [`Tensor::dmabuf`] shares memory with
//!   devices (Linux).
//! - [`TensorPool`] allocates in nanoseconds and shares with other processes; [`pools`] lists pools
//!   (Linux).
//! - [`BufferPool`] recycles host memory; [`host_pool`] has related types.
//! - [`Error`] is the error of every fallible call; [`copies`] counts copied bytes.
//!
//! Three rules are worth knowing before the first call:
//!
//! - **Access goes through guards.** [`Tensor::map`] and [`Tensor::map_mut`] return guards, which give
//!   access to slices. Elements that are not contiguous are not a slice: see [`TensorMap::runs`].
//! - **Writing needs the sole handle**, as with `Arc::get_mut`. Clones and views are handles, too, and
//!   memory that was sent to another process is never written again. [`Tensor::make_mut`] copies
//!   if [`Tensor::map_mut`] would refuse.
//! - **A tensor chooses its memory** unless [`TensorOptions::memory`] says otherwise. Without DMA-BUFs it
//!   is in shared memory, and [`Tensor::selection`] says why. Only a `GlContext` makes OpenGL buffers
//!   (feature `gl`).
//!
//! Strides and offsets are in bytes. File descriptors, sockets and shared memory exist on Linux only.

#[cfg(all(feature = "camera", target_os = "linux", target_pointer_width = "64"))]
mod camera;
mod copies;
mod domain;
mod error;
#[cfg(all(target_os = "linux", feature = "gl"))]
mod gl;
pub mod host_pool;
mod intervals;
pub(crate) mod ipc;
mod memory;
mod sync;
mod sys;
mod tensor;
#[cfg(all(target_os = "linux", feature = "gl"))]
mod texture;
mod types;

pub use bytemuck;
#[cfg(all(feature = "camera", target_os = "linux", target_pointer_width = "64"))]
pub use camera::config::CameraConfig;
#[cfg(all(feature = "camera", target_os = "linux", target_pointer_width = "64"))]
pub use camera::{Camera, CameraStats};
pub use copies::{Copies, CopyReason, copies};
pub use domain::Domain;
pub use domain::cloud::PointCloud;
pub use domain::cloud::field::{Field, MAX_FIELD_NAME, MAX_FIELDS};
pub use domain::cloud::points::{Point, Points};
pub use domain::depth::DepthImage;
pub use domain::depth::intrinsics::Intrinsics;
pub use domain::depth::measure::DepthStats;
pub use domain::image::Image;
pub use domain::image::pixel::{Pixel, PixelArray, PixelValue};
pub use error::{Dims, Error, Result};
#[cfg(all(target_os = "linux", feature = "gl"))]
pub use error::{GlCode, GlError, GlGone};
pub use error::{Holder, Limit, NotWritable, Shortage, Tried, Unavailable};
#[cfg(all(target_os = "linux", feature = "gl"))]
pub use gl::context::{GlContext, GlInfo, GlStats};
#[cfg(all(target_os = "linux", feature = "gl"))]
pub use gl::thread::gl_thread::GlThread;
#[cfg(all(target_os = "linux", feature = "gl"))]
pub use gl::thread::queue::GlWork;
#[cfg(all(target_os = "linux", feature = "gl"))]
pub use glow;
pub use half::{bf16, f16};
pub use host_pool::{Buffer, BufferPool, MemoryPool, UnifiedBuffer, UninitBuffer};
#[cfg(target_os = "linux")]
pub use ipc::discovery::access::PoolAccess;
#[cfg(target_os = "linux")]
pub use ipc::discovery::cleanup::remove_dead;
#[cfg(target_os = "linux")]
pub use ipc::discovery::layout::{DIR_ENV, NAMESPACE_ENV, namespace_dir};
#[cfg(target_os = "linux")]
pub use ipc::pool::config::TensorPoolConfig;
#[cfg(target_os = "linux")]
pub use ipc::pool::descriptor::TensorDescriptor;
#[cfg(target_os = "linux")]
pub use ipc::pool::report::{PoolAccount, PoolInfo, pools};
#[cfg(target_os = "linux")]
pub use ipc::pool::stats::PoolStats;
#[cfg(target_os = "linux")]
pub use ipc::pool::tensor_pool::{PoolName, TensorPool};
#[cfg(target_os = "linux")]
pub use ipc::topic::config::{Policy, TopicConfig};
#[cfg(target_os = "linux")]
pub use ipc::topic::inspect::info::{PublisherInfo, SubscriberInfo, TopicInfo};
#[cfg(target_os = "linux")]
pub use ipc::topic::inspect::listing::topics;
#[cfg(target_os = "linux")]
pub use ipc::topic::inspect::observer::{Content, Observer, Sighting};
#[cfg(target_os = "linux")]
pub use ipc::topic::message::Message;
#[cfg(target_os = "linux")]
pub use ipc::topic::plain::Plain;
#[cfg(target_os = "linux")]
#[doc(hidden)]
pub use ipc::topic::plain::StructLayout;
#[cfg(target_os = "linux")]
pub use ipc::topic::stats::{StagedBecause, StagedCopies, TopicStats};
#[cfg(target_os = "linux")]
pub use ipc::topic::subscriber::wait_set::WaitSet;
#[cfg(target_os = "linux")]
pub use ipc::topic::topic::Topic;
pub use memory::choose::choose::FORCE_MEM_ENV;
pub use memory::choose::selection::{NotGranted, PassedOver, Selection, Wish};
#[cfg(target_os = "linux")]
pub use memory::dma::dma_heaps::DMA_HEAP_ENV;
pub use memory::kind::TensorMemory;
pub use memory::storage::Protection;
pub use num_complex::Complex;
pub use tensor::Tensor;
pub use tensor::buffer::BufferIdentity;
pub use tensor::buffer::loan::Loan;
#[cfg(target_os = "linux")]
pub use tensor::image::plane_descriptor::PlaneDescriptor;
pub use tensor::map::{TensorMap, TensorMapMut};
pub use tensor::options::TensorOptions;
#[cfg(all(target_os = "linux", feature = "gl"))]
pub use texture::GlTexture;
#[cfg(all(target_os = "linux", feature = "gl"))]
pub use texture::dmabuf_image::DmaBufImage;
pub use types::device::Device;
pub use types::device::cuda::{cuda_available, cuda_device_count};
pub use types::dtype::{DType, Element};
pub use types::layout::runs::Runs;
pub use types::layout::{Layout, MAX_DIMS};
pub use types::metadata::header::{Header, MAX_FRAME_ID};
pub use types::pixel_format::few::Few;
pub use types::pixel_format::fourcc::FourCc;
pub use types::pixel_format::geometry::{ImageShape, Plane, Planes};
pub use types::pixel_format::{FormatKind, PixelFormat};

/// The doctests run the Rust examples of the pages that live outside the crate.
#[cfg(all(doctest, target_os = "linux"))]
mod pages {
    #[doc = include_str!("../../../README.md")]
    struct Readme;

    #[doc = include_str!("../../../guide/README.md")]
    struct Guide;

    #[doc = include_str!("../../../guide/SUMMARY.md")]
    struct Summary;

    #[doc = include_str!("../../../guide/quick-start.md")]
    struct QuickStart;

    #[doc = include_str!("../../../guide/camera-to-model.md")]
    struct CameraToModel;

    #[doc = include_str!("../../../guide/faq.md")]
    struct Faq;

    #[doc = include_str!("../../../guide/coming-from.md")]
    struct ComingFrom;

    #[doc = include_str!("../../../guide/topics.md")]
    struct Topics;

    #[doc = include_str!("../../../guide/crashes.md")]
    struct Crashes;

    #[doc = include_str!("../../../guide/tensors.md")]
    struct Tensors;

    #[doc = include_str!("../../../guide/images.md")]
    struct Images;

    #[doc = include_str!("../../../guide/pools.md")]
    struct Pools;

    #[doc = include_str!("../../../guide/buffer-pools.md")]
    struct BufferPools;

    #[cfg(all(feature = "camera", target_pointer_width = "64"))]
    #[doc = include_str!("../../../guide/dma.md")]
    struct Dma;

    #[cfg(feature = "gl")]
    #[doc = include_str!("../../../guide/opengl.md")]
    struct OpenGl;

    #[doc = include_str!("../../../guide/command.md")]
    struct Command;

    #[doc = include_str!("../../../guide/containers-and-permissions.md")]
    struct ContainersAndPermissions;

    #[doc = include_str!("../../../guide/environment.md")]
    struct Environment;

    #[doc = include_str!("../../../guide/numbers.md")]
    struct Numbers;
}
