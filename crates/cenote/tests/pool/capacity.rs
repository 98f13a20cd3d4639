//! What a pool does and reports when it has no room or no memory, and that its numbers are correct.

use std::time::Duration;

use cenote::{DType, Error, Shortage, Tensor, TensorPool, TensorPoolConfig, Wish};

use super::{Test, filled, hex, pool, pool_user};

pub(crate) const TESTS: &[Test] = &[
    ("holders_lists_every_lease_and_the_owners_own", holders),
    ("a_tensor_larger_than_the_pool_is_an_error_that_says_so", too_large),
    ("an_error_distinguishes_fragmented_memory_from_none", fragmented),
    ("freed_neighbours_become_room_for_a_larger_tensor", coalesced),
    ("an_allocation_that_waited_in_vain_is_one_failure", one_failure),
    ("a_waiting_allocation_gets_the_most_recently_used_slot", given_what_was_hot),
    ("a_growth_step_beyond_the_machine_falls_back_to_what_is_needed", falls_back),
    ("bools_are_cleared_and_nothing_else_is", bools),
    ("bools_of_another_process_are_copied_or_refused", foreign_bools),
    ("stats_include_slots_that_readers_released", stats_are_fresh),
    ("waste_is_that_of_the_tensors_alive", waste),
    ("mixed_sizes_waste_no_more_than_an_eighth", eighth),
    ("scrubbing_never_makes_a_pool_look_full", scrubbing),
    ("a_slot_that_a_reader_released_is_scrubbed", scrubbed_after_readers),
    ("a_slot_is_scrubbed_at_once_though_others_are_attached", scrubbed_in_company),
    ("senseless_configurations_are_errors", senseless),
    ("wishes_are_granted_or_named", wishes),
    ("threads_that_share_one_hot_slot_never_share_its_bytes", threads),
];

fn holders() {
    let pool = pool(TensorPoolConfig { max_slots: 4, ..TensorPoolConfig::small() });
    assert!(pool.holders().unwrap().is_empty());
    let mut peer = pool_user();
    let (kept, retired) = (filled(&pool, 100, 5), filled(&pool, 100, 5));
    for tensor in [&kept, &retired] {
        assert_eq!(peer.request(&format!("import {}", hex(&tensor.descriptor().unwrap()))), "ok");
    }
    drop(retired);
    let _others = [filled(&pool, 100, 1), filled(&pool, 100, 1)];

    let found = pool.holders().unwrap();
    let of = |pid: u32| found.iter().find(|holder| holder.pid == pid.cast_signed()).unwrap();
    let reader = of(peer.pid());
    assert_eq!((reader.slots, reader.retired_slots), (2, 1));
    let own = of(std::process::id());
    assert_eq!((own.slots, own.retired_slots, own.program.as_str()), (3, 0, "this process"));
    assert_eq!((found.len(), found[0].pid), (2, reader.pid), "who is in the way comes first");

    let message = pool.alloc(&[100], DType::U8).unwrap_err().to_string();
    for part in [
        "every slot is in use; 4 of 4 slots".to_owned(),
        format!("(pid {}) holds 2, of which the owner retired 1, first ", peer.pid()),
        format!("; this process (pid {}) holds 3", std::process::id()),
    ] {
        assert!(message.contains(&part), "{part:?} is not in: {message}");
    }
    peer.kill();
}

fn shortage(error: &Error) -> Shortage {
    match error {
        Error::PoolFull { why, .. } => *why,
        other => panic!("{other}"),
    }
}

fn too_large() {
    let pool = pool(TensorPoolConfig { pool_size: 1 << 16, ..TensorPoolConfig::small() });
    let error = pool.alloc(&[(1 << 16) + 1], DType::U8).unwrap_err();
    assert_eq!(shortage(&error), Shortage::TooLarge);
    assert!(error.to_string().contains("more than the whole pool"), "{error}");
    pool.alloc(&[1 << 16], DType::U8).unwrap();
}

