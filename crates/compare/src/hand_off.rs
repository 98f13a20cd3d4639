//! Frames handed to another process: there and back, one way, and with both sides asleep.

mod cenote;
mod ends;
#[cfg(feature = "peers")]
pub(crate) mod iceoryx2;
mod socket;
mod wake;
#[cfg(feature = "zenoh")]
mod zenoh;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::Duration;

use self::ends::{Link, Peer, Side};
use self::wake::Bell;
use crate::Result;
use crate::other::{Order, Other, Task};
use crate::pace::Pace;
use crate::page::Page;
use crate::series::{Place, Series, Take, ratios};
use crate::toil;

/// What it is called.
pub(crate) const GROUP: &str = "hand-off";

/// Frames, by their names and bytes.
const SIZES: [(&str, usize); 3] = [("64 B", 64), ("1080p", crate::FRAME), ("24 MB", 24 << 20)];

/// The size that bars are about.
const FRAME: u8 = 1;

type Open = fn(Link) -> Result<Box<dyn Peer>>;
type OpenBell = fn(Link) -> Result<Box<dyn Bell>>;

/// All who take frames there and back. The first two are those of the bars.
const PEERS: &[(&str, Open)] = &[
    ("cenote", cenote::open),
    #[cfg(feature = "peers")]
    (iceoryx2::WHO, iceoryx2::open),
    ("cenote, Image", cenote::open_images),
    ("fd over a Unix socket, mapped", socket::open_sent),
    ("Unix socket, copied", socket::open_copied),
    #[cfg(feature = "zenoh")]
    ("zenoh, shared memory", zenoh::open_shared),
    #[cfg(feature = "zenoh")]
    ("zenoh", zenoh::open_copied),
];

/// All who wake each other up.
const BELLS: &[(&str, OpenBell)] = &[
    ("cenote, 1080p", cenote::bell),
    #[cfg(feature = "peers")]
    ("iceoryx2, event alone", iceoryx2::event_bell),
    #[cfg(feature = "peers")]
    ("iceoryx2, 1080p and event", iceoryx2::frame_bell),
    ("Unix socket, one byte", socket::bell),
];

/// Before the first round.
const WARM_UP: Duration = Duration::from_millis(300);

/// Rounds in which the cores were near, that there should be.
const ENOUGH: usize = 5;

/// All of it.
pub(crate) fn run(pace: Pace) -> Result<Vec<Series>> {
    let mut other = Other::start(GROUP)?;
    let mut all = Vec::new();
    for size in 0..=2 {
        all.extend(frames(&mut other, pace, size)?);
    }
    all.extend(wake_ups(&mut other, pace)?);
    Ok(all)
}

fn link(size: u8, side: Side) -> Link {
    const NAMES: [&str; 3] = ["small", "frame", "large"];
    let size = usize::from(size);
    Link { name: NAMES[size], bytes: SIZES[size].1, side }
}

fn frames(other: &mut Other, pace: Pace, size: u8) -> Result<Vec<Series>> {
    let mut peers = meet(other, pace, size)?;
    let mut all = rounds(other, pace, Task::Trips, size, &mut peers)?;
    all.extend(rounds(other, pace, Task::OneWay, size, &mut peers)?);
    other.order(Task::Close, 0, 0)?;
    Ok(all)
}

/// Connects all of them, and lets them warm up.
fn meet(other: &mut Other, pace: Pace, size: u8) -> Result<Vec<Box<dyn Peer>>> {
    let mut peers = Vec::new();
    for (who, (name, open)) in (0..).zip(PEERS) {
        let named = |error| format!("{name}: {error}");
        let mut peer = open(link(size, Side::Here)).map_err(named)?;
        other.order(Task::Trips, who, size)?;
        peer.meet(other.watch().1).map_err(named)?;
        peer.trips(other.watch().1, pace.touched(WARM_UP)).map_err(named)?;
        peers.push(peer);
    }
    Ok(peers)
}

/// There and back, or one way.
fn rounds(
    other: &mut Other,
    pace: Pace,
    task: Task,
    size: u8,
    peers: &mut [Box<dyn Peer>],
) -> Result<Vec<Series>> {
    let way = if task == Task::OneWay { "one way" } else { "round trip" };
    let work = format!("{way}, {}", SIZES[usize::from(size)].0);
    let mut all: Vec<Series> =
        PEERS.iter().map(|(who, _)| Series::new(GROUP, &work, who)).collect();
    let judged = task == Task::Trips && size == FRAME;
    let most = if judged { 4 * pace.rounds } else { pace.rounds };
    for round in 0..most {
        if round >= pace.rounds && near_rounds(&all) >= ENOUGH {
            break;
        }
        for ((who, peer), series) in (0..).zip(peers.iter_mut()).zip(&mut all) {
            let (floors, samples) = other.between_floors(pace.floor_trips(), |other| {
                other.order(task, who, size)?;
                let (page, wait) = other.watch();
                match task {
                    Task::OneWay => peer.one_way(page, wait, pace.take),
                    _ => peer.trips(wait, pace.take),
                }
            })?;
            series.takes.push(Take { round, floors: Some(floors), samples });
        }
    }
    Ok(all)
}

