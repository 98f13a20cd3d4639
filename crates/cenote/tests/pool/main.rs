//! Pools: one owner, any number of attached processes, and nothing to repair when one is killed.
//!
//! Child processes are this same program, started with a role. A test reaps them by process id.
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

mod adopted;
mod capacity;
mod connect;
#[path = "../support/mod.rs"]
mod support;

use std::os::unix::process::ExitStatusExt;
use std::process::ExitCode;
use std::time::Duration;

use cenote::{
    DType, Device, Error, NotWritable, PixelFormat, Tensor, TensorDescriptor, TensorPool,
    TensorPoolConfig,
};
use support::peer::{Peer, command, reply, serve, without_signal_handlers};
use support::pool_user::PoolUser;
use support::program::{Test, TestProgram};
use support::{all_are, eventually, filled, pools_dir, unique};

const TESTS: &[Test] = &[
    ("an_allocated_tensor_is_an_ordinary_tensor", ordinary),
    ("one_size_in_a_loop_never_grows", one_size),
    ("a_full_pool_says_so_and_recovers", full),
    ("descriptors_resolve_in_the_owner_too", own_import),
    ("stale_descriptors_are_errors", stale),
    ("an_attached_process_reads_without_copying", attached_reads),
    ("a_write_to_a_leased_slot_faults_only_in_that_process", faults),
    ("a_held_slot_is_not_reused_until_it_is_released", held),
    ("a_killed_reader_releases_everything", killed_attacher),
    ("a_killed_owner_leaves_its_readers_their_bytes", killed_owner),
    ("a_dead_owners_name_is_taken_over_and_a_living_ones_is_not", names),
    (
        "sockets_of_dead_processes_are_removed_by_the_next_process_that_lists_them",
        sockets_of_the_dead,
    ),
    ("only_the_owner_allocates", only_owner),
    ("new_segments_reach_readers_before_they_are_needed", segments),
    ("trim_frees_empty_segments", trim),
    ("empty_segments_make_room_for_a_larger_tensor", reclaimed),
    ("a_descriptor_reaches_its_own_slot_and_nothing_else", forged),
    ("a_grandchild_is_as_safe_as_a_child", grandchild),
    ("any_tensor_can_be_staged_and_the_copy_is_counted", staged),
    ("scrubbed_slots_are_zero_when_allocated_again", scrubbed),
    ("memory_is_reserved_ahead_of_need", ahead),
    ("alloc_timeout_waits_for_other_processes", waits),
    ("a_vanished_socket_is_made_again", vanished),
    ("a_forked_child_can_neither_write_nor_break_anything", forked),
];

fn main() -> ExitCode {
    TestProgram::new("pool")
        .roles(&[
            (POOL_USER, use_pools),
            (connect::FORK_WHILE_CONNECTING, connect::fork_while_connecting),
        ])
        .unavailable(|name| {
            let parts = ["child", "cannot_be_made", "wishes"];
            let beyond = support::emulated() && parts.iter().any(|part| name.contains(part));
            beyond.then_some("the emulator cannot fork threads, opens descriptors, ignores madvise")
        })
        .run(&[TESTS, connect::TESTS, capacity::TESTS, adopted::TESTS])
}

fn pool(config: TensorPoolConfig) -> TensorPool {
    TensorPool::new(unique(), config).unwrap()
}

fn hex(descriptor: &TensorDescriptor) -> String {
    support::hex(descriptor.as_bytes())
}

fn unhex(text: &str) -> TensorDescriptor {
    TensorDescriptor::from_bytes(&support::unhex(text)).unwrap()
}

/// A child that does what its parent requests. A fault kills it.
fn pool_user() -> Peer {
    Peer::run(without_signal_handlers(&mut command(POOL_USER)))
}

/// The role of all children here.
const POOL_USER: &str = "pool_user";

fn use_pools(_: &[&str]) {
    let mut user = PoolUser::default();
    serve(|words| match *words {
        ["write"] => write_to(&user.tensors[0]),
        [how @ ("fork" | "clone")] => connect::fork_and_wait(how),
        ["bools"] => {
            let seen = reply(user.tensors[0].map().unwrap().as_slice::<bool>());
            format!("{seen}; copied: {:?}", user.tensors[0].to_vec::<bool>().unwrap())
        }
        _ => user.answer(words),
    });
}

