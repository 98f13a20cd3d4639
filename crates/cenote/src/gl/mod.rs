//! OpenGL: a context, the thread that it lives on, and how others have work done there.
//!
//! ```text
//! GlContext ── Core ── GlThread: ours (headless.rs, with egl.rs), or the application's
//!                ├──── functions and facts of the driver (driver.rs)
//!                ├──── gate: how many maps are alive, and whether it is closed (gate.rs)
//!                ├──── objects: what was made there and not deleted yet (objects.rs)
//!                └──── held: memory that the GPU may still use (held.rs)
//! ```
//!
//! OpenGL calls are made on the context's thread and nowhere else. Everybody else hands work over
//! and waits for it. On the thread itself work is done at once, so nobody waits for himself, and no
//! lock is held while anybody waits.
//!
//! What lives in a buffer is in `memory/pbo.rs`, what is done with textures in `texture/texture.rs`.

pub(crate) mod context;
pub(crate) mod core;
pub(crate) mod driver;
pub(crate) mod egl;
pub(crate) mod fence;
pub(crate) mod gate;
pub(crate) mod headless;
pub(crate) mod held;
pub(crate) mod imports;
pub(crate) mod objects;
pub(crate) mod state;
pub(crate) mod thread;
