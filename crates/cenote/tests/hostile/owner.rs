//! Owners that send false messages to the processes that attach.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use cenote::{Error, Tensor, TensorDescriptor, TensorPool};
use rustix::fs::{MemfdFlags, SealFlags};

use super::Test;
use crate::support::raw::mapping::Mapping;
use crate::support::raw::pool::{
    GONE, HELLO, LEASES, MORE, Pretender, REFUSED, Raw, SEGMENT, WAKE, Welcome, borrowed, packet,
};
use crate::support::{Random, TIMEOUT, all_are, eventually, filled, memfd, pool};

pub(crate) const TESTS: &[Test] = &[
    ("a_correct_owner_is_accepted", truth),
    ("inconsistent_welcomes_are_rejected", welcomes),
    ("files_that_are_not_what_the_protocol_expects", files),
    ("invalid_answers_are_rejected", answers),
    ("an_owner_that_disconnects_at_every_step", steps),
    ("an_owner_that_never_answers", silence),
    ("garbage_pushed_after_the_welcome", pushes),
    ("a_segment_declared_removed_under_a_lease_stays", gone),
    ("an_owner_that_sends_every_segment_except_the_requested_one", others),
    ("an_expelled_reader_gets_the_reason", expelled),
    ("a_header_that_changes_under_its_readers", header),
    ("an_owner_that_never_stops_sending_delays_no_other_peer", chatter),
];

/// Of a row, which is written; and of all else, which is not.
const ROW_SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);
const SEALS: SealFlags = ROW_SEALS.union(SealFlags::FUTURE_WRITE);
const UID: u64 = 0xbad0_0000_0000_0001;
const SLOTS: u32 = 8;
const LEN: u64 = 64 << 10;

/// All that an owner sends, before somebody changes it.
pub(crate) struct Answer {
    welcome: Welcome,
    fds: Vec<OwnedFd>,
    /// The header, mapped before it was sealed.
    header: Mapping,
}

impl Answer {
    pub(crate) fn honest(uid: u64) -> Answer {
        let words = (LEASES + SLOTS as usize) as u64 * 8;
        let segment = memfd(LEN, SealFlags::empty());
        rustix::io::pwrite(&segment, &vec![6; usize::try_from(LEN).unwrap()], 0).unwrap();
        rustix::fs::fcntl_add_seals(&segment, SEALS).unwrap();
        let header = memfd(words + u64::from(SLOTS) * 3 * 8, SealFlags::empty());
        for slot in 0..SLOTS as usize {
            let at = (LEASES + slot) as u64 * 8;
            rustix::io::pwrite(&header, &2_u64.to_ne_bytes(), at).unwrap();
            // Every slot is all of segment 0, but the last, which is in one that may come later.
            let place = if slot == 7 { [1, 0, 4096] } else { [0, 0, LEN] };
            let place = place.map(u64::to_ne_bytes).concat();
            rustix::io::pwrite(&header, &place, words + slot as u64 * 3 * 8).unwrap();
        }
        let mapping = Mapping::of(&header, LEASES + SLOTS as usize);
        rustix::fs::fcntl_add_seals(&header, SEALS).unwrap();
        let welcome =
            Welcome { uid, max_slots: SLOTS, max_leases: 4, count: 1, segments: vec![(0, LEN)] };
        Answer { welcome, fds: vec![header, memfd(words, ROW_SEALS), segment], header: mapping }
    }

    pub(crate) fn send(&self, to: &Raw) {
        let _ = to.send(&self.welcome.encode(), &borrowed(&self.fds));
    }
}

/// Descriptor of 1000 bytes in segment 0, slot 0, of a pool with this uid: made by an honest pool, and
/// its first words replaced.
fn descriptor(uid: u64, segment: u32, slot: u32) -> TensorDescriptor {
    let pool = pool(2);
    let mut bytes = filled(&pool, 1000, 1).descriptor().unwrap().as_bytes().to_vec();
    bytes[0..8].copy_from_slice(&uid.to_ne_bytes());
    bytes[8..16].copy_from_slice(&2_u64.to_ne_bytes());
    bytes[16..20].copy_from_slice(&segment.to_ne_bytes());
    bytes[20..24].copy_from_slice(&slot.to_ne_bytes());
    bytes[24..32].copy_from_slice(&0_u64.to_ne_bytes());
    TensorDescriptor::from_bytes(&bytes).unwrap()
}

/// Runs an attacher against an owner that does `act` with the first who says hello.
fn against<T>(uid: u64, act: impl FnOnce(&Raw) + Send, attach: impl FnOnce(&str) -> T) -> T {
    let pretender = Pretender::new(uid);
    std::thread::scope(|scope| {
        let served = scope.spawn(|| {
            let raw = pretender.greeted();
            act(&raw);
            raw
        });
        let result = attach(&pretender.name);
        drop(served.join().unwrap());
        result
    })
}

