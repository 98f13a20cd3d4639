//! Random mutations of everything that comes from other processes: descriptors, messages with tensors,
//! and both sides of attaching and subscribing. Nothing may panic, fault, or leak.
//!
//! It takes ten seconds, or `CENOTE_FUZZ_SECONDS`. `CENOTE_FUZZ_SEED` chooses other inputs; the same seed
//! gives the same inputs in every run.
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

mod mutate;
#[path = "../support/mod.rs"]
mod support;
mod topic;

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cenote::{
    DType, DepthImage, Field, Image, Intrinsics, PixelFormat, PointCloud, Tensor, TensorDescriptor,
    TensorMemory, TensorPool,
};
use rustix::fs::SealFlags;

use mutate::mutated;
use support::program::{NamedTest, TestProgram};
use support::raw::pool::{
    AttachReply, FakeEndpoint, REFUSED, Raw, RawReader, SEGMENT, SEGMENT_REMOVED, SEGMENT_REQUEST,
    WAKE, attach_request, borrowed, packet,
};
use support::{Random, SetOnDrop, filled, memfd, pool};

type Target = (&'static str, fn(&mut Clock));

const TARGETS: [Target; 6] = [
    ("descriptors", descriptors),
    ("messages_with_tensors", messages),
    ("packets_of_readers", readers),
    ("packets_of_owners", owners),
    ("packets_of_subscribers", topic::subscribers),
    ("packets_of_publishers", topic::publishers),
];

/// The seals of a lease row, which readers write, and of everything else, which they do not.
const ROW_SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);
const SEALS: SealFlags = ROW_SEALS.union(SealFlags::FUTURE_WRITE);

/// Gives a target its time and its random numbers.
pub(crate) struct Clock {
    until: Instant,
    pub(crate) random: Random,
    pub(crate) rounds: usize,
}

impl Clock {
    pub(crate) fn has_time(&mut self) -> bool {
        self.rounds += 1;
        Instant::now() < self.until
    }
}

fn main() -> ExitCode {
    mutate::show_last_input_on_panic();
    let number = |name, default| {
        std::env::var(name).map_or(default, |text| text.parse().expect("a whole number"))
    };
    let seconds = number("CENOTE_FUZZ_SECONDS", 10);
    let seed = number("CENOTE_FUZZ_SEED", 1).max(1);
    let share = Duration::from_secs(seconds) / u32::try_from(TARGETS.len()).unwrap();
    let test = |&target: &Target| test(target, share, seed);
    TestProgram::new("fuzz")
        .prepare(|_| works(&pool(4)))
        .check_leaks()
        .run_named(TARGETS.iter().map(test).collect())
}

fn test((name, target): Target, share: Duration, seed: u64) -> NamedTest {
    NamedTest::new(name, move || {
        let mut clock = Clock { until: Instant::now() + share, random: Random(seed), rounds: 0 };
        target(&mut clock);
        eprintln!("{name}: {} inputs, seed {seed}", clock.rounds);
    })
}

/// Reads all elements of a tensor, if they are not too many.
pub(crate) fn read_all(tensor: &Tensor) {
    if tensor.layout().len() <= 1 << 16 {
        let sum: usize =
            tensor.map().unwrap().runs().flatten().map(|&byte| usize::from(byte)).sum();
        std::hint::black_box(sum);
    }
    std::hint::black_box(format!("{tensor:?}"));
}

fn works(pool: &TensorPool) {
    let tensor = filled(pool, 100, 7);
    let own = TensorPool::open(pool.name()).unwrap();
    read_all(&own.import(&tensor.descriptor().unwrap()).unwrap());
}

// ---- Descriptors ------------------------------------------------------------------------------

/// The bytes of the segment's number. They are not mutated, because a reader waits for an unknown segment.
const SEGMENT_BYTES: std::ops::Range<usize> = 16..20;

/// Tensors with metadata, and their descriptors.
fn domains(pool: &TensorPool) -> Vec<(Tensor, Vec<u8>)> {
    let mut image = Image::new_in(pool, 31, 16, PixelFormat::I420).unwrap();
    image.set_frame_id("camera_front").unwrap();
    let fields = [Field::new("x", DType::F32), Field::new("ring", DType::U16)];
    let cloud = PointCloud::new_in(pool, 100, &fields).unwrap();
    let mut depth = DepthImage::new_in(pool, 20, 30, DType::U16).unwrap();
    depth.set_intrinsics(Intrinsics { fx: 50.0, fy: 50.0, cx: 15.0, cy: 10.0 }).unwrap();
    let descriptors = [image.descriptor(), cloud.descriptor(), depth.descriptor()];
    let tensors = [image.into_tensor(), cloud.into_tensor(), depth.into_tensor()];
    let bytes = descriptors.map(|descriptor| descriptor.unwrap().as_bytes().to_vec());
    tensors.into_iter().zip(bytes).collect()
}

