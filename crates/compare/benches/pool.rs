//! What allocating, cloning, retiring and attaching cost. Run with `cargo bench --bench pool`.

use std::hint::black_box;
use std::time::{Duration, Instant};

use cenote::{DType, Tensor, TensorPool, TensorPoolConfig};

/// The least of several rounds, and the median, in nanoseconds an operation.
fn measure(name: &str, bar: &str, per_round: u32, mut operation: impl FnMut()) {
    let mut rounds: Vec<f64> = (0..50)
        .map(|_| {
            let start = Instant::now();
            for _ in 0..per_round {
                operation();
            }
            start.elapsed().as_nanos() as f64 / f64::from(per_round)
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    println!("{name:<44} min {:>9.1} ns   p50 {:>9.1} ns   {bar}", rounds[0], rounds[25]);
}

fn main() {
    let dir = std::env::temp_dir().join(format!("cenote-bench-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a directory");
    // SAFETY: no other thread runs yet.
    #[allow(unsafe_code)]
    unsafe {
        std::env::set_var("CENOTE_DIR", &dir);
    }
    let pool = TensorPool::new("bench", TensorPoolConfig::default()).expect("a pool");
    for (name, len) in [("64 B", 64), ("6 MB", 1080 * 1920 * 3), ("24 MB", 24 << 20)] {
        measure(&format!("alloc + drop, {name}"), "bar 40", 20_000, || {
            black_box(pool.alloc(&[len], DType::U8).expect("a tensor"));
        });
    }
    let mut len = 6 << 20;
    measure("alloc + drop, two sizes by turns", "", 20_000, || {
        len ^= 1 << 20;
        black_box(pool.alloc(&[len], DType::U8).expect("a tensor"));
    });
    let tensor = pool.alloc(&[1080, 1920, 3], DType::U8).expect("a tensor");
    measure("clone + drop", "bar 10", 100_000, || {
        black_box(tensor.clone());
    });
    measure("alloc + publish + retire + reuse, alone", "", 20_000, || {
        let tensor = pool.alloc(&[1080, 1920, 3], DType::U8).expect("a tensor");
        black_box(tensor.descriptor().expect("a descriptor"));
    });
    let attached = TensorPool::open("bench").expect("attached");
    measure("alloc + publish + retire + reuse, 1 attacher", "bar 120", 20_000, || {
        let tensor = pool.alloc(&[1080, 1920, 3], DType::U8).expect("a tensor");
        black_box(tensor.descriptor().expect("a descriptor"));
    });
    let descriptor = tensor.descriptor().expect("a descriptor");
    measure("import + drop, attached", "", 20_000, || {
        black_box(attached.import(&descriptor).expect("a tensor"));
    });
    measure("import + drop, by uid", "", 20_000, || {
        black_box(Tensor::from_descriptor(&descriptor).expect("a tensor"));
    });
    measure("attach", "bar 500000", 20, || {
        black_box(TensorPool::open("bench").expect("attached"));
    });
    measure("make and drop a pool", "", 20, || {
        black_box(TensorPool::new("other", TensorPoolConfig::small()).expect("a pool"));
    });
    std::thread::sleep(Duration::from_millis(10));
    drop((attached, tensor, pool));
    std::fs::remove_dir_all(dir).expect("cleaning up");
}