/// What becomes of attaching to an owner that answers thus.
fn answered(answer: &Answer) -> cenote::Result<TensorPool> {
    against(UID, |raw| answer.send(raw), |name| TensorPool::open(name))
}

fn truth() {
    let answer = Answer::honest(UID);
    let tensor = against(
        UID,
        |raw| answer.send(raw),
        |name| {
            let pool = TensorPool::open(name).unwrap();
            pool.import(&descriptor(UID, 0, 3)).unwrap()
        },
    );
    assert!(all_are(&tensor, 6));
}

/// One way to spoil a welcome.
type Spoil = fn(&mut Answer);

fn welcomes() {
    let spoils: &[Spoil] = &[
        |a| a.welcome.uid ^= 1,
        |a| a.welcome.max_slots = 0,
        |a| a.welcome.max_slots = u32::MAX,
        |a| a.welcome.max_slots = (1 << 20) + 65,
        |a| a.welcome.max_slots = 1 << 20,
        |a| a.welcome.count = 0,
        |a| a.welcome.count = 2,
        |a| a.welcome.count = 128,
        |a| a.welcome.count = 129,
        |a| a.welcome.count = u32::MAX,
        |a| a.welcome.segments[0].1 = 0,
        |a| a.welcome.segments[0].1 = LEN + 1,
        |a| a.welcome.segments[0].1 = 1 << 46,
        |a| a.welcome.segments[0].1 = u64::MAX,
        |a| a.fds.clear(),
        |a| drop(a.fds.pop()),
        |a| a.fds.truncate(1),
        |a| a.fds.extend((0..250).map(|_| memfd(4096, SEALS))),
    ];
    for (number, spoil) in spoils.iter().enumerate() {
        let mut answer = Answer::honest(UID);
        spoil(&mut answer);
        let error = answered(&answer).expect_err(&format!("lie {number} was believed"));
        assert!(!matches!(error, Error::NoAnswer { .. }), "lie {number}: {error}");
    }
    // Odd, but harmless: one segment twice, fewer slots, no leases, a smaller segment.
    let harmless: &[Spoil] = &[
        |a| {
            a.welcome.count = 2;
            a.welcome.segments.push((0, 4096));
            a.fds.push(memfd(4096, SEALS));
        },
        |a| a.welcome.max_slots = 1,
        |a| a.welcome.max_leases = 0,
        |a| a.welcome.max_leases = u32::MAX,
        |a| a.welcome.segments[0].1 = 1,
        |a| a.welcome.segments[0].0 = u32::MAX,
    ];
    for spoil in harmless {
        let mut answer = Answer::honest(UID);
        spoil(&mut answer);
        let pool = answered(&answer).unwrap();
        for slot in [0, 1, SLOTS, u32::MAX] {
            // What it may be depends on the lie; that it returns is the point.
            let _ = pool.import(&descriptor(UID, 0, slot)).map(|tensor| tensor.to_vec::<u8>());
        }
    }
}

fn sealed(fd: OwnedFd) -> OwnedFd {
    rustix::fs::fcntl_add_seals(&fd, SEALS).unwrap();
    fd
}

fn huge_pages() -> Option<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB;
    let fd = rustix::fs::memfd_create("huge", flags).ok()?;
    rustix::fs::ftruncate(&fd, 2 << 20).ok()?;
    Some(sealed(fd))
}

/// Large, with no memory behind it.
fn sparse(len: u64) -> OwnedFd {
    let fd = memfd(0, SealFlags::empty());
    rustix::fs::ftruncate(&fd, len).unwrap();
    sealed(fd)
}

fn write_only() -> OwnedFd {
    let fd = memfd(1 << 20, SEALS);
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&fd));
    std::fs::OpenOptions::new().write(true).open(path).unwrap().into()
}