/// Resizes a descriptor to the length that it claims, so that not only its length is tested.
fn fit_length(bytes: &mut Vec<u8>) {
    if bytes.len() >= support::HEAD {
        let meta = u16::from_ne_bytes([bytes[42], bytes[43]]);
        let words = 2 * usize::from(bytes[39]) + usize::from(meta);
        bytes.resize(support::HEAD + 8 * words.min(100), 0);
    }
}

fn descriptors(clock: &mut Clock) {
    let pool = pool(8);
    let tensors = [
        filled(&pool, 5000, 1),
        pool.alloc(&[96, 128], DType::U8).unwrap().with_format(PixelFormat::Nv12).unwrap(),
        pool.alloc(&[4, 5, 6, 7], DType::F64).unwrap().transpose(),
        pool.alloc(&[20, 30, 3], DType::U8).unwrap().narrow(0, 3, 10).unwrap(),
    ];
    let bytes = |tensor: &Tensor| tensor.descriptor().unwrap().as_bytes().to_vec();
    let domains = domains(&pool);
    let mut corpus: Vec<Vec<u8>> = tensors.iter().map(bytes).collect();
    corpus.extend(domains.iter().map(|(_, bytes)| bytes.clone()));
    let attached = TensorPool::open(pool.name()).unwrap();
    while clock.has_time() {
        let mut bytes = mutated(&corpus, &mut clock.random);
        fit_length(&mut bytes);
        if bytes.len() >= SEGMENT_BYTES.end {
            bytes[SEGMENT_BYTES].copy_from_slice(&corpus[0][SEGMENT_BYTES]);
        }
        let Ok(descriptor) = TensorDescriptor::from_bytes(&bytes) else { continue };
        let _ = attached.import(&descriptor).map(|tensor| read_all(&tensor));
        let _ = Tensor::from_descriptor(&descriptor).map(|tensor| read_all(&tensor));
        let _ = Image::from_descriptor(&descriptor).map(|image| read_all(image.tensor()));
        let _ = PointCloud::from_descriptor(&descriptor).map(|cloud| read_all(cloud.tensor()));
        let _ = DepthImage::from_descriptor(&descriptor).map(|depth| read_all(depth.tensor()));
    }
    drop((tensors, domains));
    assert_eq!(pool.stats().unwrap().retired, 0, "a lease was left behind");
}

// ---- Messages ---------------------------------------------------------------------------------

/// The bytes and descriptors that `send` writes for a tensor.
fn sent(tensor: &Tensor) -> (Vec<u8>, Vec<OwnedFd>) {
    let (here, there) = UnixStream::pair().unwrap();
    tensor.send(&here).unwrap();
    Raw(there.into()).recv().unwrap()
}

fn messages(clock: &mut Clock) {
    let shm = Tensor::options().memory(TensorMemory::Shm);
    let tensors = [
        shm.create(&[100], DType::U8).unwrap(),
        shm.create(&[4, 5, 6], DType::F32).unwrap().transpose(),
        shm.image(64, 48, PixelFormat::Nv12).unwrap(),
    ];
    let (corpus, fds): (Vec<_>, Vec<_>) = tensors.iter().map(sent).unzip();
    while clock.has_time() {
        let bytes = mutated(&corpus, &mut clock.random);
        let mut given: Vec<&OwnedFd> = fds[clock.random.below(fds.len())].iter().collect();
        let other =
            memfd(64, if clock.rounds.is_multiple_of(2) { SEALS } else { SealFlags::empty() });
        match clock.random.below(8) {
            0 => given.clear(),
            1 => given.push(&other),
            2 => given = vec![&other],
            3 => given = vec![&other; 9],
            _ => {}
        }
        let given: Vec<_> = given.into_iter().map(|fd| fd.as_fd()).collect();
        let (here, there) = UnixStream::pair().unwrap();
        let here = Raw(here.into());
        if !bytes.is_empty() {
            here.send(&bytes, &given).unwrap();
        }
        // Disconnect: otherwise `recv` would wait for the rest of a short message.
        drop(here);
        let _ = Tensor::recv(&there).map(|tensor| read_all(&tensor));
    }
}

// ---- Attaching --------------------------------------------------------------------------------