/// Rounds that count for the bars: those of the first two, with near cores.
fn near_rounds(all: &[Series]) -> usize {
    match all {
        [one, two, ..] => ratios(one, two, Some(Place::Near)).len(),
        _ => 0,
    }
}

fn wake_ups(other: &mut Other, pace: Pace) -> Result<Vec<Series>> {
    let mut bells = Vec::new();
    for (who, (name, open)) in (0..).zip(BELLS) {
        let named = |error| format!("{name}: {error}");
        let mut bell = open(link(FRAME, Side::Here)).map_err(named)?;
        other.order(Task::Wake, who, FRAME)?;
        bell.ready().map_err(named)?;
        wake::wakes(bell.as_mut(), pace.touched(WARM_UP)).map_err(named)?;
        rest(other, bell.as_mut())?;
        bells.push(bell);
    }
    let mut all: Vec<Series> =
        BELLS.iter().map(|(who, _)| Series::new(GROUP, "wake-up there and back", who)).collect();
    for round in 0..pace.rounds {
        for ((who, bell), series) in (0..).zip(&mut bells).zip(&mut all) {
            let (floors, samples) = other.between_floors(pace.floor_trips(), |other| {
                other.order(Task::Wake, who, FRAME)?;
                let samples = wake::wakes(bell.as_mut(), pace.take)?;
                rest(other, bell.as_mut())?;
                Ok(samples)
            })?;
            series.takes.push(Take { round, floors: Some(floors), samples });
        }
    }
    other.order(Task::Close, 0, 0)?;
    Ok(all)
}

/// Wakes the other process to other things.
fn rest(other: &mut Other, bell: &mut dyn Bell) -> Result<()> {
    let word = other.announce(Task::Floor, 0, 0);
    bell.ring()?;
    other.await_seen(word)
}

/// What the other process does, until it is told to end.
pub(crate) fn other(page: &Page) -> Result<()> {
    let mut peers: HashMap<(u8, u8), Box<dyn Peer>> = HashMap::new();
    let mut bells: HashMap<u8, Box<dyn Bell>> = HashMap::new();
    loop {
        let word = page.order();
        let Order { task, who, size, .. } = Order::from_word(word);
        match task {
            Task::Floor => {
                page.set_seen(word);
                page.answer(word);
            }
            Task::Toil => {
                page.set_seen(word);
                while page.order() == word {
                    toil::once();
                }
            }
            Task::Trips | Task::OneWay => {
                let peer = peer(&mut peers, who, size)?;
                page.set_seen(word);
                let serve = if task == Task::Trips { Peer::answer } else { Peer::note };
                serve(peer, page, word)?;
            }
            Task::Wake => {
                let bell = bell(&mut bells, who)?;
                page.set_seen(word);
                wake::answer(bell, page, word)?;
            }
            Task::Close => {
                peers.clear();
                bells.clear();
                page.set_seen(word);
                while page.order() == word {
                    std::hint::spin_loop();
                }
            }
            Task::Join | Task::Hold | Task::Publish => return Err("not here".into()),
            Task::Quit => return Ok(()),
        }
    }
}

fn peer(peers: &mut HashMap<(u8, u8), Box<dyn Peer>>, who: u8, size: u8) -> Result<&mut dyn Peer> {
    let entry = match peers.entry((who, size)) {
        Entry::Occupied(there) => there.into_mut(),
        Entry::Vacant(place) => {
            let open = PEERS.get(usize::from(who)).ok_or("no such peer")?.1;
            place.insert(open(link(size, Side::There))?)
        }
    };
    Ok(entry.as_mut())
}

fn bell(bells: &mut HashMap<u8, Box<dyn Bell>>, who: u8) -> Result<&mut dyn Bell> {
    let entry = match bells.entry(who) {
        Entry::Occupied(there) => there.into_mut(),
        Entry::Vacant(place) => {
            let open = BELLS.get(usize::from(who)).ok_or("no such bell")?.1;
            let bell = place.insert(open(link(FRAME, Side::There))?);
            bell.ready()?;
            bell
        }
    };
    Ok(entry.as_mut())
}
