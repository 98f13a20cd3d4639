//! The measurements.

use std::hint::black_box;
use std::thread;
use std::time::{Duration, Instant};

use cenote::{DType, Image, PixelFormat, TensorPool, TensorPoolConfig, Topic};

use super::{Measured, Measurement};
use crate::failure::{Failure, Outcome};
use crate::pattern::Size;
use crate::percentile::Percentiles;

/// What takes nanoseconds is measured so many times at once.
const BATCH: u32 = 100;

/// How long the other process may take to come, and to answer.
const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) fn run(seconds: f64, size: Size) -> Outcome<Measured> {
    let time = Duration::from_secs_f64(seconds / 5.0);
    let results = vec![
        copy(time, size)?,
        alloc(time, size)?,
        here(time, size)?,
        poll(time)?,
        round_trip(time, size)?,
    ];
    let frame_bytes = (size.width * size.height * 3) as u64;
    Ok(Measured { size: size.to_string(), frame_bytes, results })
}

/// Measures something again and again for some time.
fn measure(
    what: &str,
    time: Duration,
    batch: u32,
    mut run: impl FnMut() -> Outcome,
) -> Outcome<Measurement> {
    run()?; // once to warm up
    let (start, mut times) = (Instant::now(), Vec::new());
    while start.elapsed() < time || times.is_empty() {
        let before = Instant::now();
        for _ in 0..batch {
            run()?;
        }
        let each = before.elapsed() / batch;
        times.push(u64::try_from(each.as_nanos()).unwrap_or(u64::MAX));
    }
    let count = times.len() as u64 * u64::from(batch);
    let time =
        Percentiles::of(times).ok_or_else(|| Failure::Failed("no time passed".to_owned()))?;
    Ok(Measurement { what: what.to_owned(), times: count, time })
}

/// What is saved.
fn copy(time: Duration, size: Size) -> Outcome<Measurement> {
    let from = vec![1_u8; size.width * size.height * 3];
    let mut to = from.clone();
    measure("copy a frame, which cenote does not", time, 1, || {
        to.copy_from_slice(black_box(&from));
        black_box(&mut to);
        Ok(())
    })
}

fn alloc(time: Duration, size: Size) -> Outcome<Measurement> {
    let pool = TensorPool::new("bench", TensorPoolConfig::default())?;
    let shape = [size.height, size.width, 3];
    measure("allocate a frame and drop it", time, BATCH, || {
        black_box(pool.alloc(&shape, DType::U8)?);
        Ok(())
    })
}

fn here(time: Duration, size: Size) -> Outcome<Measurement> {
    let topic: Topic<Image> = Topic::new("bench.here")?;
    topic.subscribe()?;
    measure("allocate, send and receive in one process", time, BATCH, || {
        topic.send(&topic.image(size.width, size.height, PixelFormat::Rgb8)?)?;
        black_box(topic.recv());
        Ok(())
    })
}

fn poll(time: Duration) -> Outcome<Measurement> {
    let topic: Topic<Image> = Topic::new("bench.empty")?;
    topic.subscribe()?;
    measure("look for a message when there is none", time, BATCH, || {
        black_box(topic.recv());
        Ok(())
    })
}

/// A fresh frame each way; both sides look again and again.
fn round_trip(time: Duration, size: Size) -> Outcome<Measurement> {
    let (there, back): (Topic<Image>, Topic<Image>) =
        (Topic::new("bench.there")?, Topic::new("bench.back")?);
    back.subscribe()?;
    if there.wait_for_subscribers(1, PATIENCE)? == 0 {
        return Err(Failure::Silence("the other process did not come".to_owned()));
    }
    measure("a frame to another process, and one back", time, 1, || {
        there.send(&there.image(size.width, size.height, PixelFormat::Rgb8)?)?;
        let sent = Instant::now();
        while back.recv().is_none() {
            if sent.elapsed() > PATIENCE {
                return Err(Failure::Silence("the other process does not answer".to_owned()));
            }
            // The other one may need this very core.
            thread::yield_now();
        }
        Ok(())
    })
}
