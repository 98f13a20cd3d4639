//! Wake-ups: each side sleeps until the other wakes it.

use std::time::{Duration, Instant};

use crate::Result;
use crate::measure::rounds::time_each;
use crate::measure::samples::nanos_since;
use crate::measure::shared_page::SharedPage;

/// How long to sleep for a wake-up before it counts as lost.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);

/// One end of a connection that can wake the other process.
pub(crate) trait Waker {
    /// Finishes the connection when the other end is open.
    fn ready(&mut self) -> Result<()> {
        Ok(())
    }

    /// Wakes the other process.
    fn wake(&mut self) -> Result<()>;

    /// Sleeps until the other process wakes this one.
    fn sleep(&mut self) -> Result<()>;
}

/// Measures round trips for the given time.
pub(crate) fn round_trips(waker: &mut dyn Waker, time: Duration) -> Result<Vec<f64>> {
    time_each(time, |_| {
        let began = Instant::now();
        waker.wake()?;
        waker.sleep()?;
        Ok(nanos_since(began))
    })
}

/// In the helper: replies to each wake-up, until one comes with a new order on the page.
pub(crate) fn answer(waker: &mut dyn Waker, page: &SharedPage, order: u64) -> Result<()> {
    loop {
        waker.sleep()?;
        if page.order() != order {
            return Ok(());
        }
        waker.wake()?;
    }
}
