//! The header of an image, point cloud or depth image: coordinate frame, time stamp, sequence number.

use cenote::Header;

use crate::runtime::error::Result;

/// A header as `_unpickle` takes it: `frame_id`, `stamp_ns`, `seq`.
pub(crate) type HeaderParts = (String, u64, u64);

/// Makes a header. Fails if `frame_id` is too long.
pub(crate) fn header(frame_id: &str, stamp_ns: u64, seq: u64) -> Result<Header> {
    let mut header = Header::default();
    header.set_frame_id(frame_id)?;
    (header.stamp_ns, header.seq) = (stamp_ns, seq);
    Ok(header)
}

/// The fields of a header, for pickling.
pub(crate) fn parts(header: &Header) -> HeaderParts {
    (header.frame_id().to_owned(), header.stamp_ns, header.seq)
}

/// The fields of a header that are set, as `__repr__` shows them.
pub(crate) fn shown(header: &Header) -> String {
    let mut text = String::new();
    if !header.frame_id().is_empty() {
        text += &format!(", frame_id={:?}", header.frame_id());
    }
    for (name, value) in [("stamp_ns", header.stamp_ns), ("seq", header.seq)] {
        if value != 0 {
            text += &format!(", {name}={value}");
        }
    }
    text
}
