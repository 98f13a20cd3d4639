//! What this program does when it is started with a role: it is a process to be looked at.

use std::io::{Read, Write};
use std::time::Duration;

use cenote::{DType, Image, Tensor, TensorMemory, TensorPool, TensorPoolConfig, Topic};

/// The environment variable that names the role.
pub(crate) const ROLE: &str = "CENOTE_TEST_ROLE";

/// Plays the role, if there is one, until killed.
pub(crate) fn play() -> bool {
    let Ok(role) = std::env::var(ROLE) else { return false };
    match role.as_str() {
        "heap publisher" => heap_publisher(),
        "bf16 publisher" => bf16_publisher(),
        "holder" => holder(),
        "owner" => owner(),
        "waiter" => waiter(),
        "grower" => grower(),
        "speaker" => speaker(),
        _ => panic!("no such role: {role}"),
    }
    true
}

pub(crate) fn await_ready(output: &mut impl Read) {
    let mut byte = [0];
    output.read_exact(&mut byte).expect("it says that it is ready");
}

fn ready() {
    std::io::stdout().write_all(b"!").unwrap();
    std::io::stdout().flush().unwrap();
}

fn for_ever() -> ! {
    loop {
        std::thread::sleep(Duration::from_secs(60));
    }
}

/// Sends what no other process can see: three tensors of 100 bytes.
fn heap_publisher() {
    let topic: Topic<Tensor> = Topic::new("heap").unwrap();
    let heap = Tensor::options().memory(TensorMemory::Mem).create(&[100], DType::U8).unwrap();
    (0..3).for_each(|_| topic.send(&heap).unwrap());
    ready();
    for_ever();
}

/// Sends a tensor of a type that NPY does not have.
fn bf16_publisher() {
    let topic: Topic<Tensor> = Topic::new("bf16").unwrap();
    topic.send(&topic.alloc_tensor(&[4], DType::Bf16).unwrap()).unwrap();
    ready();
    for_ever();
}

/// Receives a picture of `camera.rgb`, and keeps it.
fn holder() {
    let topic: Topic<Image> = Topic::new("camera.rgb").unwrap();
    let image = topic.wait().unwrap();
    ready();
    std::mem::forget(image);
    for_ever();
}

/// Has a pool that grows by more than a megabyte with every byte that it is sent.
fn grower() {
    let config = TensorPoolConfig { pool_size: 64 << 20, ..TensorPoolConfig::small() };
    let pool = TensorPool::new("grower", config).unwrap();
    let mut tensors = vec![pool.alloc(&[1000], DType::U8).unwrap()];
    ready();
    while std::io::stdin().read_exact(&mut [0]).is_ok() {
        tensors.push(pool.alloc(&[5 << 20], DType::U8).unwrap());
        ready();
    }
}

/// Sends 40 messages of 100 bytes with every byte that it is sent.
fn speaker() {
    let topic: Topic<Tensor> = Topic::new("speech").unwrap();
    topic.advertise().unwrap();
    ready();
    while std::io::stdin().read_exact(&mut [0]).is_ok() {
        (0..40).for_each(|_| topic.send(&topic.alloc_tensor(&[100], DType::U8).unwrap()).unwrap());
        ready();
    }
}

/// Waits for a picture of `camera.rgb` that nobody sends.
fn waiter() {
    let topic: Topic<Image> = Topic::new("camera.rgb").unwrap();
    topic.subscribe().unwrap();
    ready();
    for_ever();
}

/// Has a pool with one tensor in use.
fn owner() {
    let pool = TensorPool::new("maps", TensorPoolConfig::small()).unwrap();
    let tensor = pool.alloc(&[1000], DType::U8).unwrap();
    ready();
    std::mem::forget(tensor);
    for_ever();
}