fn write_to(tensor: &Tensor) -> String {
    let bytes = tensor.map().unwrap().as_bytes().unwrap().as_ptr();
    // SAFETY: none. The page is read-only, so the kernel kills this process.
    #[allow(unsafe_code, reason = "what a program with a bug does")]
    unsafe {
        bytes.cast_mut().write_volatile(0);
    };
    "written".to_owned()
}

fn ordinary() {
    let pool = pool(TensorPoolConfig::small());
    let mut tensor = filled(&pool, 1000, 7);
    let clone = tensor.clone();
    assert!(matches!(tensor.map_mut(), Err(Error::NotWritable { why: NotWritable::Shared })));
    drop(clone);
    tensor.map_mut().unwrap().as_mut_slice::<u8>().unwrap()[3] = 9;
    assert_eq!(tensor.narrow(0, 3, 1).unwrap().to_vec::<u8>().unwrap(), [9]);
    let id = tensor.buffer_identity().id();
    let weak = tensor.buffer_identity().weak();
    drop(tensor);
    assert!(weak.upgrade().is_none());
    let again = pool.alloc(&[1000], DType::U8).unwrap().with_device(Device::cuda(1));
    assert!(again.buffer_identity().id() > id);
    again.descriptor().unwrap();
    let stats = pool.stats().unwrap();
    assert_eq!((stats.slots_in_use, stats.allocations, stats.failures), (1, 2, 0));
    drop(again);
    assert_eq!(pool.stats().unwrap().slots_in_use, 0);
}

fn one_size() {
    let pool = pool(TensorPoolConfig::small());
    for round in 0..10_000 {
        let tensor = pool.alloc(&[6 << 20], DType::U8).unwrap();
        if round % 3 == 0 {
            tensor.descriptor().unwrap();
        }
    }
    // The first, and what is reserved ahead of need: two of them are what is reserved at a time.
    let reserved = pool.stats().unwrap().bytes_reserved;
    assert!([6 << 20, 12 << 20].contains(&reserved), "{reserved}");
}

fn full() {
    let pool = pool(TensorPoolConfig { max_slots: 3, ..TensorPoolConfig::small() });
    let mut held: Vec<Tensor> = (0..3).map(|value| filled(&pool, 100, value)).collect();
    let error = pool.alloc(&[1], DType::U8).unwrap_err();
    assert!(matches!(error, Error::PoolFull { slots: (3, 3), .. }), "{error}");
    held.pop();
    pool.alloc(&[1], DType::U8).unwrap();
    let error = pool.alloc(&[65 << 20], DType::U8).unwrap_err();
    assert!(matches!(error, Error::PoolFull { .. }), "{error}");
    assert_eq!(pool.stats().unwrap().failures, 2);
}

fn own_import() {
    let pool = pool(TensorPoolConfig::small());
    let tensor = filled(&pool, 5000, 3).with_device(Device::cuda(0));
    let descriptor = tensor.narrow(0, 10, 100).unwrap().descriptor().unwrap();
    let same = Tensor::from_descriptor(&descriptor).unwrap();
    assert_eq!((same.shape(), same.device()), (&[100][..], Device::cuda(0)));
    drop(tensor);
    assert_eq!(pool.stats().unwrap().retired, 1);
    assert!(all_are(&same, 3));
    assert_eq!(pool.holders().unwrap()[0].program, "this process");
    drop(same);
    assert_eq!(pool.stats().unwrap().retired, 0);
    let mut written = filled(&pool, 10, 1);
    written.descriptor().unwrap();
    assert!(matches!(written.map_mut(), Err(Error::NotWritable { why: NotWritable::Published })));
}

fn stale() {
    let pool = pool(TensorPoolConfig::small());
    let descriptor = filled(&pool, 100, 1).descriptor().unwrap();
    let error = Tensor::from_descriptor(&descriptor).unwrap_err();
    assert!(matches!(error, Error::Stale { .. }), "{error}");
    let name = pool.name().to_owned();
    let mut peer = pool_user();
    assert_eq!(peer.request(&format!("open {name}")), "ok");
    assert!(peer.request(&format!("import {}", hex(&descriptor))).contains("is gone"));
    drop(pool);
    peer.kill();
}

