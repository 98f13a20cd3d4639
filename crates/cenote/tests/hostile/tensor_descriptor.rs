//! Invalid descriptors, given to a reader and to the owner itself.

use cenote::{
    DType, DepthImage, Domain, Field, Image, Intrinsics, MAX_DIMS, PixelFormat, PointCloud, Tensor,
    TensorDescriptor, TensorPool,
};

use super::Test;
use crate::support::{HEAD, all_are, filled, pool};

pub(crate) const TESTS: &[Test] = &[
    ("every_bit_of_a_descriptor_flipped", || flips(&|pool| filled(pool, 5000, 4))),
    ("every_bit_of_an_images_descriptor_flipped", || flips(&image)),
    ("every_bit_of_a_views_descriptor_flipped", || flips(&view)),
    ("words_of_a_descriptor_replaced", words),
    ("descriptors_of_every_length", lengths),
    ("descriptors_that_claim_a_wrong_length", lying_lengths),
    ("every_bit_of_an_image_with_metadata_flipped", || flips_of(&domain_image)),
    ("every_bit_of_a_point_cloud_flipped", || flips_of(&cloud)),
    ("every_bit_of_a_depth_image_flipped", || flips_of(&depth)),
    ("metadata_replaced", metadata),
    ("a_descriptor_that_repeats_one_element_endlessly", repeats),
];

/// The bytes of the segment's number. A reader waits for an unknown segment, so threads try these bits in parallel.
const SEGMENT: std::ops::Range<usize> = 16..20;

/// The offsets of the number of dimensions, and of the number of metadata words.
const NDIM: usize = 39;
const META: usize = 42;

/// The most words of metadata.
const MAX_META: usize = 64;

fn image(pool: &TensorPool) -> Tensor {
    pool.alloc(&[96, 128], DType::U8).unwrap().with_format(PixelFormat::Nv12).unwrap()
}

fn view(pool: &TensorPool) -> Tensor {
    let tensor = pool.alloc(&[20, 30, 4], DType::F32).unwrap();
    tensor.transpose().narrow(1, 3, 10).unwrap()
}

/// Uses a descriptor as a receiver does, and reads everything that it gives access to.
fn use_it(attached: &TensorPool, bytes: &[u8]) {
    // A descriptor whose length contradicts its head is refused at once.
    let Ok(descriptor) = TensorDescriptor::from_bytes(bytes) else { return };
    let _ = Image::from_descriptor(&descriptor).map(|image| look(&image));
    let _ = DepthImage::from_descriptor(&descriptor).map(|depth| look(&depth));
    if let Ok(cloud) = PointCloud::from_descriptor(&descriptor) {
        assert!(cloud.len() <= cloud.capacity() && cloud.fields().len() <= 16);
        look(&cloud);
    }
    for tensor in [attached.import(&descriptor), Tensor::from_descriptor(&descriptor)] {
        let Ok(tensor) = tensor else { continue };
        // Small enough to read every element, wherever it claims to be.
        if tensor.layout().len() <= 1 << 20 {
            let total: usize =
                tensor.map().unwrap().runs().flatten().map(|&byte| usize::from(byte)).sum();
            std::hint::black_box(total);
        }
        let _ = tensor.descriptor();
    }
}

/// Uses the metadata.
fn look<T: Domain + std::fmt::Debug>(what: &T) {
    std::hint::black_box(format!("{what:?}"));
    std::hint::black_box(what.clone());
}

fn domain_image(pool: &TensorPool) -> (Tensor, TensorDescriptor) {
    let mut image = Image::new_in(pool, 64, 48, PixelFormat::Yuyv).unwrap();
    image.set_frame_id("camera_front").unwrap();
    (image.tensor().clone(), image.descriptor().unwrap())
}

fn cloud(pool: &TensorPool) -> (Tensor, TensorDescriptor) {
    let xyz = ["x", "y", "z"].map(|name| Field::new(name, DType::F32));
    let fields = [&xyz[..], &[Field::new("rgb", DType::U8).with_count(3)]].concat();
    let cloud = PointCloud::new_in(pool, 100, &fields).unwrap();
    (cloud.tensor().clone(), cloud.descriptor().unwrap())
}

fn depth(pool: &TensorPool) -> (Tensor, TensorDescriptor) {
    let mut depth = DepthImage::new_in(pool, 48, 64, DType::U16).unwrap();
    depth.set_intrinsics(Intrinsics { fx: 50.0, fy: 50.0, cx: 32.0, cy: 24.0 }).unwrap();
    (depth.tensor().clone(), depth.descriptor().unwrap())
}

fn flips(make: &dyn Fn(&TensorPool) -> Tensor) {
    flips_of(&|pool| {
        let tensor = make(pool);
        let descriptor = tensor.descriptor().unwrap();
        (tensor, descriptor)
    });
}

fn flips_of(make: &dyn Fn(&TensorPool) -> (Tensor, TensorDescriptor)) {
    let pool = pool(4);
    let kept = filled(&pool, 1000, 8);
    let (tensor, descriptor) = make(&pool);
    let valid = descriptor.as_bytes().to_vec();
    let attached = TensorPool::open(pool.name()).unwrap();
    for byte in (0..valid.len()).filter(|byte| !SEGMENT.contains(byte)) {
        for bit in 0..8 {
            let mut bytes = valid.clone();
            bytes[byte] ^= 1 << bit;
            use_it(&attached, &bytes);
        }
    }
    std::thread::scope(|scope| {
        for bit in 0..32 {
            let mut bytes = valid.clone();
            bytes[SEGMENT.start + bit / 8] ^= 1 << (bit % 8);
            let attached = &attached;
            scope.spawn(move || use_it(attached, &bytes));
        }
    });
    drop(tensor);
    assert!(all_are(&kept, 8));
    assert_eq!(pool.stats().unwrap().retired, 0, "no lease was left behind");
}

