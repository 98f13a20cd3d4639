//! The cache maintenance calls of each access by the CPU, as a tracer sees them.
#![allow(unsafe_code, reason = "ptrace and waitpid")]

use std::io;
use std::mem::offset_of;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use cenote::{DType, PixelFormat, Tensor, TensorMemory, TensorPool, TensorPoolConfig};
use libc::{c_long, c_uint, c_void, pid_t};

use super::{Role, Test, dma, from_heap};
use crate::support::peer::ROLE;
use crate::support::unique;

pub(super) const TESTS: &[Test] = &[(
    "every_access_is_bracketed_in_its_direction_and_maps_nothing",
    every_access_is_bracketed_in_its_direction_and_maps_nothing,
)];

pub(super) const ROLES: &[Role] = &[("look", look)];

/// `DMA_BUF_IOCTL_SYNC`.
const SYNC: u64 = 0x4008_6200;

/// The calls of interest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Call {
    BeginRead,
    EndRead,
    BeginReadWrite,
    EndReadWrite,
    Map,
    Unmap,
    /// The next step begins.
    Step,
}

use Call::{BeginRead, BeginReadWrite, EndRead, EndReadWrite};

/// The steps of the child, and the calls that each must make.
const STEPS: &[(&str, &[Call])] = &[
    ("map", &[BeginRead, EndRead]),
    ("map again, and look twice", &[BeginRead, EndRead]),
    ("map_mut", &[BeginReadWrite, EndReadWrite]),
    ("map_mut, and read in it", &[BeginReadWrite, EndReadWrite]),
    ("two maps at once", &[BeginRead, BeginRead, EndRead, EndRead]),
    ("a view", &[BeginRead, EndRead]),
    ("map_mut of a shared tensor is refused", &[]),
    ("to_vec", &[BeginRead, EndRead]),
    ("copy to the heap", &[BeginRead, EndRead]),
    ("copy from the heap", &[BeginReadWrite, EndReadWrite]),
    ("the planes of an image", &[BeginReadWrite, EndReadWrite]),
    ("heap memory", &[]),
];

/// The further steps of a pool of DMA-BUFs.
fn pool_steps(heap: &str) -> [(&'static str, &'static [Call]); 4] {
    // A reader of the memfd behind a udmabuf cannot make these calls, so the owner makes them.
    let shown: &[Call] = if heap == "udmabuf" { &[BeginRead, EndRead] } else { &[] };
    [
        ("publishing", shown),
        ("publishing again", &[]),
        ("the end of a slot that is scrubbed", &[BeginReadWrite, EndReadWrite]),
        ("publishing what was reused", shown),
    ]
}

fn every_access_is_bracketed_in_its_direction_and_maps_nothing() {
    for heap in ["system", "udmabuf"] {
        let steps = traced(heap);
        let expected: Vec<_> = STEPS.iter().copied().chain(pool_steps(heap)).collect();
        assert_eq!(steps.len(), expected.len(), "{heap}: {steps:?}");
        for (found, (step, expected)) in steps.iter().zip(expected) {
            assert_eq!(found, expected, "{heap}: {step}");
        }
    }
}

/// The child: each step begins with a call that does nothing. Allocations come before the first step.
fn look(words: &[&str]) {
    from_heap(words[0], || {
        let mut tensor = dma().create(&[16, 16], DType::U8).unwrap();
        let mut image = dma().image(64, 64, PixelFormat::Nv12).unwrap();
        let mut small = Tensor::from_vec(vec![1u8; 256], &[16, 16]).unwrap();
        let mut elements = Vec::with_capacity(256);
        let pool = pool(words[0] == "system");

        step();
        assert_eq!(tensor.map().unwrap().get::<u8>(&[0, 0]).unwrap(), 0);
        step();
        let map = tensor.map().unwrap();
        elements.extend_from_slice(map.as_slice::<u8>().unwrap());
        assert_eq!(map.runs().count(), 1);
        drop(map);
        step();
        tensor.map_mut().unwrap().as_mut_slice::<u8>().unwrap().fill(7);
        step();
        let map = tensor.map_mut().unwrap();
        assert_eq!(map.as_map().get::<u8>(&[1, 1]).unwrap(), 7);
        drop(map);
        step();
        drop((tensor.map().unwrap(), tensor.map().unwrap()));
        step();
        assert_eq!(tensor.roi(3, 3, 2, 2).unwrap().map().unwrap().runs().count(), 2);
        step();
        let other = tensor.clone();
        assert!(tensor.map_mut().is_err());
        drop(other);
        step();
        drop(tensor.to_vec::<u8>().unwrap());
        step();
        small
            .map_mut()
            .unwrap()
            .as_mut_slice()
            .unwrap()
            .copy_from_slice(tensor.map().unwrap().as_slice::<u8>().unwrap());
        step();
        let bytes = [1u8; 256];
        tensor.map_mut().unwrap().as_mut_slice().unwrap().copy_from_slice(&bytes);
        step();
        let mut map = image.map_mut().unwrap();
        map.plane_mut(0).unwrap().for_each_run(|row| row.fill(1));
        map.plane_mut(1).unwrap().for_each_run(|row| row.fill(2));
        drop(map);
        step();
        small.map_mut().unwrap().set::<u8>(&[0, 0], 1).unwrap();
        step();
        publish(&pool);
    });
}