fn files() {
    let others: &[fn() -> OwnedFd] = &[
        || std::fs::File::open("/").unwrap().into(),
        || std::fs::File::open("/dev/zero").unwrap().into(),
        || std::fs::File::open("/proc/self/exe").unwrap().into(),
        || std::io::pipe().unwrap().0.into(),
        || rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap(),
        || std::os::unix::net::UnixStream::pair().unwrap().0.into(),
        || memfd(1 << 20, SealFlags::empty()),
        || memfd(1 << 20, SealFlags::GROW),
        || memfd(0, SEALS),
        || memfd(8, SEALS),
        write_only,
        || sparse(1 << 40),
        || huge_pages().unwrap_or_else(|| memfd(0, SEALS)),
    ];
    for place in 0..3 {
        for (number, other) in others.iter().enumerate() {
            let mut answer = Answer::honest(UID);
            answer.fds[place] = other();
            assert!(answered(&answer).is_err(), "file {number} was taken as {place}");
        }
    }
    // A row that cannot be written, and one that is the header or the segment.
    let answer = Answer::honest(UID);
    rustix::fs::fcntl_add_seals(&answer.fds[1], SealFlags::FUTURE_WRITE).unwrap();
    assert!(answered(&answer).is_err());
    let mut answer = Answer::honest(UID);
    answer.fds[1] = answer.fds[0].try_clone().unwrap();
    assert!(answered(&answer).is_err());
    // Header and segments that somebody else could write.
    for place in [0, 2] {
        let mut answer = Answer::honest(UID);
        answer.fds[place] = memfd(1 << 20, ROW_SEALS);
        let error = answered(&answer).unwrap_err();
        assert!(error.to_string().contains("not sealed against writing"), "{error}");
    }
    let mut answer = Answer::honest(UID);
    answer.fds[2] = answer.fds[0].try_clone().unwrap();
    answer.welcome.segments[0].1 = 64;
    let pool = answered(&answer).unwrap();
    let _ = pool.import(&descriptor(UID, 0, 0));
}

fn answers() {
    let honest = Answer::honest(UID).welcome.encode();
    let mut lies: Vec<Vec<u8>> =
        [HELLO, SEGMENT, GONE, MORE, WAKE, 0, 9, u32::MAX].map(|kind| packet(kind, 0, 0)).into();
    lies.extend([0, 1, 4, u32::MAX].map(|why| packet(REFUSED, why, 0)));
    lies.extend([1, 23, 24, 25, 47, 48, 64, honest.len() - 1].map(|len| honest[..len].to_vec()));
    lies.push([honest, vec![0; 1]].concat());
    lies.push(vec![0xff; 60_000]);
    for lie in lies {
        let send = |raw: &Raw| drop(raw.send(&lie, &[]));
        let error = against(UID, send, |name| TensorPool::open(name)).unwrap_err();
        assert!(!matches!(error, Error::NoAnswer { .. }), "{error}");
    }
}

fn steps() {
    // After the hello, and before it.
    for greeted in [true, false] {
        let pretender = Pretender::new(UID);
        std::thread::scope(|scope| {
            let name = pretender.name.clone();
            let attacher = scope.spawn(move || TensorPool::open(name));
            // Attaching may be tried more than once.
            while !attacher.is_finished() {
                if readable(&pretender) {
                    drop(if greeted { pretender.greeted() } else { pretender.accept() });
                }
            }
            attacher.join().unwrap().unwrap_err();
        });
    }
    // After the welcome: the pool is there, and its owner lives but does not know us any more, so
    // that it would not see our leases.
    let answer = Answer::honest(UID);
    let pool = answered(&answer).unwrap();
    eventually("the owner is gone", || !pool.is_alive());
    for slot in [1, 7] {
        let refused = pool.import(&descriptor(UID, 0, slot)).unwrap_err();
        assert!(matches!(refused, Error::PoolClosed { .. }), "{refused}");
    }
}

fn readable(pretender: &Pretender) -> bool {
    pretender.waits_for(Duration::from_millis(5))
}

fn silence() {
    let (given_up, hears) = std::sync::mpsc::channel();
    let error = against(
        UID,
        // Whoever does not give up is hung up on in the end, which is another error.
        move |_| {
            let _ = hears.recv_timeout(TIMEOUT);
        },
        |name| {
            let error = TensorPool::open(name).unwrap_err();
            given_up.send(()).unwrap();
            error
        },
    );
    assert!(matches!(error, Error::NoAnswer { .. }), "{error}");
}

fn pushes() {
    let answer = Answer::honest(UID);
    let mut random = Random(3);
    let push = |raw: &Raw| {
        answer.send(raw);
        let good = memfd(4096, SEALS);
        let bad = memfd(4096, ROW_SEALS);
        let send = |bytes: &[u8], fds: &[&OwnedFd]| {
            let fds: Vec<_> = fds.iter().map(|fd| fd.as_fd()).collect();
            let _ = raw.send(bytes, &fds);
        };
        for kind in [0, HELLO, REFUSED, SEGMENT, GONE, MORE, WAKE, 8, u32::MAX] {
            send(&packet(kind, 5, 4096), &[]);
            send(&packet(kind, 6, 4096), &[&good, &good]);
            send(&packet(kind, 7, 4096), &[&bad]);
            send(&packet(kind, 8, u64::MAX), &[&good]);
            send(&packet(kind, 9, 0), &[&good]);
            send(&packet(kind, 10, 4097), &[&good]);
        }
        for len in 0..70 {
            let bytes: Vec<u8> = (0..len).map(|_| random.next().to_ne_bytes()[0]).collect();
            if len > 0 {
                send(&bytes, &[&good]);
            }
        }
        send(&vec![1; 50_000], &[&good]);
        send(&packet(SEGMENT, 0, 1), &[&good]); // again, and another
        send(&packet(SEGMENT, 1, 4096), &[&good]);
    };
    let pool = against(UID, push, |name| {
        let pool = TensorPool::open(name).unwrap();
        let fits = pool.import(&descriptor(UID, 1, 7)).unwrap();
        assert!(all_are(&fits, 0));
        assert!(all_are(&pool.import(&descriptor(UID, 0, 0)).unwrap(), 6), "the first one counts");
        pool
    });
    drop(pool);
}