fn fragmented() {
    let pool = pool(TensorPoolConfig { pool_size: 1 << 16, ..TensorPoolConfig::small() });
    let mut all: Vec<Tensor> = (0..16).map(|value| filled(&pool, 4096, value)).collect();
    let error = pool.alloc(&[1], DType::U8).unwrap_err();
    assert_eq!(shortage(&error), Shortage::Bytes);
    let mut index = 0;
    all.retain(|_| {
        index += 1;
        index % 2 == 0
    });
    let error = pool.alloc(&[8192], DType::U8).unwrap_err();
    assert_eq!(shortage(&error), Shortage::Fragmented { free: 8 * 4096, longest: 4096 });
    assert!(error.to_string().contains("32768 bytes are free, but no more than 4096"), "{error}");
    pool.alloc(&[4096], DType::U8).unwrap();
}

fn coalesced() {
    let pool = pool(TensorPoolConfig { pool_size: 1 << 16, ..TensorPoolConfig::small() });
    let mut all: Vec<Tensor> = (0..16).map(|value| filled(&pool, 4096, value)).collect();
    drop((all.remove(4), all.remove(4), all.remove(4)));
    let joined = pool.alloc(&[3 * 4096], DType::U8).unwrap();
    assert_eq!(pool.stats().unwrap().bytes_in_use, 1 << 16);
    drop(joined);
    for (at, tensor) in [0, 1, 2, 3, 7].into_iter().zip(&all) {
        assert!(super::all_are(tensor, at), "{at}");
    }
}

fn one_failure() {
    let pool = pool(TensorPoolConfig { max_slots: 1, ..TensorPoolConfig::small() });
    let _held = filled(&pool, 100, 1);
    let wait = |millis| pool.alloc_timeout(&[1], DType::U8, Duration::from_millis(millis));
    assert_eq!(shortage(&wait(250).unwrap_err()), Shortage::Slots);
    assert_eq!(shortage(&wait(0).unwrap_err()), Shortage::Slots);
    assert_eq!(pool.stats().unwrap().failures, 2);
}

fn given_what_was_hot() {
    let pool = pool(TensorPoolConfig { max_slots: 1, ..TensorPoolConfig::small() });
    for _ in 0..50 {
        let held = filled(&pool, 100, 1);
        std::thread::scope(|scope| {
            let wait = || pool.alloc_timeout(&[64], DType::U8, Duration::from_secs(60));
            let waiter = scope.spawn(wait);
            drop(held);
            waiter.join().unwrap().unwrap();
        });
    }
    let stats = pool.stats().unwrap();
    assert_eq!((stats.allocations, stats.failures, stats.slots_in_use), (100, 0, 0));
}

fn falls_back() {
    let config = TensorPoolConfig { pool_size: 1 << 46, growth: 1 << 45, ..Default::default() };
    let pool = pool(config);
    let tensor = filled(&pool, 10_000, 3);
    let stats = pool.stats().unwrap();
    assert!((10_000..1 << 20).contains(&stats.bytes_reserved), "{stats:?}");
    let error = pool.alloc(&[1 << 45], DType::U8).unwrap_err();
    assert!(matches!(error, Error::OutOfMemory { .. }), "{error}");
    assert_eq!(pool.stats().unwrap().failures, 1);
    drop(tensor);
}

fn bools() {
    let pool = pool(TensorPoolConfig { max_slots: 1, ..TensorPoolConfig::small() });
    for timeout in [None, Some(Duration::ZERO)] {
        drop(filled(&pool, 1000, 7));
        let mut mask = match timeout {
            None => pool.alloc(&[10, 100], DType::Bool).unwrap(),
            Some(time) => pool.alloc_timeout(&[10, 100], DType::Bool, time).unwrap(),
        };
        let mut map = mask.map_mut().unwrap();
        let mask = map.as_mut_slice::<bool>().unwrap();
        assert!(mask.iter().all(|set| !set));
        mask[3] = true;
    }
    drop(filled(&pool, 1000, 7));
    assert!(super::all_are(&pool.alloc(&[1000], DType::U8).unwrap(), 7));
}

