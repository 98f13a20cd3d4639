//! The errors of OpenGL.

use std::fmt;
use std::time::Duration;

use crate::error::reason::Dims;

/// Any failure of OpenGL memory, or of its use.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GlError {
    /// This machine has no OpenGL, or the driver lacks a required feature.
    #[error("OpenGL cannot be used for this: {missing}{}", because(.source.as_deref()))]
    Missing {
        /// What is missing.
        missing: &'static str,
        /// The error of the system.
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },

    /// The driver has too old a version of OpenGL.
    #[error("the driver has `{found}`; OpenGL ES 3.0 or OpenGL 3.3 is needed")]
    TooOld {
        /// The version that the driver reports.
        found: Box<str>,
    },

    /// The context is gone, and the bytes of its buffers with it.
    #[error("the OpenGL context is gone: {why}")]
    Gone {
        /// The reason.
        why: GlGone,
    },

    /// The context was closed. It is deleted when the existing maps are dropped.
    #[error("the OpenGL context is closed, but {maps} maps keep it alive; drop them")]
    MapsAlive {
        /// Maps that are alive.
        maps: usize,
    },

    /// The thread of the context does nothing.
    #[error("the thread of the OpenGL context did not come to {op} for {waited:?}: is it blocked?")]
    NoAnswer {
        /// The operation.
        op: &'static str,
        /// How long the caller waited.
        waited: Duration,
    },

    /// The driver refused.
    #[error("{op} failed: {code}")]
    Refused {
        /// What was attempted.
        op: &'static str,
        /// The error of the driver.
        code: GlCode,
    },

    /// The buffer is mapped, and this driver cannot use it meanwhile.
    #[error(
        "the tensor is mapped, and without persistent maps the driver cannot use it; drop the maps"
    )]
    Mapped,

    /// The driver has lost the contents of a buffer that was mapped.
    #[error(
        "the driver lost what was written to the buffer while it was mapped; write all of it again"
    )]
    ContentLost,

    /// A buffer with more bytes than OpenGL can address.
    #[error("an OpenGL buffer has at most {max} bytes, not {len}")]
    TooLarge {
        /// The bytes requested.
        len: usize,
        /// The most there can be.
        max: i32,
    },

    /// A tensor or texture of another context.
    #[error("it belongs to another OpenGL context")]
    OtherContext,

    /// A tensor that cannot be a texture.
    #[error(
        "a tensor of {dtype} with shape {shape:?} and byte strides {strides:?} is no texture: {rule}"
    )]
    NotTexels {
        /// Its dtype.
        dtype: &'static str,
        /// Its shape.
        shape: Dims,
        /// Its byte strides.
        strides: Box<[isize]>,
        /// The rule it breaks.
        rule: &'static str,
    },

    /// A texture that this driver does not have, or not of this size, or cannot read back.
    #[error("the driver cannot {op} a texture of {width}x{height} with {channels} x {dtype}")]
    Texture {
        /// What was attempted.
        op: &'static str,
        /// The width.
        width: usize,
        /// The height.
        height: usize,
        /// Values of a texel.
        channels: usize,
        /// The dtype of the values.
        dtype: &'static str,
    },

    /// A tensor and a texture that must have the same size and type.
    #[error("the texture is {texture}, the tensor {tensor}")]
    Unlike {
        /// Size, channels and dtype of the texture.
        texture: Box<str>,
        /// Size, channels and dtype of the tensor.
        tensor: Box<str>,
    },

    /// A DMA-BUF image that breaks a rule.
    #[error("the DMA-BUF cannot be a texture: {rule}")]
    BadDmaBuf {
        /// The rule.
        rule: &'static str,
    },
}

fn because(source: Option<&(dyn std::error::Error + Send + Sync)>) -> String {
    source.map(|source| format!(": {source}")).unwrap_or_default()
}

/// Why a context does not exist any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GlGone {
    /// It was closed.
    #[error("it was closed")]
    Closed,
    /// Its thread has ended.
    #[error("its thread has ended")]
    Thread,
    /// The driver has reset it. The next call to the driver detects this; until then persistent maps can be read and
    /// written.
    #[error("the driver has reset it")]
    Lost,
    /// It belongs to the parent of this forked process.
    #[error("it belongs to the process that this one was forked from")]
    Forked,
}

/// A code of `glGetError` or `eglGetError`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct GlCode(pub u32);

/// The names of the codes in the standards. (A driver may have others.)
const NAMES: [(u32, &str); 20] = [
    (0x0500, "GL_INVALID_ENUM"),
    (0x0501, "GL_INVALID_VALUE"),
    (0x0502, "GL_INVALID_OPERATION"),
    (0x0505, "GL_OUT_OF_MEMORY"),
    (0x0506, "GL_INVALID_FRAMEBUFFER_OPERATION"),
    (0x0507, "GL_CONTEXT_LOST"),
    (0x3001, "EGL_NOT_INITIALIZED"),
    (0x3002, "EGL_BAD_ACCESS"),
    (0x3003, "EGL_BAD_ALLOC"),
    (0x3004, "EGL_BAD_ATTRIBUTE"),
    (0x3005, "EGL_BAD_CONFIG"),
    (0x3006, "EGL_BAD_CONTEXT"),
    (0x3007, "EGL_BAD_CURRENT_SURFACE"),
    (0x3008, "EGL_BAD_DISPLAY"),
    (0x3009, "EGL_BAD_MATCH"),
    (0x300a, "EGL_BAD_NATIVE_PIXMAP"),
    (0x300b, "EGL_BAD_NATIVE_WINDOW"),
    (0x300c, "EGL_BAD_PARAMETER"),
    (0x300d, "EGL_BAD_SURFACE"),
    (0x300e, "EGL_CONTEXT_LOST"),
];

/// The codes for "no error", of OpenGL and of EGL.
const SUCCESS: [u32; 2] = [0, 0x3000];

impl fmt::Display for GlCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match NAMES.iter().find(|(code, _)| *code == self.0) {
            Some((_, name)) => f.write_str(name),
            None if SUCCESS.contains(&self.0) => f.write_str("the driver does not say why"),
            None => write!(f, "error {:#06x}", self.0),
        }
    }
}

impl fmt::Debug for GlCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GlCode({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_of_egl_has_a_name() {
        // EGL 1.5, 3.1: EGL_NOT_INITIALIZED to EGL_CONTEXT_LOST.
        for code in 0x3001..=0x300e {
            let shown = GlCode(code).to_string();
            assert!(shown.starts_with("EGL_"), "{code:#x}: {shown}");
        }
    }

    #[test]
    fn an_unknown_code_shows_its_number_and_no_error_shows_no_reason() {
        assert_eq!(GlCode(0x1234).to_string(), "error 0x1234");
        let refused = GlError::Refused { op: "glFenceSync", code: GlCode(0) };
        assert_eq!(refused.to_string(), "glFenceSync failed: the driver does not say why");
    }

    #[test]
    fn a_missing_feature_is_not_reported_as_missing_opengl() {
        let missing = "the driver has no EGL_EXT_image_dma_buf_import";
        let shown = GlError::Missing { missing, source: None }.to_string();
        assert_eq!(shown, format!("OpenGL cannot be used for this: {missing}"));
        let source = Some("no such file".into());
        let shown = GlError::Missing { missing: "there is no libEGL.so.1", source }.to_string();
        assert!(shown.ends_with("there is no libEGL.so.1: no such file"), "{shown}");
    }
}
