//! The type of a topic's messages, in a form that two processes can compare.

use std::borrow::Cow;
use std::fmt;

use bytemuck::{Pod, Zeroable};

use crate::error::Error;
use crate::ipc::topic::plain::Plain;
use crate::sys::socket::peer::Peer;

/// The longest text of a signature, in bytes. A longer one is cut, and a hash of the whole text follows.
const MAX_TEXT: usize = 416;

/// The characters of that hash and of the separator before it.
const HASH: usize = 20;

/// The type of a topic's messages. Publisher and subscriber exchange it in the handshake.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
pub struct Signature {
    /// 0: plain data, which is in the entry itself. Otherwise a tensor or a type over one.
    kind: u32,
    align: u32,
    size: u64,
    len: u64,
    /// The name, or the layout of plain data.
    text: [u8; MAX_TEXT],
}

/// The kind of a tensor. A subscriber of this kind also receives images and other types over a tensor.
const TENSOR: u32 = 1;

impl Signature {
    /// The signature of plain data.
    pub(crate) fn plain<T: Plain>() -> Signature {
        Signature {
            size: size_of::<T>() as u64,
            align: u32::try_from(align_of::<T>()).unwrap_or(u32::MAX),
            ..Self::named(0, &T::layout())
        }
    }

    /// The signature of a tensor, or of a type over one.
    pub(crate) fn tensor(kind: u16, name: &str) -> Signature {
        Self::named(TENSOR + u32::from(kind), name)
    }

    fn named(kind: u32, name: &str) -> Signature {
        let text = shortened(name);
        let mut signature = Signature { kind, len: text.len() as u64, ..Self::zeroed() };
        signature.text[..text.len()].copy_from_slice(text.as_bytes());
        signature
    }

    /// The error for a subscriber of this type that finds a publisher of another.
    pub(crate) fn mismatch(&self, topic: &str, theirs: &Signature, publisher: &Peer) -> Error {
        Error::TypeMismatch {
            topic: topic.to_owned(),
            ours: self.to_string(),
            theirs: theirs.to_string(),
            pid: publisher.pid,
            program: publisher.program(),
        }
    }

    /// The bytes of a message of plain data.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Whether messages have tensors.
    pub(crate) fn is_tensor(&self) -> bool {
        self.kind != 0
    }

    /// Whether a subscriber of this type can receive messages of the other.
    pub(crate) fn reads(&self, other: &Signature) -> bool {
        self == other || (self.kind == TENSOR && other.kind > TENSOR)
    }
}

impl fmt::Display for Signature {
    /// Replaces control characters: the text may come from a hostile process, and people read it in a terminal.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let len = usize::try_from(self.len).unwrap_or(MAX_TEXT).min(MAX_TEXT);
        let name = String::from_utf8_lossy(&self.text[..len]).replace(char::is_control, "?");
        match self.kind {
            0 => write!(f, "{name} ({} bytes, aligned to {})", self.size, self.align),
            _ => f.write_str(&name),
        }
    }
}

/// A text of at most [`MAX_TEXT`] bytes. Different long texts stay different.
fn shortened(text: &str) -> Cow<'_, str> {
    if text.len() <= MAX_TEXT {
        return text.into();
    }
    // FNV-1a, because both sides must use the same hash, whatever they were built with.
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325, step);
    let mut cut = MAX_TEXT - HASH;
    while !text.is_char_boundary(cut) {
        cut -= 1;
    }
    format!("{} .. {hash:016x}", &text[..cut]).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_tensor_reads_every_kind_of_tensor_and_nothing_else() {
        let (tensor, image) = (Signature::tensor(0, "Tensor"), Signature::tensor(1, "Image"));
        assert!(tensor.reads(&tensor) && tensor.reads(&image) && image.reads(&image));
        assert!(!image.reads(&tensor) && !tensor.reads(&Signature::plain::<u32>()));
        assert!(!Signature::plain::<u32>().reads(&Signature::plain::<f32>()));
        assert!(!Signature::plain::<[u8; 4]>().reads(&Signature::plain::<[u8; 8]>()));
    }

    #[test]
    fn garbage_can_be_shown() {
        let mut garbage = Signature::plain::<u32>();
        garbage.text = [0x9f; MAX_TEXT];
        garbage.len = u64::MAX;
        assert!(!garbage.to_string().chars().any(char::is_control));
        assert_eq!(Signature::plain::<f64>().to_string(), "f64 (8 bytes, aligned to 8)");
    }

    #[test]
    fn long_texts_are_cut_and_still_differ() {
        let long = |last: &str| Signature::named(1, &format!("{}{last}", "é".repeat(300)));
        assert_ne!(long("a"), long("b"));
        assert_eq!(long("a"), long("a"));
        let shown = long("a").to_string();
        assert!(
            shown.len() <= MAX_TEXT && shown.starts_with('é') && shown.contains(" .. "),
            "{shown}"
        );
        let whole = "x".repeat(MAX_TEXT);
        assert_eq!(Signature::named(1, &whole).to_string(), whole);
    }
}
