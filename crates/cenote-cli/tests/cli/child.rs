//! The roles of this program when a test starts it as a child process.

use std::io::{Read, Write};
use std::time::Duration;

use cenote::{
    DType, Field, Image, PointCloud, Tensor, TensorMemory, TensorPool, TensorPoolConfig, Topic,
    bytemuck,
};

/// The environment variable that names the role.
pub(crate) const ROLE: &str = "CENOTE_TEST_ROLE";

/// Runs the role that the environment names, until the process is killed. Returns false if it names none.
pub(crate) fn run_role() -> bool {
    let Ok(role) = std::env::var(ROLE) else { return false };
    match role.as_str() {
        "heap publisher" => heap_publisher(),
        "bf16 publisher" => bf16_publisher(),
        "cloud publisher" => cloud_publisher(),
        "pose publisher" => pose_publisher(),
        "image holder" => image_holder(),
        "pool owner" => pool_owner(),
        "subscriber" => subscriber(),
        "growing pool owner" => growing_pool_owner(),
        "batch publisher" => batch_publisher(),
        _ => panic!("no such role: {role}"),
    }
    true
}

/// Waits until a child has called [`ready`].
pub(crate) fn await_ready(output: &mut impl Read) {
    let mut byte = [0];
    output.read_exact(&mut byte).expect("the child is ready");
}

/// Reports to the test that this child is ready, or has made its step.
fn ready() {
    std::io::stdout().write_all(b"!").unwrap();
    std::io::stdout().flush().unwrap();
}

/// Waits for the next step. Returns false once the test has closed the pipe.
fn next_step() -> bool {
    std::io::stdin().read_exact(&mut [0]).is_ok()
}

/// Waits until the test kills this process.
fn wait_forever() -> ! {
    loop {
        std::thread::sleep(Duration::from_secs(60));
    }
}

/// Sends three tensors of 100 bytes on the heap, which no other process can map.
fn heap_publisher() {
    let topic: Topic<Tensor> = Topic::new("heap").unwrap();
    let heap = Tensor::options().memory(TensorMemory::Mem).create(&[100], DType::U8).unwrap();
    (0..3).for_each(|_| topic.send(&heap).unwrap());
    ready();
    wait_forever();
}

/// Sends a tensor of an element type that NPY does not have.
fn bf16_publisher() {
    let topic: Topic<Tensor> = Topic::new("bf16").unwrap();
    topic.send(&topic.alloc_tensor(&[4], DType::Bf16).unwrap()).unwrap();
    ready();
    wait_forever();
}

/// Sends clouds with spare capacity, on each step.
fn cloud_publisher() {
    let topic = |name: &str| -> Topic<PointCloud> {
        let topic = Topic::new(name).unwrap();
        topic.advertise().unwrap();
        topic
    };
    let (two, none, mixed) = (topic("cloud.two"), topic("cloud.none"), topic("cloud.mixed"));
    ready();
    while next_step() {
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

/// Sends a struct, on each step.
fn pose_publisher() {
    let topic: Topic<Pose> = Topic::new("robot.pose").unwrap();
    topic.advertise().unwrap();
    ready();
    while next_step() {
        let pose = Pose { position: [1.0, -2.5, f64::NAN], rotation: [0.0, 0.0, 0.0, 1.0] };
        topic.send(&pose).unwrap();
        ready();
    }
}

/// Receives an image of `camera.rgb`, and holds it.
fn image_holder() {
    let topic: Topic<Image> = Topic::new("camera.rgb").unwrap();
    let image = topic.wait().unwrap();
    ready();
    std::mem::forget(image);
    wait_forever();
}

/// Owns a pool that grows by at least 5 MiB on each step.
fn growing_pool_owner() {
    let config = TensorPoolConfig { pool_size: 64 << 20, ..TensorPoolConfig::small() };
    let pool = TensorPool::new("growing", config).unwrap();
    let mut tensors = vec![pool.alloc(&[1000], DType::U8).unwrap()];
    ready();
    while next_step() {
        tensors.push(pool.alloc(&[5 << 20], DType::U8).unwrap());
        ready();
    }
}

/// Sends 40 messages of 100 bytes on each step.
fn batch_publisher() {
    let topic: Topic<Tensor> = Topic::new("batch").unwrap();
    topic.advertise().unwrap();
    ready();
    while next_step() {
        (0..40).for_each(|_| topic.send(&topic.alloc_tensor(&[100], DType::U8).unwrap()).unwrap());
        ready();
    }
}

/// Subscribes to `camera.rgb`, and receives nothing.
fn subscriber() {
    let topic: Topic<Image> = Topic::new("camera.rgb").unwrap();
    topic.subscribe().unwrap();
    ready();
    wait_forever();
}

/// Owns a pool with one tensor in use.
fn pool_owner() {
    let pool = TensorPool::new("maps", TensorPoolConfig::small()).unwrap();
    let tensor = pool.alloc(&[1000], DType::U8).unwrap();
    ready();
    std::mem::forget(tensor);
    wait_forever();
}