fn readers(clock: &mut Clock) {
    let pool = pool(8);
    let corpus = [
        attach_request(),
        packet(SEGMENT_REQUEST, 0, 0),
        packet(WAKE, 0, 0),
        packet(SEGMENT, 0, 4096),
        packet(SEGMENT_REMOVED, 1, 0),
    ];
    let extra: OwnedFd = std::fs::File::open("/dev/null").unwrap().into();
    let mut connections: Vec<Raw> = Vec::new();
    while clock.has_time() {
        let raw = Raw::connect(pool.name());
        if clock.random.below(2) == 0 {
            let _ = raw.send(&attach_request(), &[]);
        }
        for _ in 0..=clock.random.below(4) {
            let extras = [extra.as_fd(), extra.as_fd()];
            let count = clock.random.below(12).saturating_sub(9);
            let _ = raw.send(&mutated(&corpus, &mut clock.random), &extras[..count]);
        }
        connections.push(raw);
        if connections.len() == 40 {
            connections.clear();
            works(&pool);
        }
    }
    drop(connections);
    RawReader::to(pool.name());
}

pub(crate) const UID: u64 = 0xf022;

fn owners(clock: &mut Clock) {
    let endpoint = FakeEndpoint::new(UID);
    let valid = filled(&pool(2), 100, 1).descriptor().unwrap().as_bytes().to_vec();
    let seed = clock.random.next() | 1;
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut owner = FakeOwner::new(seed);
            while !done.load(Ordering::Relaxed) {
                if endpoint.has_connection_within(Duration::from_millis(20)) {
                    owner.answer(&endpoint.accept_request());
                }
            }
        });
        let _done = SetOnDrop(&done);
        while clock.has_time() {
            let Ok(attached) = TensorPool::open(endpoint.name.as_str()) else { continue };
            let mut bytes = valid.clone();
            bytes[0..8].copy_from_slice(&UID.to_ne_bytes());
            bytes[8..16].copy_from_slice(&2_u64.to_ne_bytes());
            bytes[16..20].copy_from_slice(&[0; 4]);
            let descriptor = TensorDescriptor::from_bytes(&bytes).unwrap();
            let _ = attached.import(&descriptor).map(|tensor| read_all(&tensor));
        }
    });
}

/// An owner that mutates its answers.
pub(crate) struct FakeOwner {
    random: Random,
    pub(crate) replies: Vec<Vec<u8>>,
    pushes: Vec<Vec<u8>>,
    pub(crate) fds: Vec<OwnedFd>,
}

impl FakeOwner {
    pub(crate) fn new(seed: u64) -> FakeOwner {
        let header = memfd(128 + 8 * 24, SealFlags::empty());
        let serials = std::iter::repeat_n(2_u64, 16);
        // Slots of segment 1. The last one is too long for it.
        let locations =
            (0..8_u64).flat_map(|slot| [1, slot * 8192, if slot < 7 { 8192 } else { 1 << 40 }]);
        let words: Vec<u8> = serials.chain(locations).flat_map(u64::to_ne_bytes).collect();
        rustix::io::pwrite(&header, &words, 0).unwrap();
        rustix::fs::fcntl_add_seals(&header, SEALS).unwrap();
        let reply = AttachReply {
            uid: UID,
            max_slots: 8,
            max_leases: 4,
            count: 2,
            segments: vec![(0, 4096), (1, 65536)],
        };
        FakeOwner {
            random: Random(seed),
            replies: vec![reply.encode(), packet(REFUSED, 1, 0)],
            pushes: vec![
                packet(SEGMENT, 2, 4096),
                packet(SEGMENT_REMOVED, 0, 0),
                packet(SEGMENT_REMOVED, 1, 0),
            ],
            fds: vec![header, memfd(128, ROW_SEALS), memfd(4096, SEALS), memfd(65536, SEALS)],
        }
    }

    pub(crate) fn answer(&mut self, to: &Raw) {
        let mut fds = borrowed(&self.fds);
        match self.random.below(12) {
            0 => fds.truncate(3),
            1 => fds.push(self.fds[0].as_fd()),
            2 => fds.swap(0, 2),
            3 => fds.swap(1, 3),
            _ => {}
        }
        let reply = match self.random.below(3) {
            0 => self.replies[0].clone(),
            _ => mutated(&self.replies[..1 + self.random.below(2)], &mut self.random),
        };
        let _ = to.send(&reply, &fds);
        for _ in 0..self.random.below(8) {
            let push = mutated(&self.pushes, &mut self.random);
            let fds = borrowed(&self.fds[..self.random.below(3)]);
            let _ = to.send(&push, &fds);
        }
    }
}
