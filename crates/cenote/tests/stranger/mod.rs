//! What a stranger needs to meet cenote without its help: the protocol as bytes, and processes.
//!
//! The constants are declared anew here rather than imported: a stranger has only the wire.

pub(crate) mod child;
pub(crate) mod mapping;
pub(crate) mod process;
pub(crate) mod ring;
pub(crate) mod wire;

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use cenote::{DType, Tensor, TensorDescriptor, TensorPool, TensorPoolConfig};

/// A directory of our own, removed in the end.
pub(crate) struct Scratch(pub(crate) PathBuf);

impl Scratch {
    pub(crate) fn new(what: &str) -> Self {
        let dir = std::env::temp_dir();
        let name = |id: &str| dir.join(format!("cenote-{what}-{id}"));
        for id in Scratch::left_behind(&dir, &format!("cenote-{what}-")) {
            let _ = std::fs::remove_dir_all(name(&id));
        }
        let dir = name(&std::process::id().to_string());
        std::fs::create_dir_all(&dir).unwrap();
        Scratch(dir)
    }

    /// The ids of those who could not remove theirs: they were killed.
    fn left_behind(dir: &Path, prefix: &str) -> Vec<String> {
        let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let ids = names.filter_map(|name| name.strip_prefix(prefix).map(str::to_owned));
        let ended =
            |id: &String| id.parse::<u32>().is_ok() && !Path::new("/proc").join(id).exists();
        ids.filter(ended).collect()
    }

    /// Makes this the directory where cenote's processes meet. Called before any thread runs.
    #[allow(unsafe_code, reason = "the environment")]
    pub(crate) fn meet_here(&self) {
        // SAFETY: no other thread runs yet.
        unsafe { std::env::set_var("CENOTE_DIR", &self.0) };
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A pool that still lives makes its directory anew when it notices.
        for _ in 0..100 {
            let _ = std::fs::remove_dir_all(&self.0);
            std::thread::sleep(Duration::from_millis(10));
            if !self.0.exists() {
                return;
            }
        }
    }
}

/// Whether the tests run in an emulator, which does not emulate everything.
pub(crate) fn emulated() -> bool {
    std::env::var_os("CENOTE_TEST_EMULATED").is_some()
}

/// How often something is done that takes a new process each time, which is slow to start in an emulator.
pub(crate) fn rounds(many: usize) -> usize {
    if emulated() { many.div_ceil(5) } else { many }
}

/// Whether the tests run under AddressSanitizer, which has costs and system calls of its own.
pub(crate) fn sanitized() -> bool {
    std::env::var_os("ASAN_OPTIONS").is_some()
}

/// Whether the user asked to do without these tests.
pub(crate) fn skipped(what: &str) -> bool {
    let skip = std::env::var("CENOTE_TEST_SKIP").unwrap_or_default();
    skip.split([',', ' ']).any(|name| name == what)
}

/// Where the sockets of pools are.
pub(crate) fn pools_dir() -> PathBuf {
    Path::new(&std::env::var_os("CENOTE_DIR").unwrap()).join("default/pools")
}

/// Where the sockets of a topic's publishers are.
pub(crate) fn topic_dir(name: &str) -> PathBuf {
    Path::new(&std::env::var_os("CENOTE_DIR").unwrap()).join("default/topics").join(name)
}

/// A name that no other test has.
pub(crate) fn unique() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("p{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

pub(crate) fn pool(max_slots: usize) -> TensorPool {
    // Nothing is reserved ahead of need: there is one segment.
    let config = TensorPoolConfig { max_slots, growth: 8 << 20, ..TensorPoolConfig::small() };
    TensorPool::new(unique(), config).unwrap()
}

pub(crate) fn filled(pool: &TensorPool, len: usize, value: u8) -> Tensor {
    let mut tensor = pool.alloc(&[len], DType::U8).unwrap();
    tensor.map_mut().unwrap().as_mut_slice::<u8>().unwrap().fill(value);
    tensor
}

pub(crate) fn all_are(tensor: &Tensor, value: u8) -> bool {
    tensor.map().unwrap().as_slice::<u8>().unwrap().iter().all(|&byte| byte == value)
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn unhex(text: &str) -> Vec<u8> {
    (0..text.len() / 2).map(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap()).collect()
}

/// The bytes of a descriptor before its shape.
pub(crate) const HEAD: usize = 48;

/// A descriptor of a pool that does not exist. Resolving it makes cenote forget what is gone.
pub(crate) fn forget_what_is_gone() {
    let nowhere = TensorDescriptor::from_bytes(&[0; HEAD]).unwrap();
    Tensor::from_descriptor(&nowhere).unwrap_err();
}

/// As good as for ever, on a machine that is busy with other things.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Waits for something that happens soon.
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "it did not happen: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// What a process has that could leak: descriptors, and mappings of shared memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Holdings {
    pub(crate) fds: usize,
    pub(crate) maps: usize,
}

impl Holdings {
    pub(crate) fn now() -> Holdings {
        forget_what_is_gone();
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        Holdings {
            fds: std::fs::read_dir("/proc/self/fd").unwrap().count(),
            maps: maps.lines().filter(|line| is_shared(line)).count(),
        }
    }

    /// Waits until this process has no more than it had.
    pub(crate) fn check(&self) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let now = Holdings::now();
            if now.fds <= self.fds && now.maps <= self.maps {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "leaked: {self:?} before, {now:?} after: {}",
                names()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

fn is_shared(mapping: &str) -> bool {
    mapping.contains("memfd:") || mapping.contains("dmabuf:")
}

fn names() -> String {
    let links = std::fs::read_dir("/proc/self/fd").unwrap();
    let links = links.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    links.map(|link| format!("{} ", link.display())).collect()
}

/// A panic on the service thread fails no test by itself: make it end the program.
pub(crate) fn panics_of_the_service_are_fatal() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        usual(info);
        // The standard library does not know what it is called.
        if std::fs::read_to_string("/proc/thread-self/comm").is_ok_and(|name| name == "cenote\n") {
            std::process::abort();
        }
    }));
}

/// Shared memory as an owner would make it: reserved, and sealed as asked.
pub(crate) fn memfd(len: u64, seals: rustix::fs::SealFlags) -> OwnedFd {
    use rustix::fs::{FallocateFlags, MemfdFlags};
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let fd = rustix::fs::memfd_create("stranger", flags).unwrap();
    if len > 0 {
        rustix::fs::fallocate(&fd, FallocateFlags::empty(), 0, len).unwrap();
    }
    if !seals.is_empty() {
        rustix::fs::fcntl_add_seals(fd.as_fd(), seals).unwrap();
    }
    fd
}

/// A small generator of numbers that look random: the same in every run.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        // xorshift64* (Vigna, 2016).
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit.max(1) as u64).unwrap()
    }
}
