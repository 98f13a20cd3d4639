//! The OpenGL driver: its functions, its features, EGL, and the bindings that our jobs restore.

pub(crate) mod driver;
pub(crate) mod egl;
pub(crate) mod persistent;
pub(crate) mod saved_bindings;
