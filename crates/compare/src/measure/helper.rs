//! The helper: a second process that follows the orders on a shared page.

use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use crate::Result;
use crate::measure::busy_work;
use crate::measure::series::Floors;
use crate::measure::shared_page::SharedPage;

/// How long the measuring process waits for the helper. Even setting up takes less.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Work takes at least this many times as long while another thread shares the core.
const SHARED_CORE_FACTOR: f64 = 1.4;

/// The number of spins between two checks that the helper is alive.
const SPINS_PER_CHECK: u32 = 1 << 22;

/// What the helper does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Task {
    /// Reply to round trips on the page.
    Floor,
    /// Reply to each frame with a frame.
    RoundTrips,
    /// Report when frames arrive.
    OneWay,
    /// Sleep until a message arrives, and reply.
    Wake,
    /// Subscribe, and sleep.
    Subscribe,
    /// Receive a frame, and hold it.
    Hold,
    /// Send repeatedly.
    Publish,
    /// Keep the core busy.
    Busy,
    /// Close all connections.
    Close,
    /// End.
    Quit,
}

const TASKS: [Task; 10] = [
    Task::Floor,
    Task::RoundTrips,
    Task::OneWay,
    Task::Wake,
    Task::Subscribe,
    Task::Hold,
    Task::Publish,
    Task::Busy,
    Task::Close,
    Task::Quit,
];

/// An order for the helper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Order {
    /// Distinguishes it from the order before.
    pub(crate) number: u32,
    /// What to do.
    pub(crate) task: Task,
    /// The index of the subject in the list of the group.
    pub(crate) who: u8,
    /// The index of the frame size, or a number of subscribers.
    pub(crate) size: u8,
}

impl Order {
    /// The order as a word for the page.
    pub(crate) fn word(self) -> u64 {
        let task = u64::from(self.task as u8);
        u64::from(self.number) << 32 | task << 16 | u64::from(self.who) << 8 | u64::from(self.size)
    }

    /// The order in a word of the page. Zero, before the first order, is [`Task::Floor`].
    pub(crate) fn from_word(word: u64) -> Order {
        let bytes = word.to_le_bytes();
        let task = TASKS.get(usize::from(bytes[2])).copied().unwrap_or(Task::Quit);
        let number = u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
        Order { number, task, who: bytes[1], size: bytes[0] }
    }
}

/// The helper process. Dropping it makes the process end.
#[derive(Debug)]
pub(crate) struct Helper {
    child: Child,
    page: SharedPage,
    orders: u32,
}

impl Helper {
    /// Starts this program as the helper of a group.
    pub(crate) fn start(role: &str) -> Result<Helper> {
        let page = SharedPage::new()?;
        let program = std::env::current_exe()?;
        let child =
            Command::new(program).args(["helper", role, &page.raw_fd().to_string()]).spawn()?;
        let mut helper = Helper { child, page, orders: 0 };
        helper.order(Task::Floor, 0, 0)?;
        Ok(helper)
    }

    /// The shared page.
    pub(crate) fn page(&self) -> &SharedPage {
        &self.page
    }

    /// Gives an order, and waits until the helper has started it.
    pub(crate) fn order(&mut self, task: Task, who: u8, size: u8) -> Result<()> {
        let word = self.announce(task, who, size);
        self.await_started(word)
    }

    /// Waits until the helper has started the order.
    pub(crate) fn await_started(&mut self, word: u64) -> Result<()> {
        let mut wait = SpinWait::new(&mut self.child);
        while self.page.started() != word {
            wait.spin()?;
        }
        Ok(())
    }

    /// Gives an order without waiting. Returns it, for [`Helper::await_started`].
    pub(crate) fn announce(&mut self, task: Task, who: u8, size: u8) -> u64 {
        self.orders += 1;
        let word = Order { number: self.orders, task, who, size }.word();
        self.page.set_order(word);
        word
    }

    /// The process id of the helper.
    pub(crate) fn pid(&self) -> Result<i32> {
        Ok(i32::try_from(self.child.id())?)
    }

    /// Kills the helper, and waits until it has ended.
    pub(crate) fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// The page, and a [`SpinWait`] for loops that wait for the helper.
    pub(crate) fn page_and_wait(&mut self) -> (&SharedPage, SpinWait<'_>) {
        (&self.page, SpinWait::new(&mut self.child))
    }

    /// Measures the floor, runs `work`, and measures the floor again.
    pub(crate) fn between_floors<T>(
        &mut self,
        trips: usize,
        work: impl FnOnce(&mut Helper) -> Result<T>,
    ) -> Result<(Floors, T)> {
        let before = self.floor(trips)?;
        let done = work(self)?;
        let after = self.floor(trips)?;
        Ok((Floors { before, after, one_core: self.is_on_this_core()? }, done))
    }

    /// Whether the helper runs on another hardware thread of this core: then each is slower while both work. Must be called
    /// right after the floor: a helper that spins on the page pauses, which leaves the core to this thread, so the first
    /// time is that of this thread alone.
    fn is_on_this_core(&mut self) -> Result<bool> {
        let alone = busy_work::time();
        self.order(Task::Busy, 0, 0)?;
        Ok(busy_work::time() > SHARED_CORE_FACTOR * alone)
    }

    /// Measures the floor.
    pub(crate) fn floor(&mut self, trips: usize) -> Result<f64> {
        self.order(Task::Floor, 0, 0)?;
        // The first round trips are slow, because the cache lines are elsewhere.
        self.page.floor(trips / 10);
        Ok(self.page.floor(trips))
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.announce(Task::Quit, 0, 0);
        let until = Instant::now() + Duration::from_secs(2);
        while Instant::now() < until {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            thread::sleep(Duration::from_millis(1));
        }
        // Errors are ignored: the kernel kills the helper when this process ends.
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// Counts the spins of a loop that waits for the helper, and ends the loop if the helper has died or hangs.
#[derive(Debug)]
pub(crate) struct SpinWait<'a> {
    child: &'a mut Child,
    spins: u32,
    since: Option<Instant>,
}

impl SpinWait<'_> {
    fn new(child: &mut Child) -> SpinWait<'_> {
        SpinWait { child, spins: 0, since: None }
    }

    /// Counts one spin. Returns an error if the helper has ended, or after [`TIMEOUT`].
    #[inline]
    pub(crate) fn spin(&mut self) -> Result<()> {
        self.spins += 1;
        if self.spins.is_multiple_of(SPINS_PER_CHECK) { self.check() } else { Ok(()) }
    }

    #[cold]
    fn check(&mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            return Err(format!("the helper process ended: {status}").into());
        }
        if self.since.get_or_insert_with(Instant::now).elapsed() > TIMEOUT {
            return Err("the helper process does not answer".into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_the_same_after_encoding_and_decoding() {
        for task in TASKS {
            let order = Order { number: u32::MAX, task, who: 7, size: 2 };
            assert_eq!(Order::from_word(order.word()), order);
        }
        assert_eq!(Order::from_word(0).task, Task::Floor);
    }
}
