//! What a topic carries, in words that two processes can compare.

use std::fmt;

use bytemuck::{Pod, Zeroable};

use crate::error::Error;
use crate::os::peer::Peer;

/// The longest name of a type that is told to others; the rest is cut.
const MAX_NAME: usize = 104;

/// The type of a topic's messages, as it is told to whoever subscribes.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
pub struct Signature {
    /// 0: plain data, in the entry itself. Otherwise a tensor, and what it is.
    kind: u32,
    align: u32,
    size: u64,
    name_len: u64,
    name: [u8; MAX_NAME],
}

/// The kind of any tensor: whoever asks for it takes images and the others, too.
const TENSOR: u32 = 1;

impl Signature {
    /// Of plain data.
    pub(crate) fn plain<T>() -> Signature {
        let name = without_paths(std::any::type_name::<T>());
        Signature {
            size: size_of::<T>() as u64,
            align: u32::try_from(align_of::<T>()).unwrap_or(u32::MAX),
            ..Self::named(0, &name)
        }
    }

    /// Of a tensor, or something made of one.
    pub(crate) fn tensor(kind: u16, name: &str) -> Signature {
        Self::named(TENSOR + u32::from(kind), name)
    }

    fn named(kind: u32, name: &str) -> Signature {
        let mut cut = name.len().min(MAX_NAME);
        while !name.is_char_boundary(cut) {
            cut -= 1;
        }
        let mut signature = Signature { kind, name_len: cut as u64, ..Self::zeroed() };
        signature.name[..cut].copy_from_slice(&name.as_bytes()[..cut]);
        signature
    }

    /// What to tell somebody who expects this, and meets a publisher of something else.
    pub(crate) fn mismatch(&self, topic: &str, theirs: &Signature, publisher: &Peer) -> Error {
        Error::TypeMismatch {
            topic: topic.to_owned(),
            ours: self.to_string(),
            theirs: theirs.to_string(),
            pid: publisher.pid,
            program: publisher.program(),
        }
    }

    /// The bytes of a message, if it is plain data.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Whether messages are tensors.
    pub(crate) fn is_tensor(&self) -> bool {
        self.kind != 0
    }

    /// Whether somebody who expects this can read what has the other signature.
    pub(crate) fn reads(&self, other: &Signature) -> bool {
        self == other || (self.kind == TENSOR && other.kind > TENSOR)
    }
}

impl fmt::Display for Signature {
    /// Whoever wrote it may be hostile, and people read it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let len = usize::try_from(self.name_len).unwrap_or(MAX_NAME).min(MAX_NAME);
        let name = String::from_utf8_lossy(&self.name[..len]).replace(char::is_control, "?");
        match self.kind {
            0 => write!(f, "{name} ({} bytes, aligned to {})", self.size, self.align),
            _ => f.write_str(&name),
        }
    }
}

/// The name of a type without the modules it is in: `geometry::Pose<core::Meters>` becomes
/// `Pose<Meters>`. Programs that share a type may well have it in different places.
fn without_paths(name: &str) -> String {
    let mut short = String::new();
    for (index, part) in name.split("::").enumerate() {
        if index > 0 {
            let path = short.trim_end_matches(|c: char| c.is_alphanumeric() || c == '_').len();
            short.truncate(path);
        }
        short.push_str(part);
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_not_part_of_a_name() {
        for (long, short) in [
            ("u32", "u32"),
            ("robot::arm::Pose", "Pose"),
            ("[robot::Pose; 3]", "[Pose; 3]"),
            ("a::Pair<b::c::X, d::Y>", "Pair<X, Y>"),
            ("(f32, a::B)", "(f32, B)"),
        ] {
            assert_eq!(without_paths(long), short);
        }
    }

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
        garbage.name = [0x9f; MAX_NAME];
        garbage.name_len = u64::MAX;
        assert!(!garbage.to_string().chars().any(char::is_control));
        assert_eq!(Signature::plain::<f64>().to_string(), "f64 (8 bytes, aligned to 8)");
        assert!(Signature::named(1, &"é".repeat(100)).to_string().len() <= MAX_NAME);
    }
}
