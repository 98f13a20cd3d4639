//! Allocating and freeing: cenote's pool, whose tensors other processes can map, and other allocators.

use std::mem::MaybeUninit;

use cenote::{DType, TensorPool, TensorPoolConfig};

use crate::Result;
use crate::allocators::{Allocator, MALLOC, Mmap};
use crate::mapping::touch;
use crate::measure::rounds::{Schedule, Subject, interleave};
use crate::measure::series::Series;

/// The name of the group.
pub(crate) const GROUP: &str = "pool";

/// Names, bytes, and whether the quick run includes the size.
const SIZES: [(&str, usize, bool); 6] = [
    ("64 B", 64, true),
    ("4 KiB", 4 << 10, false),
    ("64 KiB", 64 << 10, true),
    ("1 MiB", 1 << 20, false),
    ("1080p", crate::FRAME, true),
    ("24 MB", 24 << 20, true),
];

/// Measures the group.
pub(crate) fn run(schedule: Schedule) -> Result<Vec<Series>> {
    let pool = TensorPool::new("pool", TensorPoolConfig::default())?;
    let mut all = Vec::new();
    for (name, bytes, quick) in SIZES {
        if quick || schedule.full {
            all.extend(untouched(schedule, &pool, name, bytes)?);
            all.extend(touched(schedule, &pool, name, bytes)?);
        }
    }
    all.extend(only_cenote(schedule, &pool)?);
    Ok(all)
}

/// Without touching the memory.
fn untouched(
    schedule: Schedule,
    pool: &TensorPool,
    name: &str,
    bytes: usize,
) -> Result<Vec<Series>> {
    let mut subjects = vec![Subject::new("cenote", || Ok(pool.alloc(&[bytes], DType::U8)?))];
    #[cfg(feature = "peers")]
    {
        let publisher = crate::groups::hand_off::iceoryx2::Loans::new(bytes)?;
        subjects.push(Subject::new("iceoryx2, loan", move || publisher.loan_and_drop()));
    }
    subjects.push(allocated("malloc", MALLOC, bytes, |_| {}));
    #[cfg(feature = "allocators")]
    subjects.push(allocated(
        "mimalloc",
        crate::allocators::General(mimalloc::MiMalloc),
        bytes,
        |_| {},
    ));
    subjects.push(allocated("mmap", Mmap, bytes, |_| {}));
    interleave(schedule, GROUP, &format!("alloc + drop, {name}"), subjects)
}

/// With a write to every page.
fn touched(schedule: Schedule, pool: &TensorPool, name: &str, bytes: usize) -> Result<Vec<Series>> {
    let cenote = || {
        let mut tensor = pool.alloc(&[bytes], DType::U8)?;
        tensor.map_mut()?.as_mut_bytes()?.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
        Ok(tensor)
    };
    let mut subjects = vec![Subject::new("cenote", cenote)];
    #[cfg(feature = "peers")]
    {
        let publisher = crate::groups::hand_off::iceoryx2::Loans::new(bytes)?;
        subjects.push(Subject::new("iceoryx2, loan", move || publisher.loan_touch_and_drop()));
    }
    subjects.push(allocated("malloc", MALLOC, bytes, touch));
    #[cfg(feature = "allocators")]
    subjects.push(allocated(
        "mimalloc",
        crate::allocators::General(mimalloc::MiMalloc),
        bytes,
        touch,
    ));
    subjects.push(allocated("mmap", Mmap, bytes, touch));
    interleave(schedule, GROUP, &format!("alloc, touch pages, drop, {name}"), subjects)
}

fn allocated<'a, A: Allocator + 'a>(
    who: &'static str,
    mut allocator: A,
    bytes: usize,
    with: impl Fn(&mut [MaybeUninit<u8>]) + 'a,
) -> Subject<'a> {
    Subject::new(who, move || {
        let mut block = allocator.alloc(bytes / 4)?;
        with(A::bytes(&mut block));
        allocator.free(std::hint::black_box(block));
        Ok(())
    })
}

/// Operations that only cenote has.
fn only_cenote(schedule: Schedule, pool: &TensorPool) -> Result<Vec<Series>> {
    let shape = [1080, 1920, 3];
    let tensor = pool.alloc(&shape, DType::U8)?;
    let attached = TensorPool::open("pool")?;
    let descriptor = tensor.descriptor()?;
    let mut size = 6 << 20;
    let alternating = || {
        size ^= 1 << 20;
        Ok(pool.alloc(&[size], DType::U8)?)
    };
    let published = || Ok(pool.alloc(&shape, DType::U8)?.descriptor()?);
    let works = [
        ("alloc + drop, 6 and 7 MiB alternating", Subject::new("cenote", alternating)),
        ("clone + drop", Subject::new("cenote", || Ok(tensor.clone()))),
        ("alloc, descriptor, reuse; attached once", Subject::new("cenote", published)),
        ("import + drop, attached", Subject::new("cenote", || Ok(attached.import(&descriptor)?))),
        (
            "import + drop, by descriptor alone",
            Subject::new("cenote", || Ok(cenote::Tensor::from_descriptor(&descriptor)?)),
        ),
        ("attach", Subject::new("cenote", || Ok(TensorPool::open("pool")?))),
        (
            "make and drop a pool",
            Subject::new("cenote", || Ok(TensorPool::new("other", TensorPoolConfig::small())?)),
        ),
    ];
    let mut all = Vec::new();
    for (work, subject) in works {
        all.extend(interleave(schedule, GROUP, work, vec![subject])?);
    }
    Ok(all)
}
