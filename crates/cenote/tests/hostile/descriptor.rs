//! Descriptors that lie: to an attacher, and to the owner itself.

use cenote::{DType, PixelFormat, Tensor, TensorDescriptor, TensorPool};

use super::Test;
use crate::stranger::{all_are, filled, pool};

pub(crate) const TESTS: &[Test] = &[
    ("every_bit_of_a_descriptor_flipped", || flips(&|pool| filled(pool, 5000, 4))),
    ("every_bit_of_an_images_descriptor_flipped", || flips(&image)),
    ("every_bit_of_a_views_descriptor_flipped", || flips(&view)),
    ("words_of_a_descriptor_replaced", words),
    ("descriptors_of_every_length", lengths),
    ("a_descriptor_that_repeats_one_element_for_ever", repeats),
];

/// Where the number of the segment stands: a wrong one is waited for, so its bits are tried apart.
const SEGMENT: std::ops::Range<usize> = 16..20;

/// Where the first dimension and its stride stand.
const SHAPE: usize = 40;
const STRIDES: usize = size_of::<TensorDescriptor>() - 8 * cenote::MAX_DIMS;

fn image(pool: &TensorPool) -> Tensor {
    pool.alloc(&[96, 128], DType::U8).unwrap().with_format(PixelFormat::Nv12).unwrap()
}

fn view(pool: &TensorPool) -> Tensor {
    let tensor = pool.alloc(&[20, 30, 4], DType::F32).unwrap();
    tensor.transpose().narrow(1, 3, 10).unwrap()
}

/// Uses a descriptor as a receiver would: all that it shows is looked at.
fn use_it(attached: &TensorPool, bytes: &[u8]) {
    let descriptor = TensorDescriptor::from_bytes(bytes).unwrap();
    for tensor in [attached.import(&descriptor), Tensor::from_descriptor(&descriptor)] {
        let Ok(tensor) = tensor else { continue };
        // Small enough to look at every element, wherever it claims to lie.
        if tensor.layout().len() <= 1 << 20 {
            let total: usize =
                tensor.map().unwrap().runs().flatten().map(|&byte| usize::from(byte)).sum();
            std::hint::black_box(total);
        }
        let _ = tensor.descriptor();
    }
}

fn flips(make: &dyn Fn(&TensorPool) -> Tensor) {
    let pool = pool(4);
    let kept = filled(&pool, 1000, 8);
    let tensor = make(&pool);
    let valid = tensor.descriptor().unwrap().as_bytes().to_vec();
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

/// It fits its segment, and to copy it takes more memory than there is.
fn repeats() {
    let pool = pool(4);
    let tensor = filled(&pool, 64, 4);
    let mut bytes = tensor.descriptor().unwrap().as_bytes().to_vec();
    bytes[SHAPE..SHAPE + 8].copy_from_slice(&(1_u64 << 44).to_ne_bytes());
    bytes[STRIDES..STRIDES + 8].copy_from_slice(&0_u64.to_ne_bytes());
    let descriptor = TensorDescriptor::from_bytes(&bytes).unwrap();
    let endless = Tensor::from_descriptor(&descriptor).unwrap();
    assert_eq!(endless.shape(), [1 << 44]);
    assert!(endless.to_vec::<u8>().is_err());
    assert!(endless.to_contiguous().is_err());
    assert!(endless.clone().make_mut().is_err());
}

fn lengths() {
    for len in (0..size_of::<TensorDescriptor>()).chain([size_of::<TensorDescriptor>() + 1, 5000]) {
        assert!(TensorDescriptor::from_bytes(&vec![1; len]).is_err());
    }
}
