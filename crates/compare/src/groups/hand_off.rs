//! Frames between two processes: round trips, one way, and round trips in which both sides sleep.

mod cenote;
mod endpoint;
#[cfg(feature = "peers")]
pub(crate) mod iceoryx2;
mod socket;
mod wake;
#[cfg(feature = "zenoh")]
mod zenoh;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::Duration;

use self::endpoint::{Link, Peer, Side};
use self::wake::Waker;
use crate::Result;
use crate::measure::busy_work;
use crate::measure::helper::{Helper, Order, Task};
use crate::measure::rounds::Schedule;
use crate::measure::series::{CoreDistance, Series, Take, ratios};
use crate::measure::shared_page::SharedPage;

/// The name of the group.
pub(crate) const GROUP: &str = "hand-off";

/// The frames: names and bytes.
const SIZES: [(&str, usize); 3] = [("64 B", 64), ("1080p", crate::FRAME), ("24 MB", 24 << 20)];

/// The index of the size that the bars are about.
const FRAME: u8 = 1;

type Open = fn(Link) -> Result<Box<dyn Peer>>;
type OpenWaker = fn(Link) -> Result<Box<dyn Waker>>;

/// The subjects of round trips and one way. The bars compare the first two.
const PEERS: &[(&str, Open)] = &[
    ("cenote", cenote::open),
    #[cfg(feature = "peers")]
    (iceoryx2::NAME, iceoryx2::open),
    ("cenote, Image", cenote::open_images),
    ("fd over a Unix socket, mapped", socket::open_sent),
    ("Unix socket, copied", socket::open_copied),
    #[cfg(feature = "zenoh")]
    ("zenoh, shared memory", zenoh::open_shared),
    #[cfg(feature = "zenoh")]
    ("zenoh", zenoh::open_copied),
];

/// The subjects of wake-ups.
const WAKERS: &[(&str, OpenWaker)] = &[
    ("cenote, 1080p", cenote::waker),
    #[cfg(feature = "peers")]
    ("iceoryx2, event alone", iceoryx2::event_waker),
    #[cfg(feature = "peers")]
    ("iceoryx2, 1080p and event", iceoryx2::frame_waker),
    ("Unix socket, one byte", socket::waker),
];

/// The longest warm-up before the first round.
const WARM_UP: Duration = Duration::from_millis(300);

/// How many rounds with near cores the bars need.
const ENOUGH_NEAR_ROUNDS: usize = 5;

/// Measures the group.
pub(crate) fn run(schedule: Schedule) -> Result<Vec<Series>> {
    let mut helper = Helper::start(GROUP)?;
    let mut all = Vec::new();
    for size in 0..=2 {
        all.extend(frames(&mut helper, schedule, size)?);
    }
    all.extend(wake_ups(&mut helper, schedule)?);
    Ok(all)
}

fn link(size: u8, side: Side) -> Link {
    const NAMES: [&str; 3] = ["small", "frame", "large"];
    let size = usize::from(size);
    Link { name: NAMES[size], bytes: SIZES[size].1, side }
}

fn frames(helper: &mut Helper, schedule: Schedule, size: u8) -> Result<Vec<Series>> {
    let mut peers = connect(helper, schedule, size)?;
    let mut all = rounds(helper, schedule, Task::RoundTrips, size, &mut peers)?;
    all.extend(rounds(helper, schedule, Task::OneWay, size, &mut peers)?);
    helper.order(Task::Close, 0, 0)?;
    Ok(all)
}

/// Connects and warms up all subjects.
fn connect(helper: &mut Helper, schedule: Schedule, size: u8) -> Result<Vec<Box<dyn Peer>>> {
    let mut peers = Vec::new();
    for (who, (name, open)) in (0..).zip(PEERS) {
        let named = |error| format!("{name}: {error}");
        let mut peer = open(link(size, Side::Parent)).map_err(named)?;
        helper.order(Task::RoundTrips, who, size)?;
        peer.connect(helper.page_and_wait().1).map_err(named)?;
        peer.round_trips(helper.page_and_wait().1, schedule.long_warm_up(WARM_UP))
            .map_err(named)?;
        peers.push(peer);
    }
    Ok(peers)
}

/// Measures round trips or one way, in rounds. Round trips for the bars get up to four times as many rounds, until
/// enough of them have near cores.
fn rounds(
    helper: &mut Helper,
    schedule: Schedule,
    task: Task,
    size: u8,
    peers: &mut [Box<dyn Peer>],
) -> Result<Vec<Series>> {
    let way = if task == Task::OneWay { "one way" } else { "round trip" };
    let work = format!("{way}, {}", SIZES[usize::from(size)].0);
    let mut all: Vec<Series> =
        PEERS.iter().map(|(who, _)| Series::new(GROUP, &work, who)).collect();
    let judged = task == Task::RoundTrips && size == FRAME;
    let most = if judged { 4 * schedule.rounds } else { schedule.rounds };
    for round in 0..most {
        if round >= schedule.rounds && near_rounds(&all) >= ENOUGH_NEAR_ROUNDS {
            break;
        }
        for ((who, peer), series) in (0..).zip(peers.iter_mut()).zip(&mut all) {
            let (floors, samples) = helper.between_floors(schedule.floor_trips(), |helper| {
                helper.order(task, who, size)?;
                let (page, wait) = helper.page_and_wait();
                match task {
                    Task::OneWay => peer.one_way(page, wait, schedule.take),
                    _ => peer.round_trips(wait, schedule.take),
                }
            })?;
            series.takes.push(Take { round, floors: Some(floors), samples });
        }
    }
    Ok(all)
}