fn attached_reads() {
    let pool = pool(TensorPoolConfig::small());
    let tensor = filled(&pool, 1 << 20, 42);
    let descriptor = hex(&tensor.descriptor().unwrap());
    let mut peer = pool_user();
    assert_eq!(peer.request(&format!("import {descriptor}")), "ok");
    assert_eq!(peer.request("check 42"), "true");
    assert_eq!(pool.stats().unwrap().attachers, 1);
    peer.kill();
}

fn faults() {
    let pool = pool(TensorPoolConfig::small());
    let tensor = filled(&pool, 1 << 20, 42);
    let import = format!("import {}", hex(&tensor.descriptor().unwrap()));
    let (mut writer, mut reader) = (pool_user(), pool_user());
    assert_eq!((writer.request(&import), reader.request(&import)), ("ok".into(), "ok".into()));
    assert_eq!(writer.request("write"), "", "it is dead");
    assert_eq!(writer.wait().signal(), Some(libc::SIGSEGV));
    assert_eq!(reader.request("check 42"), "true");
    assert!(all_are(&tensor, 42));
    reader.kill();
}

fn held() {
    let pool = pool(TensorPoolConfig { max_slots: 2, ..TensorPoolConfig::small() });
    let tensor = filled(&pool, 1000, 5);
    let mut peer = pool_user();
    assert_eq!(peer.request(&format!("import {}", hex(&tensor.descriptor().unwrap()))), "ok");
    drop(tensor);
    for value in 0..100 {
        drop(filled(&pool, 1000, value));
    }
    assert_eq!(peer.request("check 5"), "true");
    let _other = filled(&pool, 1000, 1);
    let error = pool.alloc(&[1000], DType::U8).unwrap_err().to_string();
    assert!(error.contains(&format!("pid {}", peer.pid())), "{error}");
    assert_eq!(pool.holders().unwrap()[0].retired_slots, 1);
    assert_eq!(peer.request("drop"), "ok");
    pool.alloc(&[1000], DType::U8).unwrap();
    peer.kill();
}

fn killed_attacher() {
    let pool = pool(TensorPoolConfig { max_slots: 4, ..TensorPoolConfig::small() });
    for round in 0..20 {
        let tensors: Vec<Tensor> = (0..2).map(|_| filled(&pool, 1000, round)).collect();
        let mut peer = pool_user();
        for tensor in &tensors {
            assert_eq!(
                peer.request(&format!("import {}", hex(&tensor.descriptor().unwrap()))),
                "ok"
            );
        }
        drop(tensors);
        assert_eq!(peer.request(&format!("check {round}")), "true");
        peer.kill();
        let _all: Vec<Tensor> = (0..4).map(|_| filled(&pool, 1000, 0)).collect();
    }
    assert_eq!(pool.stats().unwrap().attachers, 0);
}

fn killed_owner() {
    let name = unique();
    let mut owner = pool_user();
    assert_eq!(owner.request(&format!("new {name}")), "ok");
    let first = unhex(&owner.request("alloc 100000 9"));
    let second = unhex(&owner.request("alloc 100000 9"));
    let tensor = Tensor::from_descriptor(&first).unwrap();
    owner.kill();
    assert!(all_are(&tensor, 9));
    // The bytes are still there, and nobody can reuse them.
    assert!(all_are(&Tensor::from_descriptor(&second).unwrap(), 9));
    let error = TensorPool::open(name.as_str()).unwrap_err();
    assert!(matches!(error, Error::NoSuchPool { .. }), "{error}");
    TensorPool::new(name, TensorPoolConfig::small()).unwrap();
}

fn names() {
    let name = unique();
    let pool = TensorPool::new(name.as_str(), TensorPoolConfig::small()).unwrap();
    let error = TensorPool::new(name.as_str(), TensorPoolConfig::small()).unwrap_err();
    assert!(
        matches!(error, Error::PoolExists { pid, .. } if pid == std::process::id().cast_signed()),
        "{error}"
    );
    drop(pool);
    let mut owner = pool_user();
    assert_eq!(owner.request(&format!("new {name}")), "ok");
    let message =
        TensorPool::new(name.as_str(), TensorPoolConfig::small()).unwrap_err().to_string();
    assert!(message.contains(&format!("pid {}", owner.pid())), "{message}");
    owner.kill();
    TensorPool::new(name.as_str(), TensorPoolConfig::small()).unwrap();
    for bad in ["", "a/b", "..", "a b"] {
        assert!(TensorPool::new(bad, TensorPoolConfig::small()).is_err(), "{bad:?}");
        assert!(TensorPool::open(bad).is_err(), "{bad:?}");
    }
    let numbered = TensorPool::new(77, TensorPoolConfig::small()).unwrap();
    assert_eq!(numbered.name(), "77");
    TensorPool::open(77).unwrap();
}

