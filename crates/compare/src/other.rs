//! The other process: started once for a group, does what the page says.

use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use crate::Result;
use crate::page::Page;
use crate::series::Floors;
use crate::toil;

/// Nobody needs that long, not even to set up.
const PATIENCE: Duration = Duration::from_secs(120);

/// How much longer work takes that shares a core with other work, at least.
const CROWDED: f64 = 1.4;

/// Spins between two looks whether the other is still there.
const LOOK: u32 = 1 << 22;

/// What the other process has to do. Orders are numbered, so that each is seen to be new.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Task {
    /// Answer on the page.
    Floor,
    /// Answer frames with frames.
    Trips,
    /// Say when frames come.
    OneWay,
    /// Sleep until a message comes, and answer.
    Wake,
    /// Subscribe, and sleep.
    Join,
    /// Take a frame, and keep it.
    Hold,
    /// Send all the time.
    Publish,
    /// Keep its core busy.
    Toil,
    /// Let all connections go.
    Close,
    /// End.
    Quit,
}

const TASKS: [Task; 10] = [
    Task::Floor,
    Task::Trips,
    Task::OneWay,
    Task::Wake,
    Task::Join,
    Task::Hold,
    Task::Publish,
    Task::Toil,
    Task::Close,
    Task::Quit,
];

/// An order, taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Order {
    /// Distinguishes it from the one before.
    pub(crate) number: u32,
    /// What.
    pub(crate) task: Task,
    /// With whom, of the group's peers.
    pub(crate) who: u8,
    /// Which size.
    pub(crate) size: u8,
}

impl Order {
    /// As it is on the page.
    pub(crate) fn word(self) -> u64 {
        let task = u64::from(self.task as u8);
        u64::from(self.number) << 32 | task << 16 | u64::from(self.who) << 8 | u64::from(self.size)
    }

    /// From the page. Nothing was ordered yet: the floor.
    pub(crate) fn from_word(word: u64) -> Order {
        let bytes = word.to_le_bytes();
        let task = TASKS.get(usize::from(bytes[2])).copied().unwrap_or(Task::Quit);
        let number = u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
        Order { number, task, who: bytes[1], size: bytes[0] }
    }
}

/// The parent's handle of it. Ends it when dropped.
#[derive(Debug)]
pub(crate) struct Other {
    child: Child,
    page: Page,
    orders: u32,
}

impl Other {
    /// Starts this program again, as a `role`.
    pub(crate) fn start(role: &str) -> Result<Other> {
        let page = Page::new()?;
        let program = std::env::current_exe()?;
        let child =
            Command::new(program).args(["other", role, &page.raw_fd().to_string()]).spawn()?;
        let mut other = Other { child, page, orders: 0 };
        other.order(Task::Floor, 0, 0)?;
        Ok(other)
    }

    /// The shared page.
    pub(crate) fn page(&self) -> &Page {
        &self.page
    }

    /// Sets it to work, and returns when it is at it.
    pub(crate) fn order(&mut self, task: Task, who: u8, size: u8) -> Result<()> {
        let word = self.announce(task, who, size);
        self.await_seen(word)
    }

    /// Returns when it is at it.
    pub(crate) fn await_seen(&mut self, word: u64) -> Result<()> {
        let mut wait = Wait::new(&mut self.child);
        while self.page.seen() != word {
            wait.spin()?;
        }
        Ok(())
    }

    /// Sets it to work, for when it must first be woken.
    pub(crate) fn announce(&mut self, task: Task, who: u8, size: u8) -> u64 {
        self.orders += 1;
        let word = Order { number: self.orders, task, who, size }.word();
        self.page.set_order(word);
        word
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> Result<i32> {
        Ok(i32::try_from(self.child.id())?)
    }

    /// Kills it, and returns when it is gone.
    pub(crate) fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// The page, and what to do while spinning on it.
    pub(crate) fn watch(&mut self) -> (&Page, Wait<'_>) {
        (&self.page, Wait::new(&mut self.child))
    }

    /// Does something between two measurements of the floor.
    pub(crate) fn between_floors<T>(
        &mut self,
        trips: usize,
        work: impl FnOnce(&mut Other) -> Result<T>,
    ) -> Result<(Floors, T)> {
        let before = self.floor(trips)?;
        let done = work(self)?;
        let after = self.floor(trips)?;
        Ok((Floors { before, after, one_core: self.is_on_this_core()? }, done))
    }

    /// Whether it is on another thread of the same core: then each is slower while both work. To be asked right
    /// after the floor: whoever waits for a word on the page leaves the core to others.
    fn is_on_this_core(&mut self) -> Result<bool> {
        let alone = toil::time();
        self.order(Task::Toil, 0, 0)?;
        Ok(toil::time() > CROWDED * alone)
    }

    /// What a bare round trip takes just now.
    pub(crate) fn floor(&mut self, trips: usize) -> Result<f64> {
        self.order(Task::Floor, 0, 0)?;
        // The first ones are slow: the lines are elsewhere.
        self.page.floor(trips / 10);
        Ok(self.page.floor(trips))
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        self.announce(Task::Quit, 0, 0);
        let until = Instant::now() + Duration::from_secs(2);
        while Instant::now() < until {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            thread::sleep(Duration::from_millis(1));
        }
        // Not worth more than this: it dies with us anyway.
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// Spins, but not for ever, and not for somebody who is gone.
#[derive(Debug)]
pub(crate) struct Wait<'a> {
    child: &'a mut Child,
    spins: u32,
    since: Option<Instant>,
}

impl Wait<'_> {
    fn new(child: &mut Child) -> Wait<'_> {
        Wait { child, spins: 0, since: None }
    }

    /// Once more in vain.
    #[inline]
    pub(crate) fn spin(&mut self) -> Result<()> {
        self.spins += 1;
        if self.spins.is_multiple_of(LOOK) { self.look() } else { Ok(()) }
    }

    #[cold]
    fn look(&mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            return Err(format!("the other process ended: {status}").into());
        }
        if self.since.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
            return Err("the other process does not answer".into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_survive_the_page() {
        for task in TASKS {
            let order = Order { number: u32::MAX, task, who: 7, size: 2 };
            assert_eq!(Order::from_word(order.word()), order);
        }
        assert_eq!(Order::from_word(0).task, Task::Floor);
    }
}