fn foreign_bools() {
    let pool = pool(TensorPoolConfig::small());
    let mut mask = pool.alloc(&[3], DType::Bool).unwrap();
    mask.map_mut().unwrap().as_mut_slice::<bool>().unwrap()[1] = true;
    let descriptor = mask.descriptor().unwrap();
    let own = Tensor::from_descriptor(&descriptor).unwrap();
    assert_eq!(own.map().unwrap().as_slice::<bool>().unwrap(), [false, true, false]);
    let mut peer = pool_user();
    assert_eq!(peer.request(&format!("import {}", hex(&descriptor))), "ok");
    let answer = peer.request("bools");
    assert!(answer.contains("can still be written by another process"), "{answer}");
    assert!(answer.ends_with("copied: [false, true, false]"), "{answer}");
    peer.kill();
}

fn stats_are_fresh() {
    let pool = pool(TensorPoolConfig::small());
    let mut peer = pool_user();
    let tensors: Vec<Tensor> = (0..3).map(|_| filled(&pool, 1000, 5)).collect();
    for tensor in &tensors {
        assert_eq!(peer.request(&format!("import {}", hex(&tensor.descriptor().unwrap()))), "ok");
    }
    drop(tensors);
    let stats = pool.stats().unwrap();
    assert_eq!((stats.slots_in_use, stats.retired, stats.bytes_in_use), (0, 3, 3 * 1024));
    assert_eq!(pool.holders().unwrap()[0].retired_slots, 3);
    assert_eq!(peer.request("drop"), "ok");
    let stats = pool.stats().unwrap();
    assert_eq!((stats.slots_in_use, stats.retired, stats.bytes_in_use), (0, 0, 0));
    assert!(pool.holders().unwrap().is_empty());
    peer.kill();
}

fn waste() {
    let pool = pool(TensorPoolConfig::small());
    // The slot of the first serves all of them.
    for len in [1088, 1000, 1050, 1088] {
        let _tensor = filled(&pool, len, 1);
        let stats = pool.stats().unwrap();
        assert_eq!((stats.bytes_in_use, stats.waste_bytes), (1088, 1088 - len), "{len}");
    }
    assert_eq!(pool.stats().unwrap().peak_bytes, 1088);
}

fn eighth() {
    let pool = pool(TensorPoolConfig { growth: 8 << 20, ..TensorPoolConfig::small() });
    let mut held: Vec<Tensor> = Vec::new();
    let mut seed = 1_u64;
    for round in 0..3000 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let random = usize::try_from(seed >> 40).unwrap();
        if held.len() > 20 || (random % 3 == 0 && !held.is_empty()) {
            held.swap_remove(random % held.len());
        }
        held.push(pool.alloc(&[1 + random % 200_000], DType::U8).unwrap());
        let stats = pool.stats().unwrap();
        let asked: usize = held.iter().map(|tensor| tensor.nbytes().next_multiple_of(64)).sum();
        assert!(stats.bytes_in_use <= asked + asked / 8, "round {round}: {stats:?}");
    }
    // 21 tensors of 100 kB on average fit into one segment of 8 MiB.
    assert_eq!(pool.stats().unwrap().segments, 1);
}

/// One of two threads finds what readers let go of, and scrubs it; the other needs some of it.
fn scrubbing() {
    let config = TensorPoolConfig { scrub: true, max_slots: 2, ..TensorPoolConfig::small() };
    let pool = pool(config);
    for value in 0..30 {
        let tensors = [filled(&pool, 2_000_000, value), filled(&pool, 2_000_000, value)];
        let leases = tensors
            .each_ref()
            .map(|tensor| Tensor::from_descriptor(&tensor.descriptor().unwrap()).unwrap());
        drop(tensors);
        drop(leases);
        let both = std::sync::Barrier::new(2);
        let alloc = || {
            both.wait();
            pool.alloc(&[2_000_000], DType::U8).unwrap()
        };
        std::thread::scope(|scope| {
            let (one, two) = (scope.spawn(alloc), scope.spawn(alloc));
            let tensors = [one.join().unwrap(), two.join().unwrap()];
            assert!(tensors.iter().all(|tensor| super::all_are(tensor, 0)));
        });
    }
    let stats = pool.stats().unwrap();
    assert_eq!((stats.failures, stats.slots_in_use, stats.bytes_in_use), (0, 0, 0));
}

