//! Work that keeps a core busy and touches no memory: what it takes tells whether somebody shares the core.

use std::hint::black_box;
use std::time::Instant;

use crate::page::nanos;
use crate::samples::median;

/// Multiplications that do not wait for each other, as many as keep the only multiplier of a core busy.
const CHAINS: usize = 4;
const STEPS: usize = 4_000;

/// How often it is tried.
const TRIES: usize = 25;

/// A piece of work.
pub(crate) fn once() {
    let mut chains: [u64; CHAINS] = black_box([1, 2, 3, 4]);
    for _ in 0..STEPS {
        for number in &mut chains {
            *number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        }
    }
    black_box(chains);
}

/// Nanoseconds of it, most of the time.
pub(crate) fn time() -> f64 {
    let tries = (0..TRIES).map(|_| {
        let began = Instant::now();
        once();
        nanos(began)
    });
    median(&tries.collect::<Vec<f64>>()).unwrap_or_default()
}
