//! One end of a way to another process and back, and what is measured over it.
//!
//! Nobody who waits for a frame pauses between two looks: on some processors a pause takes as long as a quarter of the
//! way, and what is found then are multiples of it. (The floor pauses: it has three lines, which would be taken away
//! half written, and is lower so.)

use std::time::{Duration, Instant};

use crate::Result;
use crate::other::Wait;
use crate::pace::repeat;
use crate::page::{Page, clock, nanos};

/// What every peer can do. A frame is fresh every time; only its first word is written and read.
pub(crate) trait Ends {
    /// What the parent does when the other end is there.
    fn ready(&mut self) -> Result<()> {
        Ok(())
    }

    /// Makes a frame, writes the value into it, and hands it over.
    fn send(&mut self, value: u64) -> Result<()>;

    /// The value in the next frame, if there is one. The frame is given back.
    fn recv(&mut self) -> Result<Option<u64>>;
}

/// Which end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// That of the parent, which measures.
    Here,
    /// That of the other process.
    There,
}

/// What makes an end: the other one is made with the same.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Link {
    /// Distinguishes it from others of the same peer.
    pub(crate) name: &'static str,
    /// Bytes in a frame.
    pub(crate) bytes: usize,
    /// Which end it is.
    pub(crate) side: Side,
}

impl Link {
    /// Names of both directions: the one to send on, and the one to receive from.
    pub(crate) fn names(&self) -> (String, String) {
        let (there, back) = (format!("{}.there", self.name), format!("{}.back", self.name));
        match self.side {
            Side::Here => (there, back),
            Side::There => (back, there),
        }
    }

    /// Words in a frame.
    pub(crate) fn words(&self) -> usize {
        self.bytes / 8
    }
}

/// What is done with ends, compiled for each of them.
pub(crate) trait Peer {
    /// Once the other end is there: waits for a first answer.
    fn meet(&mut self, wait: Wait<'_>) -> Result<()>;

    /// Round trips for so long.
    fn trips(&mut self, wait: Wait<'_>, long: Duration) -> Result<Vec<f64>>;

    /// One way for so long; that a frame has come is said on the page.
    fn one_way(&mut self, page: &Page, wait: Wait<'_>, long: Duration) -> Result<Vec<f64>>;

    /// The other process: answers.
    fn answer(&mut self, page: &Page, order: u64) -> Result<()>;

    /// The other process: says when frames come.
    fn note(&mut self, page: &Page, order: u64) -> Result<()>;
}

impl<E: Ends> Peer for E {
    fn meet(&mut self, mut wait: Wait<'_>) -> Result<()> {
        self.ready()?;
        // What is sent before the other is known may be lost.
        self.send(0)?;
        let mut sent = Instant::now();
        while self.recv()?.is_none() {
            wait.spin()?;
            if sent.elapsed() > Duration::from_millis(100) {
                self.send(0)?;
                sent = Instant::now();
            }
        }
        let quiet = Duration::from_millis(5);
        let mut since = Instant::now();
        while since.elapsed() < quiet {
            if self.recv()?.is_some() {
                since = Instant::now();
            }
        }
        Ok(())
    }

    fn trips(&mut self, mut wait: Wait<'_>, long: Duration) -> Result<Vec<f64>> {
        let trip = |value| {
            let began = Instant::now();
            self.send(value)?;
            let answer = loop {
                match self.recv()? {
                    // Late, from when they met.
                    None | Some(0) => wait.spin()?,
                    Some(answer) => break answer,
                }
            };
            let time = nanos(began);
            if answer == value { Ok(time) } else { Err("another answer".into()) }
        };
        repeat(long, trip)
    }

    fn one_way(&mut self, page: &Page, mut wait: Wait<'_>, long: Duration) -> Result<Vec<f64>> {
        let way = |value| {
            let began = clock();
            self.send(value)?;
            let arrived = loop {
                match page.arrived(value) {
                    Some(arrived) => break arrived,
                    None => wait.spin()?,
                }
            };
            // Clocks of two cores may differ by some nanoseconds.
            Ok(arrived.saturating_sub(began) as f64)
        };
        repeat(long, way)
    }

    fn answer(&mut self, page: &Page, order: u64) -> Result<()> {
        while page.order() == order {
            if let Some(value) = self.recv()? {
                self.send(value)?;
            }
        }
        Ok(())
    }

    fn note(&mut self, page: &Page, order: u64) -> Result<()> {
        while page.order() == order {
            if let Some(value) = self.recv()? {
                page.set_arrived(value, clock());
            }
        }
        Ok(())
    }
}
