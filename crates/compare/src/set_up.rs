//! A publisher and a subscriber made until they know each other, or the first message is there, and
//! dropped.
//!
//! Much of it is making files. cenote keeps its own in memory, where nobody is to lose them at a restart;
//! iceoryx2 has them in `/tmp`, which is on a disk on some machines. So it is measured with its files in
//! memory as well.

use std::time::Duration;

use cenote::{DType, Tensor, Topic};

use crate::Result;
use crate::pace::{Pace, Subject, interleave};
use crate::series::Series;

const PATIENCE: Duration = Duration::from_secs(10);

/// What it is called.
pub(crate) const GROUP: &str = "set-up";

/// All of it.
pub(crate) fn run(pace: Pace) -> Result<Vec<Series>> {
    let mut all = both(pace, "publisher and subscriber", false)?;
    all.extend(both(pace, "publisher, subscriber, first 64 B", true)?);
    Ok(all)
}

fn both(pace: Pace, work: &str, message: bool) -> Result<Vec<Series>> {
    let mut subjects = vec![Subject::new("cenote", move || ours(message))];
    #[cfg(feature = "peers")]
    {
        use crate::hand_off::iceoryx2;
        use crate::run;

        let node = iceoryx2::node()?;
        let there = move || iceoryx2::set_up(&node, message);
        subjects.push(Subject::new("iceoryx2", there));
        let anew = move || iceoryx2::set_up(&iceoryx2::node()?, message);
        subjects.push(Subject::new("iceoryx2, and its node", anew));
        let node = iceoryx2::node_in(&run::memory()?)?;
        let in_memory = move || iceoryx2::set_up(&node, message);
        subjects.push(Subject::new("iceoryx2, files in memory", in_memory));
    }
    interleave(pace, GROUP, work, subjects)
}

fn ours(message: bool) -> Result<()> {
    let (publisher, subscriber): (Topic<Tensor>, Topic<Tensor>) =
        (Topic::new("set-up")?, Topic::new("set-up")?);
    publisher.advertise()?;
    subscriber.subscribe()?;
    if publisher.wait_for_subscribers(1, PATIENCE)? == 0 {
        return Err("nobody subscribed".into());
    }
    if message {
        let mut frame = publisher.alloc_tensor(&[8], DType::U64)?;
        frame.map_mut()?.as_mut_slice::<u64>()?[0] = 1;
        publisher.send(&frame)?;
        while subscriber.recv().is_none() {}
    }
    Ok(())
}
