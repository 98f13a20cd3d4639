//! The measurements.

use std::hint::black_box;
use std::thread;
use std::time::{Duration, Instant};

use cenote::{DType, Image, PixelFormat, TensorPool, TensorPoolConfig, Topic};

use super::measurement::{Measured, Measurement};
use crate::failure::{Failure, Outcome};
use crate::measure::percentiles::Percentiles;
use crate::test_pattern::Size;

/// How many operations of nanoseconds are timed at once.
const BATCH: u32 = 100;

/// How long the other process may take to subscribe, and to send a frame back.
const TIMEOUT: Duration = Duration::from_secs(10);

pub(crate) fn run(seconds: f64, size: Size) -> Outcome<Measured> {
    let time = Duration::from_secs_f64(seconds / 5.0);
    let results = vec![
        copy(time, size)?,
        alloc(time, size)?,
        within_process(time, size)?,
        poll(time)?,
        round_trip(time, size)?,
    ];
    let frame_bytes = (size.width * size.height * 3) as u64;
    Ok(Measured { size: size.to_string(), frame_bytes, results })
}

/// Runs an operation repeatedly for the given time, and returns the percentiles of its duration.
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

/// The copy that cenote avoids.
fn copy(time: Duration, size: Size) -> Outcome<Measurement> {
    let from = vec![1_u8; size.width * size.height * 3];
    let mut to = from.clone();
    measure("copy a frame (which cenote avoids)", time, 1, || {
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

fn within_process(time: Duration, size: Size) -> Outcome<Measurement> {
    let topic: Topic<Image> = Topic::new("bench.local")?;
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
    measure("receive when there is no message", time, BATCH, || {
        black_box(topic.recv());
        Ok(())
    })
}

/// A new frame each way. Both processes poll.
fn round_trip(time: Duration, size: Size) -> Outcome<Measurement> {
    let (there, back): (Topic<Image>, Topic<Image>) =
        (Topic::new("bench.there")?, Topic::new("bench.back")?);
    back.subscribe()?;
    if there.wait_for_subscribers(1, TIMEOUT)? == 0 {
        return Err(Failure::TimedOut("the other process did not subscribe".to_owned()));
    }
    measure("round trip: a frame to another process and one back", time, 1, || {
        there.send(&there.image(size.width, size.height, PixelFormat::Rgb8)?)?;
        let sent = Instant::now();
        while back.recv().is_none() {
            if sent.elapsed() > TIMEOUT {
                return Err(Failure::TimedOut("the other process does not answer".to_owned()));
            }
            // The other process may need this core.
            thread::yield_now();
        }
        Ok(())
    })
}
