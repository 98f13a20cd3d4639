//! One end of a connection to the other process, and the measurements over it.
//!
//! Loops that wait for a frame do not pause between two polls: on some processors a pause takes a quarter of the whole
//! time, and the results would be multiples of it. The floor does pause, and is lower for it: it has three cache lines,
//! which polling without a pause would take away half written.

use std::time::{Duration, Instant};

use crate::Result;
use crate::measure::helper::SpinWait;
use crate::measure::rounds::time_each;
use crate::measure::samples::nanos_since;
use crate::measure::shared_page::{SharedPage, clock};

/// One end of a connection. Every frame is new; only its first word is written and read.
pub(crate) trait Endpoint {
    /// In the parent: finishes the connection when the other end is open.
    fn ready(&mut self) -> Result<()> {
        Ok(())
    }

    /// Allocates a frame, writes the value into it, and sends it.
    fn send(&mut self, value: u64) -> Result<()>;

    /// Receives the next frame, releases it, and returns its value; `None` if there is no frame.
    fn recv(&mut self) -> Result<Option<u64>>;
}

/// Which process an endpoint is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// The parent, which measures.
    Parent,
    /// The helper.
    Helper,
}

/// The parameters of an endpoint. Both ends are opened with the same name and size.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Link {
    /// Distinguishes it from other connections of the same subject.
    pub(crate) name: &'static str,
    /// The bytes of a frame.
    pub(crate) bytes: usize,
    /// The process.
    pub(crate) side: Side,
}

impl Link {
    /// The names of the two directions: the one to send on, and the one to receive from.
    pub(crate) fn names(&self) -> (String, String) {
        let (there, back) = (format!("{}.there", self.name), format!("{}.back", self.name));
        match self.side {
            Side::Parent => (there, back),
            Side::Helper => (back, there),
        }
    }

    /// The words of a frame.
    pub(crate) fn words(&self) -> usize {
        self.bytes / 8
    }
}

/// The measurements over an endpoint, compiled for each type of endpoint.
pub(crate) trait Peer {
    /// Connects when the other end is open: waits for a first reply.
    fn connect(&mut self, wait: SpinWait<'_>) -> Result<()>;

    /// Makes round trips for the given time.
    fn round_trips(&mut self, wait: SpinWait<'_>, time: Duration) -> Result<Vec<f64>>;

    /// Sends frames one way for the given time. The helper reports arrivals on the page.
    fn one_way(
        &mut self,
        page: &SharedPage,
        wait: SpinWait<'_>,
        time: Duration,
    ) -> Result<Vec<f64>>;

    /// In the helper: replies to each frame until the order changes.
    fn answer(&mut self, page: &SharedPage, order: u64) -> Result<()>;

    /// In the helper: reports when frames arrive until the order changes.
    fn report_arrivals(&mut self, page: &SharedPage, order: u64) -> Result<()>;
}

impl<E: Endpoint> Peer for E {
    fn connect(&mut self, mut wait: SpinWait<'_>) -> Result<()> {
        self.ready()?;
        // A frame that is sent before the two are connected may be lost.
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

    fn round_trips(&mut self, mut wait: SpinWait<'_>, time: Duration) -> Result<Vec<f64>> {
        let trip = |value| {
            let began = Instant::now();
            self.send(value)?;
            let answer = loop {
                match self.recv()? {
                    // 0: a late reply from connecting.
                    None | Some(0) => wait.spin()?,
                    Some(answer) => break answer,
                }
            };
            let took = nanos_since(began);
            if answer == value { Ok(took) } else { Err("a reply with the wrong value".into()) }
        };
        time_each(time, trip)
    }

    fn one_way(
        &mut self,
        page: &SharedPage,
        mut wait: SpinWait<'_>,
        time: Duration,
    ) -> Result<Vec<f64>> {
        let way = |value| {
            let began = clock();
            self.send(value)?;
            let arrived = loop {
                match page.arrived(value) {
                    Some(arrived) => break arrived,
                    None => wait.spin()?,
                }
            };
            // The clocks of two cores may differ by some nanoseconds.
            Ok(arrived.saturating_sub(began) as f64)
        };
        time_each(time, way)
    }

    fn answer(&mut self, page: &SharedPage, order: u64) -> Result<()> {
        while page.order() == order {
            if let Some(value) = self.recv()? {
                self.send(value)?;
            }
        }
        Ok(())
    }

    fn report_arrivals(&mut self, page: &SharedPage, order: u64) -> Result<()> {
        while page.order() == order {
            if let Some(value) = self.recv()? {
                page.set_arrived(value, clock());
            }
        }
        Ok(())
    }
}