/// The names of all sockets, visible and hidden.
fn sockets() -> Vec<String> {
    let dir = pools_dir();
    let entries = std::fs::read_dir(dir).unwrap().flatten();
    entries.map(|entry| entry.file_name().into_string().unwrap()).collect()
}

/// Leaves behind what an owner does that is killed before its socket has its name.
fn die_hidden(file_name: &str) {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, bind, socket};
    let dir = pools_dir();
    let hidden = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
    bind(&hidden, &SocketAddrUnix::new(dir.join(file_name)).unwrap()).unwrap();
}

fn sockets_of_the_dead() {
    let name = unique();
    let mut owner = pool_user();
    assert_eq!(owner.request(&format!("new {name}")), "ok");
    owner.kill();
    let is_left = || sockets().iter().any(|socket| socket.starts_with(&format!("{name}@")));
    assert!(is_left());
    // It may give way once to another test that holds the directory's lock.
    let found = (0..1000).find(|_| {
        let opened = TensorPool::open(name.as_str());
        assert!(matches!(opened, Err(Error::NoSuchPool { .. })), "{opened:?}");
        !is_left()
    });
    assert!(found.is_some());
    let hidden = ".0123456789abcdef";
    die_hidden(hidden);
    drop(TensorPool::new(name, TensorPoolConfig::small()).unwrap());
    assert!(!sockets().iter().any(|socket| socket == hidden));
}

fn only_owner() {
    let pool = pool(TensorPoolConfig::small());
    let mut peer = pool_user();
    assert_eq!(peer.request(&format!("open {}", pool.name())), "ok");
    let answer = peer.request("one");
    assert!(answer.contains("for the owner") && answer.contains(&std::process::id().to_string()));
    peer.kill();
}

fn segments() {
    let pool = pool(TensorPoolConfig { growth: 1 << 20, ..TensorPoolConfig::small() });
    let mut peer = pool_user();
    assert_eq!(peer.request(&format!("open {}", pool.name())), "ok");
    let tensors: Vec<Tensor> = (0..40).map(|_| filled(&pool, 1 << 20, 6)).collect();
    assert!(pool.stats().unwrap().segments > 16);
    for tensor in &tensors {
        assert_eq!(peer.request(&format!("import {}", hex(&tensor.descriptor().unwrap()))), "ok");
    }
    assert_eq!(peer.request("check 6"), "true");
    peer.kill();
}

fn trim() {
    let pool = pool(TensorPoolConfig { growth: 1 << 20, ..TensorPoolConfig::small() });
    let kept = filled(&pool, 1 << 20, 1);
    let dropped: Vec<Tensor> = (0..10).map(|_| filled(&pool, 1 << 20, 2)).collect();
    drop(dropped);
    let freed = pool.trim().unwrap();
    assert!(freed >= 10 << 20, "{freed}");
    // What was being reserved ahead of need may come in yet.
    eventually("only the segment in use is left", || {
        pool.trim().unwrap();
        pool.stats().unwrap().bytes_reserved == 1 << 20
    });
    assert!(all_are(&kept, 1));
    assert!(all_are(&filled(&pool, 1 << 20, 3), 3));
}

