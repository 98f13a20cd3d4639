//! OpenGL: a context, the thread that it is current on, and the objects made in it.
//!
//! ```text
//! GlContext ── Core ─┬─ Executor: runs jobs on the context's thread (thread/)
//!                    │     a headless thread of ours, or a `GlThread` of the application
//!                    ├─ Resources: what jobs work with (resources.rs)
//!                    │     ├─ Driver: functions and features of the driver (driver/)
//!                    │     ├─ Objects: what was created and not deleted yet (objects.rs)
//!                    │     └─ DeferredDrops: memory that the GPU may still use (deferred_drops.rs)
//!                    ├─ LiveMaps: how many maps exist, and whether the context is closed
//!                    └─ TextureCache: textures of DMA-BUFs that are still alive
//! ```
//!
//! All OpenGL calls are made on the context's thread. Every other thread submits a job and waits for its
//! result. On the context's thread itself a job runs at once, so that thread never waits for itself. No
//! lock is held during a wait.
//!
//! Tensors in OpenGL buffers are in `memory/pbo.rs`, transfers to and from textures in `texture/`.

pub(crate) mod context;
pub(crate) mod core;
pub(crate) mod deferred_drops;
pub(crate) mod driver;
pub(crate) mod fence;
pub(crate) mod live_maps;
pub(crate) mod objects;
pub(crate) mod resources;
pub(crate) mod texture_cache;
pub(crate) mod thread;