/// The number of rounds that count for the bars: near cores for the first two subjects.
fn near_rounds(all: &[Series]) -> usize {
    match all {
        [one, two, ..] => ratios(one, two, Some(CoreDistance::Near)).len(),
        _ => 0,
    }
}

fn wake_ups(helper: &mut Helper, schedule: Schedule) -> Result<Vec<Series>> {
    let mut wakers = Vec::new();
    for (who, (name, open)) in (0..).zip(WAKERS) {
        let named = |error| format!("{name}: {error}");
        let mut waker = open(link(FRAME, Side::Parent)).map_err(named)?;
        helper.order(Task::Wake, who, FRAME)?;
        waker.ready().map_err(named)?;
        wake::round_trips(waker.as_mut(), schedule.long_warm_up(WARM_UP)).map_err(named)?;
        release(helper, waker.as_mut())?;
        wakers.push(waker);
    }
    let mut all: Vec<Series> =
        WAKERS.iter().map(|(who, _)| Series::new(GROUP, "wake-up round trip", who)).collect();
    for round in 0..schedule.rounds {
        for ((who, waker), series) in (0..).zip(&mut wakers).zip(&mut all) {
            let (floors, samples) = helper.between_floors(schedule.floor_trips(), |helper| {
                helper.order(Task::Wake, who, FRAME)?;
                let samples = wake::round_trips(waker.as_mut(), schedule.take)?;
                release(helper, waker.as_mut())?;
                Ok(samples)
            })?;
            series.takes.push(Take { round, floors: Some(floors), samples });
        }
    }
    helper.order(Task::Close, 0, 0)?;
    Ok(all)
}

/// Orders something else, and wakes the helper so that it sees the order.
fn release(helper: &mut Helper, waker: &mut dyn Waker) -> Result<()> {
    let word = helper.announce(Task::Floor, 0, 0);
    waker.wake()?;
    helper.await_started(word)
}

/// Runs the helper process, until it is ordered to quit.
pub(crate) fn run_helper(page: &SharedPage) -> Result<()> {
    let mut peers: HashMap<(u8, u8), Box<dyn Peer>> = HashMap::new();
    let mut wakers: HashMap<u8, Box<dyn Waker>> = HashMap::new();
    loop {
        let word = page.order();
        let Order { task, who, size, .. } = Order::from_word(word);
        match task {
            Task::Floor => {
                page.set_started(word);
                page.answer_floor(word);
            }
            Task::Busy => {
                page.set_started(word);
                while page.order() == word {
                    busy_work::run();
                }
            }
            Task::RoundTrips | Task::OneWay => {
                let peer = peer(&mut peers, who, size)?;
                page.set_started(word);
                let serve =
                    if task == Task::RoundTrips { Peer::answer } else { Peer::report_arrivals };
                serve(peer, page, word)?;
            }
            Task::Wake => {
                let waker = waker(&mut wakers, who)?;
                page.set_started(word);
                wake::answer(waker, page, word)?;
            }
            Task::Close => {
                peers.clear();
                wakers.clear();
                page.set_started(word);
                while page.order() == word {
                    std::hint::spin_loop();
                }
            }
            Task::Subscribe | Task::Hold | Task::Publish => {
                return Err("no task of this group".into());
            }
            Task::Quit => return Ok(()),
        }
    }
}

/// The connection of a subject, opened on first use.
fn peer(peers: &mut HashMap<(u8, u8), Box<dyn Peer>>, who: u8, size: u8) -> Result<&mut dyn Peer> {
    let entry = match peers.entry((who, size)) {
        Entry::Occupied(open) => open.into_mut(),
        Entry::Vacant(vacant) => {
            let open = PEERS.get(usize::from(who)).ok_or("no such peer")?.1;
            vacant.insert(open(link(size, Side::Helper))?)
        }
    };
    Ok(entry.as_mut())
}

/// The waker of a subject, opened on first use.
fn waker(wakers: &mut HashMap<u8, Box<dyn Waker>>, who: u8) -> Result<&mut dyn Waker> {
    let entry = match wakers.entry(who) {
        Entry::Occupied(open) => open.into_mut(),
        Entry::Vacant(vacant) => {
            let open = WAKERS.get(usize::from(who)).ok_or("no such waker")?.1;
            let waker = vacant.insert(open(link(FRAME, Side::Helper))?);
            waker.ready()?;
            waker
        }
    };
    Ok(entry.as_mut())
}