/// Descriptors say where their bytes lie; only the pool is believed.
fn forged() {
    let pool = pool(TensorPoolConfig::small());
    let mut secret = filled(&pool, 4096, 1);
    let shown = filled(&pool, 4096, 2);
    let honest = shown.descriptor().unwrap();
    let mut bytes = honest.as_bytes().to_vec();
    let (slot, offset) = (20..24, 24..32);
    // The bytes of the neighbour, under the lease of its own slot.
    let at = u64::from_ne_bytes(bytes[offset.clone()].try_into().unwrap());
    for wrong in [0, at + 4096, at.wrapping_sub(4096), u64::MAX] {
        bytes[offset.clone()].copy_from_slice(&wrong.to_ne_bytes());
        assert!(wrong == at || Tensor::from_descriptor(&unraw(&bytes)).is_err(), "{wrong}");
    }
    // A slot that was never shown to anybody.
    let mut bytes = honest.as_bytes().to_vec();
    for other in 0..4_u32 {
        bytes[slot.clone()].copy_from_slice(&other.to_ne_bytes());
        let own = u32::from_ne_bytes(honest.as_bytes()[slot.clone()].try_into().unwrap());
        assert!(other == own || Tensor::from_descriptor(&unraw(&bytes)).is_err(), "{other}");
    }
    secret.map_mut().unwrap();
}

fn unraw(bytes: &[u8]) -> TensorDescriptor {
    TensorDescriptor::from_bytes(bytes).unwrap()
}

#[allow(unsafe_code, reason = "fork")]
fn grandchild() {
    let pool = pool(TensorPoolConfig::small());
    let tensor = filled(&pool, 10_000, 1);
    let shared = Tensor::options().create(&[1 << 20], DType::U8).unwrap();
    // SAFETY: see `forked`.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // The child lets go of what it inherited, takes the numbers for itself, and forks in turn.
        drop((tensor, shared));
        let files: Vec<_> = (0..64).map(|_| std::fs::File::open("/dev/null").unwrap()).collect();
        let mut own = Tensor::options().create(&[1 << 20], DType::U8).unwrap();
        own.map_mut().unwrap().as_mut_slice::<u8>().unwrap().fill(5);
        // SAFETY: see `forked`.
        let grandchild = unsafe { libc::fork() };
        if grandchild == 0 {
            let open = files.iter().all(|file| file.metadata().is_ok());
            // SAFETY: ends the process at once.
            unsafe { libc::_exit(i32::from(!(open && all_are(&own, 5)))) };
        }
        // SAFETY: ends the process at once.
        unsafe { libc::_exit(wait_for(grandchild)) };
    }
    assert_eq!(wait_for(child), 0);
    assert!(all_are(&tensor, 1) && all_are(&shared, 0));
}

/// The exit code of a child; 99 if it had none.
#[allow(unsafe_code, reason = "waitpid")]
fn wait_for(child: libc::pid_t) -> i32 {
    let mut status = 0;
    // SAFETY: waits for our own child.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { 99 }
}

fn staged() {
    let pool = pool(TensorPoolConfig::small());
    let frame = Tensor::options().row_alignment(64).image(30, 20, PixelFormat::Nv12).unwrap();
    let region = frame.roi(2, 2, 11, 7).unwrap().with_device(Device::cuda(2));
    let staged = pool.stage(&region).unwrap();
    assert_eq!((staged.image_size(), staged.device()), (Some((11, 7)), Device::cuda(2)));
    let imported = Tensor::from_descriptor(&staged.descriptor().unwrap()).unwrap();
    for plane in 0..2 {
        let samples = |tensor: &Tensor| tensor.plane(plane).unwrap().to_vec::<u8>().unwrap();
        assert_eq!(samples(&imported), samples(&region));
    }
    let vector = Tensor::from_vec((0..100u32).collect(), &[10, 10]).unwrap();
    let staged = pool.stage(&vector.transpose()).unwrap();
    assert_eq!(staged.to_vec::<u32>().unwrap(), vector.transpose().to_vec::<u32>().unwrap());
    assert_eq!(pool.stats().unwrap().bytes_copied, 11 * 7 + 6 * 4 * 2 + 400);
}

fn scrubbed() {
    let pool = pool(TensorPoolConfig { scrub: true, ..TensorPoolConfig::small() });
    for publish in [false, true] {
        let tensor = filled(&pool, 5000, 7);
        if publish {
            tensor.descriptor().unwrap();
        }
        drop(tensor);
        assert!(all_are(&pool.alloc(&[5000], DType::U8).unwrap(), 0), "published: {publish}");
    }
}