fn words() {
    let pool = pool(4);
    let tensor = filled(&pool, 5000, 4);
    let valid = tensor.descriptor().unwrap().as_bytes().to_vec();
    let attached = TensorPool::open(pool.name()).unwrap();
    let values = [0, 1, u64::MAX, u64::MAX / 2, 1 << 63, 1 << 32, 4096, u64::MAX - 7, 8 << 20];
    for at in (8..valid.len() - 7).step_by(8).filter(|at| *at != SEGMENT.start) {
        for value in values {
            let mut bytes = valid.clone();
            bytes[at..at + 8].copy_from_slice(&value.to_ne_bytes());
            use_it(&attached, &bytes);
        }
    }
    drop(tensor);
    assert_eq!(pool.stats().unwrap().retired, 0, "no lease was left behind");
}

/// A stride of 0 makes it fit its segment, but a copy needs more memory than exists.
fn repeats() {
    let pool = pool(4);
    let tensor = filled(&pool, 64, 4);
    let mut bytes = tensor.descriptor().unwrap().as_bytes().to_vec();
    // One dimension: its length, then its stride.
    bytes[HEAD..HEAD + 8].copy_from_slice(&(1_u64 << 44).to_ne_bytes());
    bytes[HEAD + 8..HEAD + 16].copy_from_slice(&0_u64.to_ne_bytes());
    let descriptor = TensorDescriptor::from_bytes(&bytes).unwrap();
    let endless = Tensor::from_descriptor(&descriptor).unwrap();
    assert_eq!(endless.shape(), [1 << 44]);
    assert!(endless.to_vec::<u8>().is_err());
    assert!(endless.to_contiguous().is_err());
    assert!(endless.clone().make_mut().is_err());
}

/// Only the length that the head gives is accepted.
fn lengths() {
    let longest = HEAD + 8 * (2 * MAX_DIMS + MAX_META);
    for len in 0..longest + 9 {
        assert_eq!(TensorDescriptor::from_bytes(&vec![0; len]).is_ok(), len == HEAD, "{len}");
    }
    assert!(TensorDescriptor::from_bytes(&[0; 5000]).is_err());
}

/// A descriptor is refused unless it has the bytes for the dimensions and metadata that it claims.
fn lying_lengths() {
    let pool = pool(4);
    let tensor = filled(&pool, 5000, 4);
    let valid = tensor.descriptor().unwrap().as_bytes().to_vec();
    let attached = TensorPool::open(pool.name()).unwrap();
    for ndim in 0..=u8::MAX {
        for meta in [0, 1, 3, 63, 64, 65, u16::MAX] {
            let mut bytes = valid.clone();
            bytes[NDIM] = ndim;
            bytes[META..META + 2].copy_from_slice(&meta.to_ne_bytes());
            bytes.resize(HEAD + 8 * (2 * usize::from(ndim) + usize::from(meta)), 1);
            let possible = usize::from(ndim) <= MAX_DIMS && usize::from(meta) <= MAX_META;
            assert_eq!(TensorDescriptor::from_bytes(&bytes).is_ok(), possible, "{ndim} {meta}");
            use_it(&attached, &bytes);
            // It is also plain data (`Pod`), which can be made of bytes without a check.
            bytes.resize(size_of::<TensorDescriptor>(), 1);
            let unchecked: TensorDescriptor = bytemuck::pod_read_unaligned(&bytes);
            assert!(
                unchecked.as_bytes().len() <= bytes.len() && !format!("{unchecked:?}").is_empty()
            );
            assert!(attached.import(&unchecked).is_err() || usize::from(ndim) <= MAX_DIMS);
            assert!(Image::from_descriptor(&unchecked).is_err());
        }
    }
    drop(tensor);
    assert_eq!(pool.stats().unwrap().retired, 0, "no lease was left behind");
}

/// Words of metadata that cenote never writes.
fn metadata() {
    let pool = pool(4);
    let attached = TensorPool::open(pool.name()).unwrap();
    for make in [domain_image, cloud, depth] {
        let (tensor, descriptor) = make(&pool);
        let valid = descriptor.as_bytes().to_vec();
        let start = HEAD + 16 * tensor.ndim();
        let values = [0, 1, 15, 16, 17, 48, 49, 1 << 32, 1 << 56, 1 << 63, u64::MAX - 7, u64::MAX];
        for at in (start..valid.len()).step_by(8) {
            for value in values {
                let mut bytes = valid.clone();
                bytes[at..at + 8].copy_from_slice(&u64::to_ne_bytes(value));
                use_it(&attached, &bytes);
            }
        }
        // With too few and too many words.
        for words in 0..=MAX_META {
            let mut bytes = valid.clone();
            let words = u16::try_from(words).unwrap();
            bytes.resize(start + 8 * usize::from(words), 1);
            bytes[META..META + 2].copy_from_slice(&words.to_ne_bytes());
            use_it(&attached, &bytes);
            // As a tensor it is valid, whatever the metadata.
            Tensor::from_descriptor(&TensorDescriptor::from_bytes(&bytes).unwrap()).unwrap();
        }
        drop(tensor);
    }
    assert_eq!(pool.stats().unwrap().retired, 0, "no lease was left behind");
}
