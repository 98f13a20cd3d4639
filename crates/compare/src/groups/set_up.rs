//! Creating a publisher and a subscriber until they are connected, or until the first message has arrived, and dropping
//! them.
//!
//! Most of the time goes into creating files. cenote keeps them in memory, iceoryx2 in `/tmp`, which is on a disk on some
//! machines. So iceoryx2 is measured with its files in memory, too.

use std::time::Duration;

use cenote::{DType, Tensor, Topic};

use crate::Result;
use crate::measure::rounds::{Schedule, Subject, interleave};
use crate::measure::series::Series;

/// How long the subscriber may take to connect.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The name of the group.
pub(crate) const GROUP: &str = "set-up";

/// Measures the group.
pub(crate) fn run(schedule: Schedule) -> Result<Vec<Series>> {
    let mut all = measure(schedule, "publisher and subscriber", false)?;
    all.extend(measure(schedule, "publisher, subscriber, first 64 B", true)?);
    Ok(all)
}

fn measure(schedule: Schedule, work: &str, message: bool) -> Result<Vec<Series>> {
    let mut subjects = vec![Subject::new("cenote", move || cenote(message))];
    #[cfg(feature = "peers")]
    {
        use crate::groups::hand_off::iceoryx2;
        use crate::run_dir;

        let node = iceoryx2::node()?;
        let existing_node = move || iceoryx2::set_up(&node, message);
        subjects.push(Subject::new("iceoryx2", existing_node));
        let new_node = move || iceoryx2::set_up(&iceoryx2::node()?, message);
        subjects.push(Subject::new("iceoryx2, and its node", new_node));
        let node = iceoryx2::node_in(&run_dir::memory()?)?;
        let in_memory = move || iceoryx2::set_up(&node, message);
        subjects.push(Subject::new("iceoryx2, files in memory", in_memory));
    }
    interleave(schedule, GROUP, work, subjects)
}

fn cenote(message: bool) -> Result<()> {
    let (publisher, subscriber): (Topic<Tensor>, Topic<Tensor>) =
        (Topic::new("set-up")?, Topic::new("set-up")?);
    publisher.advertise()?;
    subscriber.subscribe()?;
    if publisher.wait_for_subscribers(1, TIMEOUT)? == 0 {
        return Err("the subscriber did not connect".into());
    }
    if message {
        let mut frame = publisher.alloc_tensor(&[8], DType::U64)?;
        frame.map_mut()?.as_mut_slice::<u64>()?[0] = 1;
        publisher.send(&frame)?;
        while subscriber.recv().is_none() {}
    }
    Ok(())
}
