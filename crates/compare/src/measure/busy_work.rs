//! Work that keeps a core busy without memory accesses. It takes longer while another thread shares the core.

use std::hint::black_box;
use std::time::Instant;

use crate::measure::samples::{median, nanos_since};

/// Independent chains of multiplications: enough to keep the only multiplier of a core busy.
const CHAINS: usize = 4;
const STEPS: usize = 4_000;

/// The number of repetitions of which [`time`] returns the median.
const TRIES: usize = 25;

/// Does the work once: some microseconds.
pub(crate) fn run() {
    let mut chains: [u64; CHAINS] = black_box([1, 2, 3, 4]);
    for _ in 0..STEPS {
        for number in &mut chains {
            *number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        }
    }
    black_box(chains);
}

/// The median time of [`run`] in nanoseconds.
pub(crate) fn time() -> f64 {
    let tries = (0..TRIES).map(|_| {
        let began = Instant::now();
        run();
        nanos_since(began)
    });
    median(&tries.collect::<Vec<f64>>()).unwrap_or_default()
}
