//! What the test programs share. All of it needs Linux.
#![allow(dead_code, reason = "each test program uses a part of it")]
#![allow(unused_imports, reason = "each test program uses a part of it")]

pub(crate) mod domain;
mod environment;
mod leaks;
pub(crate) mod peer;
pub(crate) mod pool_user;
pub(crate) mod program;
mod random;
pub(crate) mod raw;
mod socket_dir;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use cenote::{DType, Tensor, TensorDescriptor, TensorPool, TensorPoolConfig};

pub(crate) use environment::{emulated, rounds, sanitized, skipped};
pub(crate) use leaks::OpenResources;
pub(crate) use random::Random;
pub(crate) use raw::memfd;
pub(crate) use socket_dir::{SocketDir, pools_dir, socket_dir, topic_dir};

/// How long a test waits for a condition, even on a busy machine.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

/// Waits until a condition holds. Panics after [`TIMEOUT`].
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !holds() {
        assert!(Instant::now() < deadline, "it did not happen: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Sets a flag when dropped. A thread that runs until the flag is set then ends even if the test panics.
pub(crate) struct SetOnDrop<'a>(pub(crate) &'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A name that no other test uses.
pub(crate) fn unique() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("p{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A small pool with this many slots.
pub(crate) fn pool(max_slots: usize) -> TensorPool {
    // With this growth the pool reserves nothing ahead of need: it has one segment.
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

/// Makes cenote remove closed pools from its registry: it does so whenever it does not find one.
pub(crate) fn prune_registry() {
    let nowhere = TensorDescriptor::from_bytes(&[0; HEAD]).unwrap();
    Tensor::from_descriptor(&nowhere).unwrap_err();
}

/// Makes a panic of the service thread end the program: by itself it would fail no test.
pub(crate) fn abort_on_service_thread_panic() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        usual(info);
        // The standard library does not know the name of this thread, the kernel does.
        if std::fs::read_to_string("/proc/thread-self/comm").is_ok_and(|name| name == "cenote\n") {
            std::process::abort();
        }
    }));
}
