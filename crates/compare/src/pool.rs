//! Memory taken and given back: cenote's pool, whose tensors other processes can see, beside what else
//! there is.

use std::mem::MaybeUninit;

use cenote::{DType, TensorPool, TensorPoolConfig};

use crate::Result;
use crate::allocators::{MALLOC, Mmap, Source};
use crate::pace::{Pace, Subject, interleave};
use crate::region::touch;
use crate::series::Series;

/// What it is called.
pub(crate) const GROUP: &str = "pool";

const SIZES: [(&str, usize, bool); 6] = [
    ("64 B", 64, true),
    ("4 KiB", 4 << 10, false),
    ("64 KiB", 64 << 10, true),
    ("1 MiB", 1 << 20, false),
    ("1080p", crate::FRAME, true),
    ("24 MB", 24 << 20, true),
];

/// All of it.
pub(crate) fn run(pace: Pace) -> Result<Vec<Series>> {
    let pool = TensorPool::new("pool", TensorPoolConfig::default())?;
    let mut all = Vec::new();
    for (name, bytes, quick) in SIZES {
        if quick || pace.full {
            all.extend(untouched(pace, &pool, name, bytes)?);
            all.extend(touched(pace, &pool, name, bytes)?);
        }
    }
    all.extend(ours(pace, &pool)?);
    Ok(all)
}

fn untouched(pace: Pace, pool: &TensorPool, name: &str, bytes: usize) -> Result<Vec<Series>> {
    let mut subjects = vec![Subject::new("cenote", || Ok(pool.alloc(&[bytes], DType::U8)?))];
    #[cfg(feature = "peers")]
    {
        let publisher = crate::hand_off::iceoryx2::Loans::new(bytes)?;
        subjects.push(Subject::new("iceoryx2, loan", move || publisher.loan_and_drop()));
    }
    subjects.push(taken("malloc", MALLOC, bytes, |_| {}));
    #[cfg(feature = "allocators")]
    subjects.push(taken("mimalloc", crate::allocators::Raw(mimalloc::MiMalloc), bytes, |_| {}));
    subjects.push(taken("mmap", Mmap, bytes, |_| {}));
    interleave(pace, GROUP, &format!("alloc + drop, {name}"), subjects)
}

fn touched(pace: Pace, pool: &TensorPool, name: &str, bytes: usize) -> Result<Vec<Series>> {
    let ours = || {
        let mut tensor = pool.alloc(&[bytes], DType::U8)?;
        tensor.map_mut()?.as_mut_bytes()?.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
        Ok(tensor)
    };
    let mut subjects = vec![Subject::new("cenote", ours)];
    #[cfg(feature = "peers")]
    {
        let publisher = crate::hand_off::iceoryx2::Loans::new(bytes)?;
        subjects.push(Subject::new("iceoryx2, loan", move || publisher.loan_touch_and_drop()));
    }
    subjects.push(taken("malloc", MALLOC, bytes, touch));
    #[cfg(feature = "allocators")]
    subjects.push(taken("mimalloc", crate::allocators::Raw(mimalloc::MiMalloc), bytes, touch));
    subjects.push(taken("mmap", Mmap, bytes, touch));
    interleave(pace, GROUP, &format!("alloc, touch pages, drop, {name}"), subjects)
}

fn taken<'a, S: Source + 'a>(
    who: &'static str,
    mut source: S,
    bytes: usize,
    with: impl Fn(&mut [MaybeUninit<u8>]) + 'a,
) -> Subject<'a> {
    Subject::new(who, move || {
        let mut block = source.take(bytes / 4)?;
        with(S::bytes(&mut block));
        source.give(std::hint::black_box(block));
        Ok(())
    })
}

/// What nobody else has.
fn ours(pace: Pace, pool: &TensorPool) -> Result<Vec<Series>> {
    let shape = [1080, 1920, 3];
    let tensor = pool.alloc(&shape, DType::U8)?;
    let attached = TensorPool::open("pool")?;
    let descriptor = tensor.descriptor()?;
    let mut size = 6 << 20;
    let by_turns = || {
        size ^= 1 << 20;
        Ok(pool.alloc(&[size], DType::U8)?)
    };
    let published = || Ok(pool.alloc(&shape, DType::U8)?.descriptor()?);
    let works = [
        ("alloc + drop, 6 and 7 MiB by turns", Subject::new("cenote", by_turns)),
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
        all.extend(interleave(pace, GROUP, work, vec![subject])?);
    }
    Ok(all)
}