fn scrubbed_after_readers() {
    let pool = pool(TensorPoolConfig { scrub: true, max_slots: 1, ..TensorPoolConfig::small() });
    let tensor = filled(&pool, 5000, 7);
    let mut peer = pool_user();
    assert_eq!(peer.request(&format!("import {}", hex(&tensor.descriptor().unwrap()))), "ok");
    drop(tensor);
    assert_eq!(peer.request("check 7"), "true");
    assert_eq!(peer.request("drop"), "ok");
    assert!(super::all_are(&pool.alloc(&[5000], DType::U8).unwrap(), 0));
    peer.kill();
}

#[allow(unsafe_code, reason = "looks at a slot that nobody has")]
fn scrubbed_in_company() {
    let pool = pool(TensorPoolConfig { scrub: true, ..TensorPoolConfig::small() });
    let mut peer = pool_user();
    assert_eq!(peer.request(&format!("open {}", pool.name())), "ok");
    let tensor = filled(&pool, 5000, 7);
    tensor.descriptor().unwrap();
    let bytes = tensor.as_ptr();
    drop(tensor);
    // SAFETY: the pool keeps its segments mapped, and nobody has the slot.
    assert_eq!(unsafe { bytes.read_volatile() }, 0);
    peer.kill();
}

/// What the kernel says of the first segment of a pool, in KiB.
fn segment_has(pool: &TensorPool, what: &str) -> usize {
    let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let segment = smaps.split_once(&format!("memfd:{} ", pool.name())).unwrap().1;
    let line = segment.lines().find_map(|line| line.strip_prefix(what)).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

fn wishes() {
    let config = |prefault, mlock| TensorPoolConfig {
        growth: 1 << 20,
        prefault,
        mlock,
        ..TensorPoolConfig::small()
    };
    let made = |config| {
        let pool = pool(config);
        let tensor = pool.alloc(&[1000], DType::U8).unwrap();
        (pool, tensor)
    };
    let (plain, _tensor) = made(config(false, false));
    assert_eq!((segment_has(&plain, "Rss:"), segment_has(&plain, "Locked:")), (0, 0));
    assert!(plain.stats().unwrap().not_granted.is_empty());
    let (present, _tensor) = made(config(true, false));
    let (locked, _tensor) = made(config(false, true));
    for (pool, wish, what) in [(present, Wish::Prefault, "Rss:"), (locked, Wish::Lock, "Locked:")] {
        let refused = pool.stats().unwrap().not_granted;
        match segment_has(&pool, what) {
            0 => assert_eq!(refused, [wish]),
            all => assert_eq!((all, refused.as_slice()), (1024, [].as_slice()), "{wish:?}"),
        }
    }
}

fn senseless() {
    for config in [
        TensorPoolConfig { pool_size: 1, ..Default::default() },
        TensorPoolConfig { slot_alignment: 3, ..Default::default() },
        TensorPoolConfig { max_slots: 0, ..Default::default() },
    ] {
        let error = TensorPool::new(super::unique(), config).unwrap_err();
        assert!(matches!(error, Error::BadConfig { .. }), "{error}");
    }
}

/// Two threads that let go of and take the same few slots, one of them with a deadline.
fn threads() {
    let pool = pool(TensorPoolConfig { max_slots: 3, ..TensorPoolConfig::small() });
    std::thread::scope(|scope| {
        for value in 1..=3 {
            let pool = &pool;
            scope.spawn(move || {
                for round in 0..3000 {
                    let tensor = if value == 3 && round % 8 == 0 {
                        let time = Duration::from_secs(60);
                        let mut tensor = pool.alloc_timeout(&[64], DType::U8, time).unwrap();
                        tensor.map_mut().unwrap().as_mut_slice::<u8>().unwrap().fill(value);
                        tensor
                    } else {
                        filled(pool, 64, value)
                    };
                    assert!(super::all_are(&tensor, value));
                }
            });
        }
    });
    let stats = pool.stats().unwrap();
    assert_eq!((stats.allocations, stats.failures, stats.slots_in_use), (9000, 0, 0));
}
