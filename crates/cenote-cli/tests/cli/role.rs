//! What this program does when it is started with a role: it is a process to be looked at.

use std::io::{Read, Write};
use std::time::Duration;

use cenote::{
    DType, Field, Image, PointCloud, Tensor, TensorMemory, TensorPool, TensorPoolConfig, Topic,
    bytemuck,
};

/// The environment variable that names the role.
pub(crate) const ROLE: &str = "CENOTE_TEST_ROLE";

/// Plays the role, if there is one, until killed.
pub(crate) fn play() -> bool {
    let Ok(role) = std::env::var(ROLE) else { return false };
    match role.as_str() {
        "heap publisher" => heap_publisher(),
        "bf16 publisher" => bf16_publisher(),
        "cloud publisher" => cloud_publisher(),
        "pose publisher" => pose_publisher(),
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

/// Sends clouds that have room for more points than they have, whenever it is told to.
fn cloud_publisher() {
    let topic = |name: &str| -> Topic<PointCloud> {
        let topic = Topic::new(name).unwrap();
        topic.advertise().unwrap();
        topic
    };
    let (two, none, mixed) = (topic("cloud.two"), topic("cloud.none"), topic("cloud.mixed"));
    ready();
    while std::io::stdin().read_exact(&mut [0]).is_ok() {
        let mut cloud = PointCloud::new(5, 3, DType::F32).unwrap();
        let numbers: Vec<f32> = (1_u16..16).map(f32::from).collect();
        for (point, numbers) in numbers.chunks_exact(3).enumerate() {
            for (name, number) in ["x", "y", "z"].into_iter().zip(numbers) {
                cloud.set(point, name, *number).unwrap();
            }
        }
        cloud.set_len(2).unwrap();
        two.send(&cloud).unwrap();
        cloud.set_len(0).unwrap();
        none.send(&cloud).unwrap();
        mixed.send(&mixed_cloud()).unwrap();
        ready();
    }
}

fn mixed_cloud() -> PointCloud {
    let fields = [
        Field::new("x", DType::F32),
        Field::new("ring", DType::U16),
        Field::new("rgb", DType::U8).with_count(3),
    ];
    let mut cloud = PointCloud::with_fields(4, &fields).unwrap();
    for point in 0..4_u16 {
        let at = usize::from(point);
        cloud.set(at, "x", f32::from(point) + 0.5).unwrap();
        cloud.set(at, "ring", 300 + point).unwrap();
        cloud.set_all(at, "rgb", &[7_u8, 8, 9]).unwrap();
    }
    cloud.set_len(2).unwrap();
    cloud
}

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct Pose {
    position: [f64; 3],
    rotation: [f64; 4],
}
cenote::plain!(Pose { position, rotation });

/// Sends where something is, whenever it is told to.
fn pose_publisher() {
    let topic: Topic<Pose> = Topic::new("robot.pose").unwrap();
    topic.advertise().unwrap();
    ready();
    while std::io::stdin().read_exact(&mut [0]).is_ok() {
        let pose = Pose { position: [1.0, -2.5, f64::NAN], rotation: [0.0, 0.0, 0.0, 1.0] };
        topic.send(&pose).unwrap();
        ready();
    }
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
