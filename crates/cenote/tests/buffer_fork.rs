//! Pools in a forked child: never stuck, never broken, whatever the parent's threads were doing.
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]
#![allow(unsafe_code, reason = "fork")]
#![cfg(target_os = "linux")]

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::Duration;

use cenote::host_pool::{DeviceAllocator, HostDevice};
use cenote::{Buffer, BufferPool, DType, MemoryPool};

/// Runs `work` in a forked child; says whether it came to its end in a minute and was content.
fn child_succeeds(work: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child calls only cenote, the allocator, which survives a fork, and `_exit`.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "{}", std::io::Error::last_os_error());
    if child == 0 {
        let content = catch_unwind(AssertUnwindSafe(work)).unwrap_or(false);
        let code = i32::from(!content);
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(code) };
    }
    for _ in 0..60_000 {
        let mut status = 0;
        // SAFETY: asks for our own child.
        match unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) } {
            0 => thread::sleep(Duration::from_millis(1)),
            _ => return status == 0,
        }
    }
    // SAFETY: the child is ours and was not waited for.
    unsafe { libc::kill(child, libc::SIGKILL) };
    // SAFETY: as above.
    unsafe { libc::waitpid(child, ptr::null_mut(), 0) };
    false
}

/// A thread that the standard library knows nothing of, joined when dropped. Whenever one of its own starts or
/// ends the library takes a lock, and a child that is forked meanwhile can start none for ever.
struct Thread(libc::pthread_t);

impl Thread {
    fn start<F: FnOnce() + Send>(work: &mut Option<F>) -> Thread {
        let mut id = 0;
        let work = ptr::from_mut(work).cast();
        // SAFETY: the work is there until the thread has ended, for it is joined when dropped, and no
        // test forgets one; nobody else uses it meanwhile.
        let error = unsafe { libc::pthread_create(&raw mut id, ptr::null(), run::<F>, work) };
        assert_eq!(error, 0);
        Thread(id)
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        // SAFETY: it was started, and is joined once.
        unsafe { libc::pthread_join(self.0, ptr::null_mut()) };
    }
}

extern "C" fn run<F: FnOnce()>(work: *mut c_void) -> *mut c_void {
    // SAFETY: as said above.
    let work = unsafe { &mut *work.cast::<Option<F>>() };
    work.take().unwrap()();
    ptr::null_mut()
}

/// The emulator cannot fork a process that has threads.
fn emulated() -> bool {
    let emulated = std::env::var_os("CENOTE_TEST_EMULATED").is_some();
    if emulated {
        println!("NOT AVAILABLE under emulation: a forked child");
    }
    emulated
}

/// Everything that takes a lock somewhere.
fn use_everything(pool: &BufferPool, len: usize) {
    let buffer = Buffer::from_slice(pool, &vec![7_u8; len]).unwrap();
    let other = pool.acquire_zeroed::<u32>(len / 3 + 1).unwrap();
    assert!(buffer.iter().all(|&byte| byte == 7) && other.iter().all(|&word| word == 0));
    drop(buffer);
    pool.stats();
    pool.set_max_retained_bytes(len * 4);
    pool.give(vec![0_u8; len]);
    pool.trim(len);
    let fresh = BufferPool::unbounded();
    drop(fresh.acquire::<u8>(len).unwrap());
    drop(other.detach());
}

fn global_instances_work() -> bool {
    let global = MemoryPool::global().unwrap();
    let mut buffer = global.acquire(&[100], DType::U8).unwrap();
    buffer.host_mut::<u8>().unwrap().fill(3);
    buffer.device().unwrap();
    let memory = HostDevice.allocate(1000).unwrap();
    drop(memory);
    global.release(&mut buffer).is_ok()
}

/// What a child does with a pool that it inherited in the midst of its parent's work.
fn child_work(pool: &BufferPool, inherited: Buffer<u8>) -> bool {
    let intact = inherited.iter().all(|&byte| byte == 9);
    drop(inherited);
    use_everything(pool, 5000);
    // Threads of the child, too, find a seat and a shard.
    let mut works = [(); 2].map(|()| Some(|| use_everything(pool, 3000)));
    drop(works.each_mut().map(Thread::start));
    pool.clear();
    intact && global_instances_work() && pool.is_empty()
}

#[test]
fn a_child_forked_during_any_operation_can_continue() {
    if emulated() {
        return;
    }
    let pool = BufferPool::with_max_retained_bytes(1 << 20);
    let (done, all_run) = (AtomicBool::new(false), Barrier::new(5));
    thread::scope(|scope| {
        for seed in 1..=4 {
            let (pool, done, all_run) = (&pool, &done, &all_run);
            scope.spawn(move || {
                all_run.wait();
                for round in 0_usize.. {
                    if done.load(Ordering::Relaxed) {
                        break;
                    }
                    use_everything(pool, 100 + (round * seed * 37) % 20_000);
                    // Short threads take seats and leave them.
                    drop(Thread::start(&mut Some(|| drop(pool.acquire::<u8>(64).unwrap()))));
                }
            });
        }
        all_run.wait();
        let failed = (0..200).find(|_| {
            let inherited = Buffer::from_slice(&pool, &[9; 4000]).unwrap();
            !child_succeeds(|| child_work(&pool, inherited))
        });
        done.store(true, Ordering::Relaxed);
        assert_eq!(failed, None, "the child of this round did not come to its end");
    });
}

#[test]
fn a_child_forked_while_on_limit_runs_can_continue() {
    if emulated() {
        return;
    }
    let (asked, is_asked) = channel();
    let (answer, answered) = channel::<()>();
    let (asked, answered) = (Mutex::new(asked), Arc::new(Mutex::new(answered)));
    let pool = BufferPool::options()
        .hard_limit(1 << 20)
        .on_limit(move |_| {
            asked.lock().unwrap().send(()).unwrap();
            answered.lock().unwrap().recv().unwrap();
            false
        })
        .build();
    thread::scope(|scope| {
        let all = pool.acquire::<u8>(1 << 20).unwrap();
        let asker = scope.spawn(|| pool.acquire::<u8>(1000).is_err());
        is_asked.recv().unwrap();
        let inherited = pool.clone();
        assert!(child_succeeds(move || {
            drop(all);
            let room = inherited.acquire::<u8>(1 << 20).is_ok();
            inherited.clear();
            room && inherited.is_empty()
        }));
        answer.send(()).unwrap();
        assert!(asker.join().unwrap());
    });
}
