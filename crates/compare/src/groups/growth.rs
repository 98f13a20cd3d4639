//! How costs grow with the size of frames and the number of subscribers, slots, topics and publishers. Each is measured
//! at several sizes, in turns. The result is the slope of the line of best fit (least squares).

use std::time::Duration;

use cenote::{DType, Tensor, TensorPool, TensorPoolConfig, Topic, TopicConfig};

use crate::Result;
use crate::groups::fan_out;
use crate::measure::rounds::{Schedule, Subject, interleave};
use crate::measure::samples::median;
use crate::measure::series::Series;
use crate::report::unit::time;
use crate::results::{Fact, Results};

/// The name of the group.
pub(crate) const GROUP: &str = "growth";

/// Measures the group.
pub(crate) fn run(schedule: Schedule) -> Result<Results> {
    let warm = Schedule { warm_up: schedule.long_warm_up(Duration::from_millis(800)), ..schedule };
    let mut results = Results::default();
    results.extend(frame_size(warm)?);
    results.extend(subscribers(warm)?);
    results.extend(slots(schedule)?);
    results.extend(topics(schedule)?);
    results.extend(publishers(schedule)?);
    Ok(results)
}

/// An operation for each size; the subject has the size as its name.
type Points<'a> = Vec<(f64, Subject<'a>)>;

fn measure(
    schedule: Schedule,
    work: &str,
    unit: &'static str,
    points: Points<'_>,
) -> Result<Results> {
    let (sizes, subjects): (Vec<f64>, Vec<Subject<'_>>) = points.into_iter().unzip();
    Ok(with_slope(work, unit, &sizes, interleave(schedule, GROUP, work, subjects)?))
}

/// Adds the slope over the sizes to the series.
fn with_slope(work: &str, unit: &'static str, sizes: &[f64], series: Vec<Series>) -> Results {
    let costs: Vec<f64> = series.iter().filter_map(cost).collect();
    let line: Vec<(f64, f64)> = sizes.iter().copied().zip(costs.iter().copied()).collect();
    let at = |point: Option<&(f64, f64)>| {
        point.map_or(String::new(), |(size, cost)| format!("{} at {size}", time(*cost)))
    };
    let from = format!("{}, {}", at(line.first()), at(line.last()));
    let fact = Fact { group: GROUP, what: work.into(), value: slope(&line), unit, from };
    Results { series, facts: vec![fact], ..Results::default() }
}

/// The median of all samples.
fn cost(series: &Series) -> Option<f64> {
    let all: Vec<f64> = series.takes.iter().flat_map(|take| take.samples.iter().copied()).collect();
    median(&all)
}

/// The slope of the line of best fit; 0 for a single point.
fn slope(points: &[(f64, f64)]) -> f64 {
    let count = points.len() as f64;
    let (x, y) = points.iter().fold((0.0, 0.0), |(x, y), point| (x + point.0, y + point.1));
    let (x, y) = (x / count, y / count);
    let covariance: f64 = points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum();
    let variance: f64 = points.iter().map(|point| (point.0 - x).powi(2)).sum();
    if variance > 0.0 { covariance / variance } else { 0.0 }
}

fn name(number: usize) -> String {
    number.to_string()
}

/// A frame that is sent and received in one process, by its size in megabytes.
fn frame_size(schedule: Schedule) -> Result<Results> {
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
    measure(schedule, "alloc, send, recv, drop, by bytes of the frame", "ns per MB", points)
}

/// A frame for subscribers in other processes, by their number.
fn subscribers(schedule: Schedule) -> Result<Results> {
    let mut points: Points<'_> = Vec::new();
    let mut helpers = Vec::new();
    for count in [0, 1, 2, 4, 8, 16] {
        helpers.extend(fan_out::sleeping_subscribers(count)?);
        let topic = fan_out::publisher(count)?;
        points.push((
            count.into(),
            Subject::new(&name(count.into()), move || fan_out::send(&topic, 1)),
        ));
    }
    measure(schedule, "alloc, send 1080p, by subscribers", "ns per subscriber", points)
}

/// Allocating from a pool, by the number of slots in use.
fn slots(schedule: Schedule) -> Result<Results> {
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
    measure(schedule, "alloc + drop, by slots in use", "ns per slot", points)
}

/// A message on one topic, by the number of topics in the process. The sizes are measured one after the other, because
/// topics of larger sizes would exist during rounds of smaller ones.
fn topics(schedule: Schedule) -> Result<Results> {
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
        series.extend(interleave(schedule, GROUP, WORK, vec![subject])?);
    }
    Ok(with_slope(WORK, "ns per topic", &counts.map(|count| count as f64), series))
}

/// Receiving without a message, by the number of publishers.
fn publishers(schedule: Schedule) -> Result<Results> {
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
        let poll = move || {
            let _ = &publishers;
            Ok(subscriber.recv())
        };
        points.push((count as f64, Subject::new(&name(count), poll)));
    }
    measure(schedule, "recv without a message, by publishers", "ns per publisher", points)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slopes_are_those_of_the_line_of_best_fit() {
        assert_eq!(slope(&[(0.0, 1.0), (1.0, 3.0), (2.0, 5.0)]), 2.0);
        assert_eq!(slope(&[(0.0, 4.0), (8.0, 4.0)]), 0.0);
        // Points off the line, equally far on both sides.
        assert!((slope(&[(0.0, 0.0), (1.0, 2.0), (2.0, 0.0), (3.0, 2.0)]) - 0.4).abs() < 1e-9);
        assert_eq!(slope(&[(3.0, 7.0)]), 0.0);
    }
}
