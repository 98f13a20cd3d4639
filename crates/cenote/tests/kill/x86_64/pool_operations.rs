//! The operations of pools during which a victim is killed.

use std::io::Write;

use cenote::{DType, Tensor, TensorDescriptor, TensorPool, TensorPoolConfig};

use super::topic_operations;
use super::tracer::mark;

/// Bytes of a tensor: one fills a quarter of a segment.
pub(crate) const LEN: usize = 4096;
pub(crate) const SLOTS: usize = 8;

pub(crate) fn config() -> TensorPoolConfig {
    TensorPoolConfig {
        pool_size: LEN * SLOTS,
        max_slots: SLOTS,
        growth: 4 * LEN,
        ..TensorPoolConfig::small()
    }
}

pub(crate) fn filled(pool: &TensorPool, value: u8) -> Tensor {
    let mut tensor = pool.alloc(&[LEN], DType::U8).unwrap();
    tensor.map_mut().unwrap().as_mut_slice::<u8>().unwrap().fill(value);
    tensor
}

pub(crate) fn all_are(tensor: &Tensor, value: u8) -> bool {
    tensor.map().unwrap().as_slice::<u8>().unwrap().iter().all(|&byte| byte == value)
}

/// Takes few instructions, because a forwarder is killed at each of them.
pub(crate) fn hex(tensor: &Tensor) -> String {
    let descriptor = tensor.descriptor().unwrap();
    let bytes = descriptor.as_bytes();
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        text.extend(
            [byte >> 4, byte & 15].map(|digit| char::from(b"0123456789abcdef"[usize::from(digit)])),
        );
    }
    text
}

pub(crate) fn unhex(text: &str) -> TensorDescriptor {
    let digits = |at| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
    let bytes: Vec<u8> = (0..text.len()).step_by(2).map(digits).collect();
    TensorDescriptor::from_bytes(&bytes).unwrap()
}

pub(crate) fn write_line(line: &str) {
    println!("{line}");
    std::io::stdout().flush().unwrap();
}

/// A line of input, read byte by byte: the bytes after it are for the next reader.
pub(crate) fn read_line() -> Option<String> {
    let mut line = Vec::new();
    let mut byte = [0];
    while rustix::io::read(std::io::stdin(), &mut byte).unwrap() == 1 {
        if byte == *b"\n" {
            return Some(String::from_utf8(line).unwrap());
        }
        line.extend(byte);
    }
    None
}

/// Runs a task when its parent sends `go`. The first word is the operation.
pub(crate) fn run(task: &str) {
    write_line(&std::process::id().to_string());
    if read_line().is_none() {
        return;
    }
    let words: Vec<&str> = task.split(' ').collect();
    match words[..] {
        ["reader"] => reader(),
        ["attach", name] => operation(|| TensorPool::open(name).unwrap()),
        ["import", name, text] => import(name, text),
        ["release", name, text] => release(name, text),
        ["second-pool", name, text] => second_pool(name, text),
        ["forward", text] => forward(text),
        ["wait", name] => wait(name),
        ["hold", text] => hold(text),
        ["create", name] => operation(|| TensorPool::new(name, config()).unwrap()),
        ["alloc", name] => alloc(name),
        ["grow", name] => grow(name),
        ["write", name] => write(name),
        ["drop", name] => drop_unpublished(name),
        ["publish", name] => publish(name),
        ["retire", name] => retire(name),
        ["sweep", name] => sweep(name),
        ["reap", name] => reap(name),
        ["trim", name] => trim(name),
        ["close", name] => close(name),
        ["serve", name] => serve(name),
        _ => topic_operations::run(&words),
    }
}

/// Runs an operation between two marks. Only its instructions count.
pub(crate) fn operation<T>(work: impl FnOnce() -> T) {
    mark();
    let done = std::hint::black_box(work());
    mark();
    drop(done);
}

/// Answers each line with a line. It is not a victim.
fn reader() {
    let mut pool = None;
    let mut tensors: Vec<(Tensor, u8)> = Vec::new();
    let mut owned = Vec::new();
    while let Some(line) = read_line() {
        let words: Vec<&str> = line.split(' ').collect();
        let answer = match words[..] {
            ["own", name] => {
                owned.push(owner(name));
                continue;
            }
            ["open", name] => TensorPool::open(name).map(|opened| pool = Some(opened)),
            ["import", text, value] => Tensor::from_descriptor(&unhex(text))
                .map(|tensor| tensors.push((tensor, value.parse().unwrap()))),
            ["drop"] => {
                tensors.clear();
                Ok(())
            }
            ["check"] => {
                assert!(tensors.iter().all(|(tensor, value)| all_are(tensor, *value)));
                Ok(())
            }
            _ => panic!("no such question: {line}"),
        };
        write_line(&answer.map_or_else(|error| format!("{error}"), |()| "ok".to_owned()));
    }
}