fn gone() {
    let answer = Answer::honest(UID);
    let (tell, told) = std::sync::mpsc::channel();
    let sent = &answer;
    let act = move |raw: &Raw| {
        sent.send(raw);
        told.recv().unwrap();
        for segment in [0, 0, 1, u32::MAX] {
            raw.send(&packet(GONE, segment, 0), &[]).unwrap();
        }
        told.recv().unwrap();
    };
    let tensor = against(UID, act, move |name| {
        let pool = TensorPool::open(name).unwrap();
        let tensor = pool.import(&descriptor(UID, 0, 0)).unwrap();
        tell.send(()).unwrap();
        eventually("the segment is gone", || pool.import(&descriptor(UID, 0, 1)).is_err());
        assert!(all_are(&tensor, 6));
        tell.send(()).unwrap();
        tensor
    });
    drop(answer);
    assert!(all_are(&tensor, 6), "its bytes stay for as long as they are held");
}

fn others() {
    let answer = Answer::honest(UID);
    let act = |raw: &Raw| {
        answer.send(raw);
        // Nobody maps as many.
        for number in 100..400 {
            let Ok((bytes, _)) = raw.recv() else { return };
            if bytes.is_empty() {
                return;
            }
            let other = memfd(4096, SEALS);
            let _ = raw.send(&packet(SEGMENT, number, 4096), &[other.as_fd()]);
        }
    };
    against(UID, act, |name| {
        let pool = TensorPool::open(name).unwrap();
        let refused = pool.import(&descriptor(UID, 1, 7));
        assert!(matches!(refused, Err(Error::NoSuchSegment { .. })), "{refused:?}");
    });
}

fn expelled() {
    let answer = Answer::honest(UID);
    let act = |raw: &Raw| {
        answer.send(raw);
        let _ = raw.send(&packet(REFUSED, 4, 9 << 32 | 4), &[]);
    };
    let pool = against(UID, act, |name| TensorPool::open(name).unwrap());
    eventually("the owner is gone", || !pool.is_alive());
    let error = pool.import(&descriptor(UID, 0, 0)).unwrap_err();
    assert!(matches!(error, Error::Expelled { held: 9, max: 4, .. }), "{error}");
    assert!(error.to_string().contains("`max_leases` allows 4"), "{error}");
}

fn header() {
    let answer = Answer::honest(UID);
    let stop = std::sync::atomic::AtomicBool::new(false);
    let act = |raw: &Raw| {
        answer.send(raw);
        let mut random = Random(5);
        while !stop.load(Ordering::Relaxed) {
            let words = answer.header.words();
            words[random.below(words.len())].store(random.next() % 4, Ordering::Relaxed);
        }
    };
    // The segment of slot 7 never comes, which would be waited for.
    let slots = (0..=SLOTS).filter(|slot| *slot != 7);
    let wanted: Vec<TensorDescriptor> = slots.map(|slot| descriptor(UID, 0, slot)).collect();
    against(UID, act, |name| {
        let pool = TensorPool::open(name).unwrap();
        let (mut leased, mut refused) = (0, 0);
        for round in 0..20_000 {
            match pool.import(&wanted[round % wanted.len()]) {
                Ok(tensor) => leased += usize::from(all_are(&tensor, 6)),
                Err(Error::Stale { .. } | Error::NoSuchSlot { .. }) => refused += 1,
                Err(error) => panic!("{error}"),
            }
        }
        stop.store(true, Ordering::Relaxed);
        assert!(leased + refused == 20_000 && refused > 0);
    });
}

/// While one owner floods this process, others serve it and are served by it.
fn chatter() {
    let answer = Answer::honest(UID);
    let stop = std::sync::atomic::AtomicBool::new(false);
    let act = |raw: &Raw| {
        answer.send(raw);
        while !stop.load(Ordering::Relaxed) {
            let _ = raw.send(&packet(GONE, 77, 0), &[]);
        }
    };
    against(UID, act, |name| {
        let loud = TensorPool::open(name).unwrap();
        let until = Instant::now() + Duration::from_secs(1);
        super::reader::works_quickly(until, || super::reader::works(&pool(4)));
        stop.store(true, Ordering::Relaxed);
        drop(loud);
    });
    let _ = Tensor::from_descriptor(&descriptor(UID, 0, 0));
}
