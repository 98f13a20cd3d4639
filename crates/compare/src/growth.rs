//! What becomes of the cost as something grows: frames, subscribers, slots, topics, publishers. Each is
//! measured at several sizes by turns; what is shown is the slope, of the straight line that fits
//! best (least squares).

use std::time::Duration;

use cenote::{DType, Tensor, TensorPool, TensorPoolConfig, Topic, TopicConfig};

use crate::Result;
use crate::fan_out;
use crate::found::{Fact, Found};
use crate::pace::{Pace, Subject, interleave};
use crate::samples::median;
use crate::series::Series;
use crate::table::time;

/// What it is called.
pub(crate) const GROUP: &str = "growth";

/// All of it.
pub(crate) fn run(pace: Pace) -> Result<Found> {
    let warm = Pace { warm_up: pace.touched(Duration::from_millis(800)), ..pace };
    let mut found = Found::default();
    found.extend(frame_size(warm)?);
    found.extend(subscribers(warm)?);
    found.extend(slots(pace)?);
    found.extend(topics(pace)?);
    found.extend(publishers(pace)?);
    Ok(found)
}

/// What is done at each of several sizes; each is named after its number.
type Points<'a> = Vec<(f64, Subject<'a>)>;

fn measure(pace: Pace, work: &str, unit: &'static str, points: Points<'_>) -> Result<Found> {
    let (sizes, subjects): (Vec<f64>, Vec<Subject<'_>>) = points.into_iter().unzip();
    Ok(found(work, unit, &sizes, interleave(pace, GROUP, work, subjects)?))
}

fn found(work: &str, unit: &'static str, sizes: &[f64], series: Vec<Series>) -> Found {
    let costs: Vec<f64> = series.iter().filter_map(cost).collect();
    let line: Vec<(f64, f64)> = sizes.iter().copied().zip(costs.iter().copied()).collect();
    let at = |point: Option<&(f64, f64)>| {
        point.map_or(String::new(), |(size, cost)| format!("{} at {size}", time(*cost)))
    };
    let from = format!("{}, {}", at(line.first()), at(line.last()));
    let fact = Fact { group: GROUP, what: work.into(), value: slope(&line), unit, from };
    Found { series, facts: vec![fact], ..Found::default() }
}

fn cost(series: &Series) -> Option<f64> {
    let all: Vec<f64> = series.takes.iter().flat_map(|take| take.samples.iter().copied()).collect();
    median(&all)
}

/// Of the straight line that fits best; of a point, none.
fn slope(points: &[(f64, f64)]) -> f64 {
    let count = points.len() as f64;
    let (x, y) = points.iter().fold((0.0, 0.0), |(x, y), point| (x + point.0, y + point.1));
    let (x, y) = (x / count, y / count);
    let across: f64 = points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum();
    let wide: f64 = points.iter().map(|point| (point.0 - x).powi(2)).sum();
    if wide > 0.0 { across / wide } else { 0.0 }
}

fn name(number: usize) -> String {
    number.to_string()
}

/// A frame there and back within the process, by megabytes.
fn frame_size(pace: Pace) -> Result<Found> {
    let mut points: Points<'_> = Vec::new();
    for bytes in [64, 4 << 10, 256 << 10, 1 << 20, 4 << 20, 8 << 20, 24 << 20] {
        let topic: Topic<Tensor> = Topic::new(&format!("growth.frame.{bytes}"))?;
        topic.subscribe()?;
        let trip = move || {
            let mut frame = topic.alloc_tensor(&[bytes / 8], DType::U64)?;
            frame.map_mut()?.as_mut_slice::<u64>()?[0] = 1;
            topic.send(&frame)?;
            Ok(topic.recv())
        };
        points.push((bytes as f64 / 1e6, Subject::new(&name(bytes), trip)));
    }
    measure(pace, "alloc, send, recv, drop, by bytes of the frame", "ns per MB", points)
}

/// A frame to subscribers in other processes.
fn subscribers(pace: Pace) -> Result<Found> {
    let mut points: Points<'_> = Vec::new();
    let mut others = Vec::new();
    for count in [0, 1, 2, 4, 8, 16] {
        others.extend(fan_out::sleepers(count)?);
        let topic = fan_out::publisher(count)?;
        points.push((
            count.into(),
            Subject::new(&name(count.into()), move || fan_out::send(&topic, 1)),
        ));
    }
    measure(pace, "alloc, send 1080p, by subscribers", "ns per subscriber", points)
}

/// A tensor of a pool in which others are in use.
fn slots(pace: Pace) -> Result<Found> {
    let mut points: Points<'_> = Vec::new();
    for count in [0, 64, 256, 1024, 4096] {
        let config = TensorPoolConfig { max_slots: 8192, ..TensorPoolConfig::default() };
        let pool = TensorPool::new(format!("growth.slots.{count}"), config)?;
        let held = (0..count).map(|_| Ok(pool.alloc(&[4096], DType::U8)?));
        let held = held.collect::<Result<Vec<Tensor>>>()?;
        let alloc = move || {
            let _ = &held;
            Ok(pool.alloc(&[4096], DType::U8)?)
        };
        points.push((count as f64, Subject::new(&name(count), alloc)));
    }
    measure(pace, "alloc + drop, by slots in use", "ns per slot", points)
}

/// A message on one topic of many in the process. Not by turns: the others would be there already.
fn topics(pace: Pace) -> Result<Found> {
    const WORK: &str = "send + recv a u64, by topics of the process";
    let counts = [1, 4, 16, 64];
    let mut series = Vec::new();
    let mut topics: Vec<Topic<u64>> = Vec::new();
    for count in counts {
        while topics.len() < count {
            let topic: Topic<u64> = Topic::new(&format!("growth.topics.{}", topics.len()))?;
            topic.subscribe()?;
            topic.send(&1)?;
            topic.recv();
            topics.push(topic);
        }
        let trip = || {
            topics[0].send(&1)?;
            Ok(topics[0].recv())
        };
        let subject = Subject::new(&name(count), trip);
        series.extend(interleave(pace, GROUP, WORK, vec![subject])?);
    }
    Ok(found(WORK, "ns per topic", &counts.map(|count| count as f64), series))
}

/// Looking for a message where several could send one.
fn publishers(pace: Pace) -> Result<Found> {
    let mut points: Points<'_> = Vec::new();
    for count in [1, 2, 4, 8, 16] {
        let topic = |own: bool| -> Result<Topic<u64>> {
            let config = TopicConfig { ignore_own: own, ..TopicConfig::default() };
            Ok(Topic::with_config(&format!("growth.publishers.{count}"), config)?)
        };
        let subscriber = topic(true)?;
        subscriber.subscribe()?;
        let publishers = (0..count).map(|_| topic(false)).collect::<Result<Vec<_>>>()?;
        for publisher in &publishers {
            publisher.send(&1)?;
        }
        let look = move || {
            let _ = &publishers;
            Ok(subscriber.recv())
        };
        points.push((count as f64, Subject::new(&name(count), look)));
    }
    measure(pace, "recv where nothing is, by publishers", "ns per publisher", points)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slopes_are_those_of_the_best_line() {
        assert_eq!(slope(&[(0.0, 1.0), (1.0, 3.0), (2.0, 5.0)]), 2.0);
        assert_eq!(slope(&[(0.0, 4.0), (8.0, 4.0)]), 0.0);
        // Off the line by as much to both sides.
        assert!((slope(&[(0.0, 0.0), (1.0, 2.0), (2.0, 0.0), (3.0, 2.0)]) - 0.4).abs() < 1e-9);
        assert_eq!(slope(&[(3.0, 7.0)]), 0.0);
    }
}