fn ahead() {
    let pool = pool(TensorPoolConfig { growth: 1 << 20, ..TensorPoolConfig::small() });
    let _held: Vec<Tensor> = (0..2).map(|_| filled(&pool, 1 << 20, 1)).collect();
    // The service thread has its own time.
    for _ in 0..12_000 {
        let stats = pool.stats().unwrap();
        if stats.bytes_reserved > stats.bytes_in_use {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("nothing was reserved ahead of need: {:?}", pool.stats());
}

/// Ten frames of one size, and then one that is larger than any segment of theirs.
fn reclaimed() {
    let pool = pool(TensorPoolConfig::small());
    drop((0..10).map(|_| filled(&pool, 6 << 20, 1)).collect::<Vec<_>>());
    assert!(all_are(&filled(&pool, 50 << 20, 2), 2));
    let start = std::time::Instant::now();
    let large = pool.alloc_timeout(&[65 << 20], DType::U8, Duration::from_secs(600));
    assert!(large.is_err() && start.elapsed() < Duration::from_secs(300), "never waited for");
}

fn waits() {
    let pool = pool(TensorPoolConfig { max_slots: 1, ..TensorPoolConfig::small() });
    let tensor = filled(&pool, 100, 1);
    let error = pool.alloc_timeout(&[1], DType::U8, Duration::from_millis(20)).unwrap_err();
    assert!(matches!(error, Error::PoolFull { .. }));
    let attached = TensorPool::open(pool.name()).unwrap();
    let error = attached.alloc_timeout(&[1], DType::U8, Duration::ZERO).unwrap_err();
    assert!(matches!(error, Error::NotOwner { op: "alloc_timeout", .. }), "{error}");
    let error = attached.alloc_while(&[1], DType::U8, Duration::ZERO, || true).unwrap_err();
    assert!(matches!(error, Error::NotOwner { op: "alloc_while", .. }), "{error}");
    let mut peer = pool_user();
    assert_eq!(peer.request(&format!("import {}", hex(&tensor.descriptor().unwrap()))), "ok");
    drop(tensor);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| pool.alloc_timeout(&[1], DType::U8, Duration::from_secs(60)));
        assert_eq!(peer.request("drop"), "ok");
        waiter.join().unwrap().unwrap();
    });
    peer.kill();
}

fn vanished() {
    let pool = pool(TensorPoolConfig::small());
    let dir = pools_dir();
    let file = format!("{}@{:016x}", pool.name(), pool.uid());
    std::fs::remove_file(dir.join(&file)).unwrap();
    for _ in 0..12_000 {
        if TensorPool::open(pool.name()).is_ok() {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("the socket did not come back");
}

#[allow(unsafe_code, reason = "fork")]
fn forked() {
    let pool = pool(TensorPoolConfig::small());
    let mut tensor = filled(&pool, 10_000, 1);
    let shared = Tensor::options().create(&[10_000], DType::U8).unwrap();
    // SAFETY: the child calls only this crate and `_exit`; tests in this program hold no lock that
    // it needs, for cenote keeps its own whole across a fork.
    match unsafe { libc::fork() } {
        0 => {
            let ok = forked_child(&pool, &mut tensor, shared);
            // SAFETY: ends the child at once, whatever state it is in.
            unsafe { libc::_exit(i32::from(!ok)) };
        }
        child => {
            let mut status = 0;
            // SAFETY: waits for our own child.
            unsafe { libc::waitpid(child, &raw mut status, 0) };
            assert_eq!(status, 0, "the child failed");
        }
    }
    assert!(all_are(&tensor, 1));
    assert!(all_are(&shared, 0));
    tensor.map_mut().unwrap();
    let descriptor = tensor.descriptor().unwrap();
    drop(tensor);
    assert_eq!(pool.stats().unwrap().slots_in_use, 0);
    assert!(Tensor::from_descriptor(&descriptor).is_err());
    let mut peer = pool_user();
    assert_eq!(peer.request(&format!("open {}", pool.name())), "ok");
    peer.kill();
}

fn forked_child(pool: &TensorPool, tensor: &mut Tensor, mut shared: Tensor) -> bool {
    tensor.map_mut().unwrap().as_mut_slice::<u8>().unwrap().fill(99);
    shared.map_mut().unwrap().as_mut_slice::<u8>().unwrap().fill(99);
    let refused = matches!(pool.alloc(&[1], DType::U8), Err(Error::Forked { .. }));
    drop(tensor.clone());
    let opened = TensorPool::open(pool.name()).is_ok();
    refused && opened
}
