//! The error type of the crate.
//!
//! Each variant says what was requested and what was found, so that the caller can act on it. This module imports no
//! other room, so its fields are plain numbers and names.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

#[cfg(all(target_os = "linux", feature = "gl"))]
use crate::error::gl::GlError;
use crate::error::reason::{Dims, Holder, Limit, NotWritable, Shortage, Unavailable, for_how_long};

/// The result of every fallible call in this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Any failure of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    // Shapes, strides and views.
    /// More dimensions than a layout can hold.
    #[error("a layout has at most {max} dimensions, this one asks for {found}")]
    TooManyDims {
        /// Dimensions requested.
        found: usize,
        /// The most that are supported.
        max: usize,
    },

    /// A dimension of length zero.
    #[error("dimension {axis} of shape {shape:?} is zero; every dimension must be at least 1")]
    ZeroDim {
        /// The dimension that is zero.
        axis: usize,
        /// The whole shape.
        shape: Dims,
    },

    /// Elements of zero bytes.
    #[error("an element must have at least one byte")]
    ZeroItemSize,

    /// The size in bytes does not fit the address space.
    #[error("shape {shape:?} with {item_size}-byte elements overflows the address space")]
    SizeOverflow {
        /// The shape requested.
        shape: Dims,
        /// Bytes of one element.
        item_size: usize,
    },

    /// Shape and strides have different lengths.
    #[error("shape has {dims} dimensions but {strides} strides were given")]
    StrideCount {
        /// Dimensions of the shape.
        dims: usize,
        /// Strides given.
        strides: usize,
    },

    /// A layout that reaches outside its buffer.
    #[error("the layout covers bytes {start}..{end} but the buffer has {len} bytes")]
    OutOfBuffer {
        /// First byte covered (negative: before the buffer).
        start: i128,
        /// One past the last byte covered.
        end: i128,
        /// Bytes in the buffer.
        len: usize,
    },

    /// An axis that the tensor does not have.
    #[error("axis {axis} is out of range for {ndim} dimensions")]
    NoSuchAxis {
        /// The axis requested.
        axis: usize,
        /// Dimensions there are.
        ndim: usize,
    },

    /// A range or index beyond the end of an axis.
    #[error("{start}..{end} is out of range for axis {axis} of length {len}")]
    OutOfRange {
        /// The axis.
        axis: usize,
        /// First index requested.
        start: usize,
        /// One past the last index requested.
        end: usize,
        /// Length of the axis.
        len: usize,
    },

    /// A view that would have no elements.
    #[error("the range {start}..{end} with step {step} on axis {axis} selects nothing")]
    EmptyView {
        /// The axis.
        axis: usize,
        /// First index requested.
        start: usize,
        /// One past the last index requested.
        end: usize,
        /// The step requested.
        step: usize,
    },

    /// Axes that are not a permutation.
    #[error("{axes:?} is not a permutation of the {ndim} axes")]
    NotAPermutation {
        /// The axes given.
        axes: Dims,
        /// Dimensions there are.
        ndim: usize,
    },

    /// A reshape to another number of elements.
    #[error("shape {from:?} has {from_len} elements, shape {to:?} has {to_len}")]
    ReshapeLen {
        /// The shape there is.
        from: Dims,
        /// Its number of elements.
        from_len: usize,
        /// The shape requested.
        to: Dims,
        /// Its number of elements.
        to_len: usize,
    },

    /// A reshape that only a copy could give.
    #[error(
        "shape {from:?} with byte strides {strides:?} cannot be seen as {to:?} without a copy; \
         copy it first (`to_contiguous`)"
    )]
    ReshapeNeedsCopy {
        /// The shape there is.
        from: Dims,
        /// Its byte strides.
        strides: Box<[isize]>,
        /// The shape requested.
        to: Dims,
    },

    /// Squeezing an axis that is longer than one.
    #[error("axis {axis} has length {len}; only an axis of length 1 can be squeezed")]
    SqueezeLen {
        /// The axis.
        axis: usize,
        /// Its length.
        len: usize,
    },

    /// A slice was requested of elements that are not contiguous.
    #[error(
        "shape {shape:?} with byte strides {strides:?} is not contiguous; \
         copy it (`to_contiguous`) or look at it by rows or as an ndarray"
    )]
    NotContiguous {
        /// The shape.
        shape: Dims,
        /// The byte strides.
        strides: Box<[isize]>,
    },

    /// An index that the tensor does not have.
    #[error("index {index:?} is out of range for shape {shape:?}")]
    BadIndex {
        /// The index.
        index: Dims,
        /// The shape.
        shape: Dims,
    },

    /// A layout made for elements of another size.
    #[error("the layout is for elements of {layout} bytes, but {dtype} has {size}")]
    ItemSize {
        /// Bytes of an element in the layout.
        layout: usize,
        /// The dtype.
        dtype: &'static str,
        /// Bytes of an element of the dtype.
        size: usize,
    },

    /// Byte strides that are no multiples of the element's size.
    #[error("byte strides {strides:?} are not multiples of the {item_size} bytes of an element")]
    OddStrides {
        /// The byte strides.
        strides: Box<[isize]>,
        /// Bytes of one element.
        item_size: usize,
    },

    /// Mutable access to elements that share bytes.
    #[error("elements of shape {shape:?} with byte strides {strides:?} overlap each other")]
    Overlapping {
        /// The shape.
        shape: Dims,
        /// The byte strides.
        strides: Box<[isize]>,
    },

    /// Data of another length than the shape.
    #[error("shape {shape:?} has {expected} elements but {given} were given")]
    WrongLen {
        /// The shape.
        shape: Dims,
        /// Its number of elements.
        expected: usize,
        /// Elements given.
        given: usize,
    },

    // Elements.
    /// A slice was requested in another type than the elements have.
    #[error("the elements are {found}, not {asked}")]
    WrongDType {
        /// The dtype requested.
        asked: &'static str,
        /// The dtype of the elements.
        found: &'static str,
    },

    /// A name or code that is no dtype.
    #[error(
        "unknown dtype `{given}`; known are f32 f64 f16 bf16 i8..i64 u8..u64 bool \
         complex64 complex128"
    )]
    UnknownDType {
        /// What was given.
        given: Box<str>,
    },

    /// Elements that do not start at a multiple of their alignment.
    #[error("the elements of this view are not aligned to {align} bytes, as {dtype} needs")]
    Misaligned {
        /// The dtype.
        dtype: &'static str,
        /// The alignment it needs.
        align: usize,
    },

    /// Bytes that are not valid values of the dtype (a `bool` that is neither 0 nor 1).
    #[error("the bytes are not all valid values of {dtype}")]
    InvalidValue {
        /// The dtype.
        dtype: &'static str,
    },

    /// Memory that another process can write was requested as elements for which some bytes are invalid.
    #[error(
        "the memory of this tensor can still be written by another process, so its bytes \
         cannot be read as {dtype}; copy them out (`to_vec`), or have it sealed against writing"
    )]
    Changeable {
        /// The dtype.
        dtype: &'static str,
    },

    /// A number that cannot be stored.
    #[error("{value} cannot be stored as {dtype}")]
    ValueRange {
        /// The number.
        value: f64,
        /// The dtype.
        dtype: &'static str,
    },

    // Memory, and write access.
    /// An alignment that is not a power of two, or too large.
    #[error("alignment {given} is not a power of two between 1 and {max}")]
    BadAlignment {
        /// The alignment requested.
        given: usize,
        /// The largest supported.
        max: usize,
    },

    /// A name or code that is no memory kind.
    #[error("unknown memory kind `{given}`; known are mem, dma, shm, pbo")]
    UnknownMemory {
        /// What was given.
        given: Box<str>,
    },

    /// A name that is no device.
    #[error("unknown device `{given}`; known are cpu, cuda and cuda:N")]
    UnknownDevice {
        /// What was given.
        given: Box<str>,
    },

    /// A kind of memory that is not available.
    #[error("{memory} memory is not available: {why}")]
    Unavailable {
        /// The memory kind.
        memory: &'static str,
        /// The reason.
        why: Unavailable,
    },

    /// Not enough free memory.
    #[error("{asked} bytes do not fit in the {available} bytes left under {limit}")]
    OutOfMemory {
        /// Bytes requested.
        asked: usize,
        /// Bytes that are free.
        available: usize,
        /// What limits them.
        limit: Limit,
    },

    /// Mutable access to memory that must not change.
    #[error("the tensor cannot be written: {why}; `make_mut` copies it into new memory")]
    NotWritable {
        /// Why it must not change.
        why: NotWritable,
    },

    /// The tensor cannot be shared with another process, because a loan to write it exists.
    #[error(
        "the bytes are lent for writing (for example to a writable array); drop the loan, or send a copy"
    )]
    Lent,

    // File descriptors, and tensors sent over a socket.
    /// A file descriptor was requested of memory that has none.
    #[error("{memory} memory has no {wanted}; allocate the tensor in {instead}")]
    NoFd {
        /// The memory kind of the tensor.
        memory: &'static str,
        /// What was requested.
        wanted: &'static str,
        /// What would have it.
        instead: &'static str,
    },

    /// A file descriptor that is neither a memfd nor a DMA-BUF.
    #[error("the file descriptor is {found}, neither shared memory (memfd) nor a DMA-BUF")]
    WrongFdKind {
        /// What it is.
        found: &'static str,
    },

    /// A file descriptor with fewer bytes than the tensor needs.
    #[error("the file descriptor has {size} bytes, the tensor needs {needed}")]
    FdTooSmall {
        /// Bytes that the tensor needs.
        needed: usize,
        /// Bytes that there are.
        size: u64,
    },

    /// A memfd that another process can still shrink.
    #[error(
        "the shared memory is not sealed against shrinking (F_SEAL_SHRINK): \
         a process that shares it could truncate it and crash its readers"
    )]
    Unsealed,

    /// A file descriptor opened in a mode that does not allow the import.
    #[error("the shared memory cannot be mapped {access}: {why}")]
    FdAccess {
        /// The access requested.
        access: &'static str,
        /// Why it is refused.
        why: &'static str,
    },

    /// A socket that cannot carry file descriptors.
    #[error("the socket is not a Unix socket, so it cannot carry a tensor")]
    NotUnixSocket,

    /// A message from a peer that is not a tensor, or is damaged.
    #[error("the peer sent something that is not a tensor: {what}")]
    BadMessage {
        /// What is wrong with it.
        what: &'static str,
    },

    /// The peer closed the connection.
    #[error(
        "the peer closed the connection{}",
        if *.mid_message { " in the middle of a tensor" } else { "" }
    )]
    Disconnected {
        /// Whether part of a message had arrived.
        mid_message: bool,
    },

    // Pixel formats and images.
    /// A name or code that is no pixel format.
    #[error("unknown pixel format `{given}`")]
    UnknownFormat {
        /// What was given.
        given: Box<str>,
    },

    /// A shape that an image of this format cannot have.
    #[error("shape {shape:?} does not fit pixel format {format}, which needs {expected}")]
    FormatShape {
        /// The format.
        format: &'static str,
        /// The shape.
        shape: Dims,
        /// What the format needs.
        expected: &'static str,
    },

    /// A dtype that the format does not have.
    #[error("pixel format {format} has {expected} samples, the tensor holds {found}")]
    FormatDType {
        /// The format.
        format: &'static str,
        /// The dtype of its samples.
        expected: &'static str,
        /// The dtype of the tensor.
        found: &'static str,
    },

    /// Strides that do not make rows of pixels.
    #[error("shape {shape:?} with byte strides {strides:?} is not rows of {format} pixels")]
    FormatLayout {
        /// The format.
        format: &'static str,
        /// The shape.
        shape: Dims,
        /// The byte strides.
        strides: Box<[isize]>,
    },

    /// A change of layout was requested of an image whose planes are in different buffers.
    #[error("{op} does not apply: the planes of this image do not follow each other in one buffer")]
    FarPlanes {
        /// The call.
        op: &'static str,
    },

    /// A tensor without a pixel format was used as an image.
    #[error("{op} needs a pixel format: call `set_format` first")]
    NoFormat {
        /// The call.
        op: &'static str,
    },

    /// A row stride that is too small, or not a multiple of what the format needs.
    #[error(
        "row stride {given} does not fit a {width}-pixel row of {format}: \
         it must be at least {min} and a multiple of {multiple}"
    )]
    BadRowStride {
        /// The stride in bytes.
        given: usize,
        /// The smallest that fits.
        min: usize,
        /// What it must be a multiple of.
        multiple: usize,
        /// The width in pixels.
        width: usize,
        /// The format.
        format: &'static str,
    },

    /// A region of an image that cannot be cut out without a copy.
    #[error(
        "the region at ({x}, {y}) splits a {unit_width}x{unit_height} pixel group of {format}; \
         x and y must be multiples of it"
    )]
    UnalignedRoi {
        /// Left edge.
        x: usize,
        /// Top edge.
        y: usize,
        /// Width of a pixel group.
        unit_width: usize,
        /// Height of a pixel group.
        unit_height: usize,
        /// The format.
        format: &'static str,
    },

    /// A plane that the image does not have.
    #[error("there is no plane {index}: {format} has {planes}, counted from 0")]
    NoSuchPlane {
        /// The format, or that there is none.
        format: &'static str,
        /// Planes there are.
        planes: usize,
        /// The plane requested.
        index: usize,
    },

    /// Another number of planes than the format has.
    #[error("pixel format {format} has {expected} planes, not {given}")]
    PlaneCount {
        /// The format.
        format: &'static str,
        /// Planes of the format.
        expected: usize,
        /// Planes given.
        given: usize,
    },

    /// An image, or part of one, without pixels.
    #[error("an image of {width}x{height} has no pixels")]
    EmptyImage {
        /// The width requested.
        width: usize,
        /// The height requested.
        height: usize,
    },

    /// A rectangle that the image does not have.
    #[error(
        "the {width}x{height} pixels from ({x}, {y}) on are not all in an image of {}x{}",
        image.0,
        image.1
    )]
    NoSuchRoi {
        /// The first column requested.
        x: usize,
        /// The first row requested.
        y: usize,
        /// The width requested.
        width: usize,
        /// The height requested.
        height: usize,
        /// Width and height of the image.
        image: (usize, usize),
    },

    /// A pixel that the image does not have.
    #[error("pixel ({x}, {y}) is outside an image of {width}x{height}")]
    NoSuchPixel {
        /// The column requested.
        x: usize,
        /// The row requested.
        y: usize,
        /// The width of the image.
        width: usize,
        /// The height of the image.
        height: usize,
    },

    /// More or fewer values than a pixel has.
    #[error("a pixel of {format} has {expected} values, not {given}")]
    PixelLen {
        /// The format.
        format: &'static str,
        /// The values of a pixel.
        expected: usize,
        /// The values given.
        given: usize,
    },

    /// Two images that must have the same format and size.
    #[error("the image is {expected}, the one to copy is {given}")]
    OtherImage {
        /// Format and size of the image.
        expected: Box<str>,
        /// Format and size of the other.
        given: Box<str>,
    },

    /// Not the bytes of an image.
    #[error("an image with rows {step} bytes apart has {expected} bytes, not {given}")]
    ImageBytes {
        /// The bytes of the image.
        expected: usize,
        /// The bytes given.
        given: usize,
        /// The distance of the rows.
        step: usize,
    },

    /// A file with an image that could not be read or written.
    #[error("{op} {path:?} failed: {source}")]
    ImageFile {
        /// What was attempted.
        op: &'static str,
        /// The file.
        path: PathBuf,
        /// What went wrong.
        source: Box<dyn std::error::Error + Send + Sync>,
    },

    // Point clouds.
    /// A point that the cloud does not have.
    #[error("there is no point {point} in a cloud of {len} points; the first is point 0")]
    NoSuchPoint {
        /// The point requested.
        point: usize,
        /// The number of points.
        len: usize,
    },

    /// Rows and columns that do not make the points of a cloud.
    #[error("{len} points cannot be in {height} rows of {width} columns")]
    NotOrganized {
        /// The columns requested.
        width: usize,
        /// The rows requested.
        height: usize,
        /// The number of points.
        len: usize,
    },

    /// A tensor that is no point cloud.
    #[error(
        "a tensor of shape {shape:?} with byte strides {strides:?} is no point cloud, which is \
         [points, values] with the values of a point side by side"
    )]
    CloudLayout {
        /// The shape.
        shape: Dims,
        /// The byte strides.
        strides: Box<[isize]>,
    },

    /// Fields that a point cloud cannot have.
    #[error("field `{field}` of a point cloud: {rule}")]
    BadField {
        /// The name of the field.
        field: Box<str>,
        /// What it must be.
        rule: &'static str,
    },

    /// More or fewer fields than a point cloud can have.
    #[error("a point cloud has 1 to {max} fields, not {given}")]
    FieldCount {
        /// The fields given.
        given: usize,
        /// The most there can be.
        max: usize,
    },

    /// A field that a point cloud does not have.
    #[error("the point cloud has no field `{field}`; it has {}", .known.join(", "))]
    NoSuchField {
        /// The name requested.
        field: Box<str>,
        /// The names there are.
        known: Vec<String>,
    },

    /// More points than there is room for.
    #[error("the point cloud has room for {capacity} points, not for {asked}")]
    CloudFull {
        /// The points requested.
        asked: usize,
        /// The most that fit.
        capacity: usize,
    },

    // Depth images.
    /// A depth that cannot be stored.
    #[error("a depth of {metres} m cannot be stored as {dtype}: {rule}")]
    DepthRange {
        /// The depth, in metres.
        metres: f32,
        /// What the image stores.
        dtype: &'static str,
        /// What can be.
        rule: &'static str,
    },

    /// Elements that cannot be depths.
    #[error("a depth image is f32 (metres) or u16 (millimetres), not {found}")]
    DepthDType {
        /// The dtype given.
        found: &'static str,
    },

    /// Numbers that are no pinhole camera.
    #[error("fx {fx}, fy {fy}, cx {cx}, cy {cy}: all must be finite, fx and fy above 0")]
    BadIntrinsics {
        /// Focal length in pixels, across.
        fx: f64,
        /// Focal length in pixels, down.
        fy: f64,
        /// Column of the optical centre.
        cx: f64,
        /// Row of the optical centre.
        cy: f64,
    },

    /// A depth image without intrinsics cannot be projected into space.
    #[error("the depth image has no intrinsics; set them first (`set_intrinsics`)")]
    NoIntrinsics,

    // The directory of sockets.
    /// A directory of sockets cannot be used.
    #[error("{op} {} failed: {source}", path.display())]
    Directory {
        /// What was attempted.
        op: &'static str,
        /// The directory.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },

    /// The directory of sockets is not private to this user.
    #[error(
        "{} belongs to user {owner} with mode {mode:o}; it must be this user's, with mode 700. \
         Remove it, or set CENOTE_DIR to a directory of your own",
        path.display()
    )]
    UntrustedDir {
        /// The directory.
        path: PathBuf,
        /// Its owner.
        owner: u32,
        /// Its mode.
        mode: u32,
    },

    /// Access for other users was requested without a directory that they share.
    #[error("access for others than this user needs CENOTE_DIR to name a directory they share")]
    GroupNeedsDir,

    /// A directory that some users of a pool cannot read.
    #[error(
        "{} (group {group}, mode {mode:o}) cannot be read by some of the users that the pool is for. \
         Give it to their group and let that group read it (chgrp, chmod g+rx), or use another \
         CENOTE_NAMESPACE or CENOTE_DIR",
        path.display()
    )]
    ClosedDir {
        /// The directory.
        path: PathBuf,
        /// Its group.
        group: u32,
        /// Its mode.
        mode: u32,
    },

    // Pools of tensors, and attaching to them.
    /// A pool of this name has an owner already.
    #[error("pool `{pool}` belongs to {program} (pid {pid}), which is running")]
    PoolExists {
        /// The pool.
        pool: String,
        /// The process id of its owner; 0 if it cannot be seen from here.
        pid: i32,
        /// The program of its owner.
        program: String,
    },

    /// There is no such pool, or its owner is dead.
    #[error("there is no pool `{pool}`")]
    NoSuchPool {
        /// The pool.
        pool: String,
    },

    /// Connecting to the owner of a pool failed.
    #[error("connecting to the owner of pool `{pool}` failed: {source}")]
    Connect {
        /// The pool.
        pool: String,
        /// The error of the system.
        source: io::Error,
    },

    /// The owner of a pool does not answer.
    #[error("the owner of pool `{pool}` (pid {pid}) did not answer for {waited:?}: is it stopped?")]
    NoAnswer {
        /// The pool.
        pool: String,
        /// The process id of its owner; 0 if it is not known.
        pid: i32,
        /// How long it was waited for; zero if not at all.
        waited: Duration,
    },

    /// The owner of a pool refused to let this process attach.
    #[error("attaching to pool `{pool}` was refused: {why}")]
    AttachRefused {
        /// The pool.
        pool: String,
        /// The reason.
        why: &'static str,
    },

    /// The owner of a pool is alive, but has closed the pool or the connection.
    #[error("pool `{pool}` is closed: its owner (pid {pid}) closed the connection")]
    PoolClosed {
        /// The pool.
        pool: String,
        /// The process id of its owner; 0 if it cannot be seen from here.
        pid: i32,
    },

    /// Something that only the owner of a pool can do.
    #[error("{op} is for the owner of pool `{pool}` (pid {pid}); this process is attached to read")]
    NotOwner {
        /// What was attempted.
        op: &'static str,
        /// The pool.
        pool: String,
        /// The process id of its owner.
        pid: i32,
    },

    /// Every slot, or every byte, of a pool is in use.
    #[error(
        "pool `{pool}` has no room for {asked} bytes: {why}; \
         {} of {} slots and {} of {} bytes are in use{}",
        slots.0, slots.1, bytes.0, bytes.1, list(holders)
    )]
    PoolFull {
        /// The pool.
        pool: String,
        /// Bytes requested.
        asked: usize,
        /// Why that is too much.
        why: Shortage,
        /// Slots in use, and the most there can be.
        slots: (usize, usize),
        /// Bytes in use, and the most there can be.
        bytes: (usize, usize),
        /// The processes that hold them, sorted by the retired slots that they hold, the most first.
        holders: Vec<Holder>,
    },

    /// This process holds as many slots of a pool as it may.
    #[error("this process holds {max} slots of pool `{pool}`, all that its `max_leases` allows")]
    TooManyLeases {
        /// The pool.
        pool: String,
        /// The limit.
        max: u32,
    },

    /// The owner of a pool has disconnected this process, because it held too many retired slots.
    #[error(
        "the owner of pool `{pool}` has disconnected this process, which held {held} slots \
         that the owner had retired; its `max_leases` allows {max}"
    )]
    Expelled {
        /// The pool.
        pool: String,
        /// What this process held.
        held: u32,
        /// What it may hold.
        max: u32,
    },

    /// A file descriptor was requested of a tensor that shares its memory with others.
    #[error("a tensor of a pool has no separate {wanted}; send its `descriptor` instead")]
    PooledFd {
        /// What was requested.
        wanted: &'static str,
    },

    /// A pool, or a tensor of one, was used in a forked child.
    #[error("pool `{pool}` was inherited through fork; open it again in this process to use it")]
    Forked {
        /// The pool.
        pool: String,
    },

    // Descriptors.
    /// A descriptor whose tensor does not exist any more.
    #[error("the tensor that the descriptor names is gone: pool `{pool}` has reused its memory")]
    Stale {
        /// The pool.
        pool: String,
    },

    /// A descriptor of something that the pool cannot have.
    #[error("the descriptor names slot {slot}, but pool `{pool}` has {max} slots")]
    NoSuchSlot {
        /// The pool.
        pool: String,
        /// The slot.
        slot: u32,
        /// The slots there are.
        max: u32,
    },

    /// A descriptor of a segment that the owner did not send in time.
    #[error(
        "segment {segment} of pool `{pool}` is not available: its owner (pid {pid}) did not send it within {waited:?}"
    )]
    NoSuchSegment {
        /// The pool.
        pool: String,
        /// The segment.
        segment: u32,
        /// The process id of the owner; 0 if it is in another PID namespace.
        pid: i32,
        /// How long this process waited for it.
        waited: Duration,
    },

    /// A descriptor was requested of a tensor that is in no pool.
    #[error("the tensor is in no pool, so it has no descriptor")]
    NoDescriptor,

    /// A descriptor of another kind than was requested.
    #[error("`{asked}` was requested, but the descriptor is for {found}")]
    WrongKind {
        /// What was requested.
        asked: &'static str,
        /// What the descriptor says.
        found: &'static str,
    },

    // Topics.
    /// A topic was used in a forked child.
    #[error("topic `{topic}` was inherited through fork; make it again in this process to use it")]
    ForkedTopic {
        /// The topic.
        topic: String,
    },

    /// A subscriber has not received a message that the next one would overwrite.
    #[error(
        "topic `{topic}` is full: {program} (pid {pid}) has not taken its messages{}",
        for_how_long(*waited)
    )]
    SlowSubscriber {
        /// The topic.
        topic: String,
        /// The process id of the subscriber; 0 if it cannot be seen from here.
        pid: i32,
        /// Its program.
        program: String,
        /// How long it was waited for.
        waited: Duration,
    },

    /// A topic carries something else.
    #[error("topic `{topic}` carries {ours} here, but {program} (pid {pid}) sends {theirs}")]
    TypeMismatch {
        /// The topic.
        topic: String,
        /// What is expected here.
        ours: String,
        /// What the publisher sends.
        theirs: String,
        /// The process id of the publisher; 0 if it cannot be seen from here.
        pid: i32,
        /// Its program.
        program: String,
    },

    // Buffers of one process.
    /// More elements than a buffer has room for.
    #[error("the buffer has room for {capacity} elements, {needed} are needed")]
    BufferFull {
        /// Elements that it has room for.
        capacity: usize,
        /// Elements that it would have to hold.
        needed: usize,
    },

    /// The elements that were written are not those of the buffer.
    #[error("`write_with` must return the part that it wrote, from the first element on")]
    NotThePrefix,

    /// A unified buffer that is no longer there.
    #[error("the unified buffer was already released to its pool")]
    Released,

    /// The host side of a unified buffer, of which views exist.
    #[error(
        "the host side of the unified buffer can be neither written nor released while {views} \
         views of it are alive; drop them first"
    )]
    ViewsAlive {
        /// Views that are alive.
        views: usize,
    },

    /// A unified buffer of another pool.
    #[error("the unified buffer belongs to another pool; release it there, or drop it")]
    OtherPool,

    /// A unified buffer that holds nothing yet.
    #[error("nothing was written to this unified buffer yet; write its host or device side first")]
    Unwritten,

    /// A transfer between a host side and a device side of different sizes.
    #[error("the device side has {device} bytes, the host side {host}; a transfer needs as many")]
    TransferLen {
        /// Bytes of the device side.
        device: usize,
        /// Bytes of the host side.
        host: usize,
    },

    // Cameras.
    /// A camera that cannot be opened, set up or captured from.
    #[error("camera {}: {op} failed: {source}", path.display())]
    Camera {
        /// The device.
        path: PathBuf,
        /// What was attempted.
        op: &'static str,
        /// The error of the system.
        source: io::Error,
    },

    /// A device that does not capture video.
    #[error("{} is no device that captures video by buffers", path.display())]
    NotACamera {
        /// The device.
        path: PathBuf,
    },

    /// A camera does not have what was requested.
    #[error("camera {} does not capture {asked}; it offers {found}", path.display())]
    CameraFormat {
        /// The device.
        path: PathBuf,
        /// What was requested.
        asked: Box<str>,
        /// What it offers instead.
        found: Box<str>,
    },

    /// A camera has nothing left to capture into.
    #[error(
        "camera {} captures nothing: all of its {buffers} buffers are in use by \
         frames; keep fewer frames, or request more buffers",
        path.display()
    )]
    CameraStarved {
        /// The device.
        path: PathBuf,
        /// The buffers it has.
        buffers: usize,
    },

    /// A camera was used in a forked child.
    #[error("camera {} was inherited through fork; it is the parent's", path.display())]
    CameraForked {
        /// The device.
        path: PathBuf,
    },

    /// A tensor that a camera cannot capture into.
    #[error("camera {} cannot capture into the tensor it was given: {rule}", path.display())]
    CameraBuffer {
        /// The device.
        path: PathBuf,
        /// The rule it breaks.
        rule: &'static str,
    },

    // Everything else.
    /// A name that cannot be used.
    #[error("the name {given:?} cannot be used: {rule}")]
    BadName {
        /// The name.
        given: Box<str>,
        /// The rule it breaks.
        rule: &'static str,
    },

    /// Text that must be short and is not.
    #[error("{what} `{given}` has {len} bytes; there is room for {max}")]
    TextTooLong {
        /// What the text is for.
        what: &'static str,
        /// The text.
        given: Box<str>,
        /// Its bytes.
        len: usize,
        /// The most that fit.
        max: usize,
    },

    /// A configuration that cannot be.
    #[error("bad configuration: {field}: {rule}")]
    BadConfig {
        /// The field.
        field: &'static str,
        /// The rule it breaks.
        rule: &'static str,
    },

    /// An environment variable with an unknown value.
    #[error("environment variable {name}={value:?} is not understood; use {expected}")]
    BadEnv {
        /// The variable.
        name: &'static str,
        /// Its value.
        value: Box<str>,
        /// What would be understood.
        expected: &'static str,
    },

    /// An error of OpenGL.
    #[cfg(all(target_os = "linux", feature = "gl"))]
    #[error(transparent)]
    Gl(#[from] GlError),

    /// The operating system refused.
    #[error("{op} failed: {source}")]
    Os {
        /// What was attempted.
        op: &'static str,
        /// The error of the system.
        source: io::Error,
    },
}

impl Error {
    /// Wraps an error of the operating system.
    pub(crate) fn os(op: &'static str, source: impl Into<io::Error>) -> Self {
        Error::Os { op, source: source.into() }
    }
}

fn list(holders: &[Holder]) -> String {
    holders.iter().map(|holder| format!("; {holder}")).collect()
}