/// Steps of a pool, the first of which has begun.
fn publish(pool: &TensorPool) {
    let tensor = pool.alloc(&[4096], DType::U8).unwrap();
    tensor.descriptor().unwrap();
    step();
    tensor.descriptor().unwrap();
    step();
    drop(tensor);
    step();
    let again = pool.alloc(&[4096], DType::U8).unwrap();
    again.descriptor().unwrap();
    step();
    drop(again);
}

/// A pool that has made its only slot.
fn pool(unprotected: bool) -> TensorPool {
    let config = TensorPoolConfig {
        memory: TensorMemory::Dma,
        unprotected,
        scrub: true,
        max_slots: 1,
        ..TensorPoolConfig::small()
    };
    let pool = TensorPool::new(unique(), config).unwrap();
    pool.alloc(&[4096], DType::U8).unwrap().descriptor().unwrap();
    pool
}

fn step() {
    // SAFETY: it does nothing.
    unsafe { libc::getppid() };
}

/// Runs the child under ptrace and returns its calls, by steps.
fn traced(heap: &str) -> Vec<Vec<Call>> {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.env(ROLE, format!("look {heap}")).stdin(Stdio::null());
    let trace_me = || ptrace(libc::PTRACE_TRACEME, 0, 0, 0).map(drop);
    // SAFETY: ptrace(2) is async-signal-safe, and nothing else happens there.
    let child = unsafe { command.pre_exec(trace_me) }.spawn().unwrap();
    let pid = child.id().cast_signed();
    assert!(wait(pid).is_some_and(|status| libc::WIFSTOPPED(status)), "it stops at exec");
    let options = libc::PTRACE_O_TRACESYSGOOD | libc::PTRACE_O_EXITKILL;
    ptrace(libc::PTRACE_SETOPTIONS, pid, 0, usize::try_from(options).unwrap()).unwrap();
    let mut calls = Vec::new();
    let mut entering = true;
    let mut signal = 0;
    loop {
        ptrace(libc::PTRACE_SYSCALL, pid, 0, signal).unwrap();
        let status = wait(pid).unwrap();
        if libc::WIFEXITED(status) {
            assert_eq!(libc::WEXITSTATUS(status), 0, "the child failed");
            break;
        }
        assert!(libc::WIFSTOPPED(status), "killed: {status:#x}");
        signal = 0;
        match libc::WSTOPSIG(status) {
            at if at == libc::SIGTRAP | 0x80 => {
                calls.extend(if entering { call(pid) } else { None });
                entering = !entering;
            }
            libc::SIGTRAP => {}
            other => signal = usize::try_from(other).unwrap(),
        }
    }
    // It was reaped above.
    drop(child);
    by_steps(&calls)
}

/// The call that the child is about to make.
fn call(pid: pid_t) -> Option<Call> {
    let number = register(pid, offset_of!(libc::user_regs_struct, orig_rax));
    match c_long::try_from(number).unwrap() {
        libc::SYS_getppid => Some(Call::Step),
        libc::SYS_mmap => Some(Call::Map),
        libc::SYS_munmap => Some(Call::Unmap),
        libc::SYS_ioctl if register(pid, offset_of!(libc::user_regs_struct, rsi)) == SYNC => {
            let address = register(pid, offset_of!(libc::user_regs_struct, rdx));
            Some(match peek(libc::PTRACE_PEEKDATA, pid, address) {
                1 => BeginRead,
                3 => BeginReadWrite,
                5 => EndRead,
                7 => EndReadWrite,
                other => panic!("flags {other}"),
            })
        }
        _ => None,
    }
}

fn by_steps(calls: &[Call]) -> Vec<Vec<Call>> {
    let mut steps: Vec<Vec<Call>> =
        calls.split(|&call| call == Call::Step).map(Vec::from).collect();
    // The calls before the first step and after the last do not count.
    steps.remove(0);
    steps.pop();
    steps
}

fn register(pid: pid_t, at: usize) -> u64 {
    peek(libc::PTRACE_PEEKUSER, pid, u64::try_from(at).unwrap())
}

fn peek(request: c_uint, pid: pid_t, address: u64) -> u64 {
    ptrace(request, pid, usize::try_from(address).unwrap(), 0).unwrap().cast_unsigned()
}

fn ptrace(request: c_uint, pid: pid_t, addr: usize, data: usize) -> io::Result<c_long> {
    let (addr, data) = (addr as *mut c_void, data as *mut c_void);
    // SAFETY: no request of this file has the kernel write our memory.
    let result = unsafe { libc::ptrace(request, pid, addr, data) };
    let peeks = [libc::PTRACE_PEEKUSER, libc::PTRACE_PEEKDATA].contains(&request);
    if result == -1 && !peeks { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn wait(pid: pid_t) -> Option<i32> {
    let mut status = 0;
    // SAFETY: our own child, which is reaped here and nowhere else.
    (unsafe { libc::waitpid(pid, &raw mut status, 0) } == pid).then_some(status)
}
