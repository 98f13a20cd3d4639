//! The basic examples: one process sends, another receives.

use cenote::{
    CopyReason, DType, DepthImage, Image, Intrinsics, PixelFormat, PointCloud, Tensor, Topic,
};

use super::child::LONG;
use super::{Role, Test};
use crate::support::peer::Peer;
use crate::support::unique;

pub(crate) const TESTS: &[Test] = &[
    ("a_camera_sends_an_image", image),
    ("a_lidar_sends_a_point_cloud", cloud),
    ("a_depth_camera_sends_a_depth_image", depth),
    ("a_tensor_of_the_topic_pool_is_sent", tensor),
    ("a_topic_receives_what_it_sent_itself", own),
];

pub(crate) const ROLES: &[Role] = &[("example", send)];

/// The sender of each example.
fn send(words: &[&str]) {
    let [what, name] = words else { panic!("{words:?}") };
    match *what {
        "image" => send_image(name),
        "cloud" => send_cloud(name),
        "depth" => send_depth(name),
        "tensor" => send_tensor(name),
        _ => panic!("{what}"),
    }
    .unwrap();
    let staged = cenote::copies().into_iter().find(|copies| copies.reason == CopyReason::Staged);
    assert_eq!(staged.unwrap().count, 0, "no pixel is copied");
}

/// Starts a sender, waits until it has ended, and receives its message.
fn received<T: cenote::Message>(what: &str) -> T {
    let name = unique();
    let topic: Topic<T> = Topic::new(&name).unwrap();
    topic.subscribe().unwrap();
    assert!(Peer::start(&format!("example {what} {name}")).finish().success());
    let found = topic.recv_timeout(LONG).unwrap();
    found.unwrap_or_else(|| panic!("missed {}: {:?}", topic.missed(), topic.last_loss()))
}

fn bytes(tensor: &Tensor) -> Vec<u8> {
    tensor.map().unwrap().as_slice().unwrap().to_vec()
}

fn send_image(name: &str) -> cenote::Result<()> {
    let mut image = Image::new(640, 480, PixelFormat::Rgb8)?;
    image.map_mut()?.as_mut_slice::<u8>()?.as_chunks_mut().0.fill([255_u8, 0, 0]);
    image.set_frame_id("camera_front")?;
    image.set_stamp_ns(1_700_000_000_123_456_789);
    image.set_seq(7);
    let topic: Topic<Image> = Topic::new(name)?;
    topic.wait_for_subscribers(1, LONG)?;
    topic.send(&image)
}

fn image() {
    let image = received::<Image>("image");
    assert_eq!((image.width(), image.height(), image.format()), (640, 480, PixelFormat::Rgb8));
    assert_eq!((image.frame_id(), image.seq()), ("camera_front", 7));
    assert_eq!(image.stamp_ns(), 1_700_000_000_123_456_789);
    assert!(bytes(image.tensor()).chunks(3).all(|pixel| pixel == [255, 0, 0]));
}

fn send_cloud(name: &str) -> cenote::Result<()> {
    let mut cloud = PointCloud::new(10_000, 3, DType::F32)?;
    for (index, value) in cloud.map_mut()?.as_mut_slice::<f32>()?.iter_mut().enumerate() {
        *value = f32::from(u16::try_from(index % 3000).unwrap());
    }
    let topic: Topic<PointCloud> = Topic::new(name)?;
    topic.wait_for_subscribers(1, LONG)?;
    topic.send(&cloud)
}

fn cloud() {
    let cloud = received::<PointCloud>("cloud");
    assert_eq!((cloud.len(), cloud.tensor().shape()), (10_000, &[10_000, 3][..]));
    assert_eq!(
        cloud.fields().iter().map(|field| field.name()).collect::<Vec<_>>(),
        ["x", "y", "z"]
    );
    let map = cloud.map().unwrap();
    let values = map.as_slice::<f32>().unwrap();
    assert_eq!(values[3 * 1000 + 1], 1.0);
    assert_eq!(values[3 * 999 + 2], 2999.0);
}

const PINHOLE: Intrinsics = Intrinsics { fx: 525.0, fy: 525.5, cx: 319.5, cy: 239.5 };

fn send_depth(name: &str) -> cenote::Result<()> {
    let mut depth = DepthImage::new(480, 640, DType::F32)?;
    depth.map_mut()?.as_mut_slice::<f32>()?.fill(1.25);
    depth.set_intrinsics(PINHOLE)?;
    let topic: Topic<DepthImage> = Topic::new(name)?;
    topic.wait_for_subscribers(1, LONG)?;
    topic.send(&depth)
}

fn depth() {
    let depth = received::<DepthImage>("depth");
    assert_eq!((depth.width(), depth.height(), depth.dtype()), (640, 480, DType::F32));
    assert_eq!(depth.intrinsics(), Some(PINHOLE));
    assert!(depth.map().unwrap().as_slice::<f32>().unwrap().iter().all(|metres| *metres == 1.25));
}

fn send_tensor(name: &str) -> cenote::Result<()> {
    let topic: Topic<Tensor> = Topic::new(name)?;
    let mut tensor = topic.alloc_tensor(&[1080, 1920, 3], DType::U8)?;
    for (index, byte) in tensor.map_mut()?.as_mut_slice::<u8>()?.iter_mut().enumerate() {
        *byte = u8::try_from(index % 253).unwrap();
    }
    topic.wait_for_subscribers(1, LONG)?;
    topic.send(&tensor)
}

fn tensor() {
    let tensor = received::<Tensor>("tensor");
    assert_eq!((tensor.shape(), tensor.dtype()), (&[1080, 1920, 3][..], DType::U8));
    assert!(
        bytes(&tensor).iter().enumerate().all(|(index, byte)| usize::from(*byte) == index % 253)
    );
}

fn own() {
    let mut image = Image::new(640, 480, PixelFormat::Rgb8).unwrap();
    image.map_mut().unwrap().as_mut_slice::<u8>().unwrap().as_chunks_mut().0.fill([255_u8, 0, 0]);
    let topic: Topic<Image> = Topic::new(&unique()).unwrap();
    topic.send(&image).unwrap();
    let received = topic.recv().expect("the message that was just sent");
    assert_eq!(bytes(received.tensor())[..6], [255, 0, 0, 255, 0, 0]);
    assert!(topic.recv().is_none());
}