// Operations of a reader.

fn import(name: &str, text: &str) {
    let pool = TensorPool::open(name).unwrap();
    let descriptor = unhex(text);
    operation(|| {
        let tensor = pool.import(&descriptor).unwrap();
        let first = tensor.map().unwrap().as_slice::<u8>().unwrap()[0];
        (tensor, first)
    });
}

fn release(name: &str, text: &str) {
    let pool = TensorPool::open(name).unwrap();
    let tensor = pool.import(&unhex(text)).unwrap();
    operation(|| drop(tensor));
}

fn second_pool(name: &str, text: &str) {
    let _first = TensorPool::open(name).unwrap();
    let descriptor = unhex(text);
    operation(|| Tensor::from_descriptor(&descriptor).unwrap());
}

/// Imports a tensor from one pool and passes it on to another.
fn forward(text: &str) {
    let descriptor = unhex(text);
    let held = Tensor::from_descriptor(&descriptor).unwrap();
    operation(|| {
        let again = Tensor::from_descriptor(&descriptor).unwrap();
        drop(held);
        write_line(&hex(&again));
        drop(again);
    });
}

/// The service thread does the operation.
fn wait(name: &str) {
    let _pool = TensorPool::open(name).unwrap();
    mark();
}

fn hold(text: &str) {
    let _held = Tensor::from_descriptor(&unhex(text)).unwrap();
    mark();
}

// Operations of an owner. Each has published a tensor of sevens, which another process holds.

fn owner(name: &str) -> (TensorPool, Tensor) {
    let pool = TensorPool::new(name, config()).unwrap();
    let tensor = filled(&pool, 7);
    write_line(&hex(&tensor));
    (pool, tensor)
}

fn alloc(name: &str) {
    let (pool, _kept) = owner(name);
    drop(filled(&pool, 1));
    operation(|| pool.alloc(&[LEN], DType::U8).unwrap());
}

fn grow(name: &str) {
    let (pool, _kept) = owner(name);
    let _others = [(); 3].map(|()| filled(&pool, 1));
    operation(|| pool.alloc(&[LEN], DType::U8).unwrap());
}

fn write(name: &str) {
    let (pool, _kept) = owner(name);
    let mut tensor = filled(&pool, 1);
    operation(|| tensor.map_mut().unwrap().as_mut_slice::<u8>().unwrap().fill(2));
}

fn drop_unpublished(name: &str) {
    let (pool, _kept) = owner(name);
    let tensor = filled(&pool, 1);
    operation(|| drop(tensor));
}

fn publish(name: &str) {
    let (pool, _kept) = owner(name);
    let tensor = filled(&pool, 1);
    operation(|| tensor.descriptor().unwrap());
}

fn retire(name: &str) {
    let (_pool, tensor) = owner(name);
    operation(|| drop(tensor));
}

/// Another reader releases a slot of eights, and one keeps its lease of the sevens.
fn sweep(name: &str) {
    let (pool, tensor) = owner(name);
    let other = filled(&pool, 8);
    write_line(&hex(&other));
    mark();
    drop((tensor, other));
    operation(|| pool.alloc(&[LEN], DType::U8).unwrap());
}

/// The pool is full, and the holder of one slot is dead.
fn reap(name: &str) {
    let (pool, _kept) = owner(name);
    let other = filled(&pool, 8);
    write_line(&hex(&other));
    mark();
    drop(other);
    let _rest = [(); SLOTS - 2].map(|()| filled(&pool, 1));
    operation(|| pool.alloc(&[LEN], DType::U8).unwrap());
}

fn trim(name: &str) {
    let (pool, _kept) = owner(name);
    drop([(); SLOTS - 1].map(|()| filled(&pool, 1)));
    operation(|| assert_ne!(pool.trim().unwrap(), 0));
}

fn close(name: &str) {
    let (pool, tensor) = owner(name);
    operation(|| drop((pool, tensor)));
}

/// The service thread does the operation.
fn serve(name: &str) {
    let (_pool, _kept) = owner(name);
    mark();
}
