//! Both sides sleep until the other one wakes them.

use std::time::{Duration, Instant};

use crate::Result;
use crate::pace::repeat;
use crate::page::{Page, nanos};

/// Who sleeps longer than that will not be woken.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// One end.
pub(crate) trait Bell {
    /// When the other end is there.
    fn ready(&mut self) -> Result<()> {
        Ok(())
    }

    /// Wakes the other.
    fn ring(&mut self) -> Result<()>;

    /// Sleeps until woken.
    fn wait(&mut self) -> Result<()>;
}

/// There and back for so long.
pub(crate) fn wakes(bell: &mut dyn Bell, long: Duration) -> Result<Vec<f64>> {
    repeat(long, |_| {
        let began = Instant::now();
        bell.ring()?;
        bell.wait()?;
        Ok(nanos(began))
    })
}

/// The other process: answers, until it is woken with another order on the page.
pub(crate) fn answer(bell: &mut dyn Bell, page: &Page, order: u64) -> Result<()> {
    loop {
        bell.wait()?;
        if page.order() != order {
            return Ok(());
        }
        bell.ring()?;
    }
}
