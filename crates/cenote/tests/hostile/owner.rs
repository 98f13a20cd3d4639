//! Owners that send invalid answers to readers.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use cenote::{Error, Tensor, TensorDescriptor, TensorPool};
use rustix::fs::{MemfdFlags, SealFlags};

use super::Test;
use crate::support::raw::mapping::Mapping;
use crate::support::raw::pool::{
    ATTACH, AttachReply, FakeEndpoint, LEASES, REFUSED, Raw, SEGMENT, SEGMENT_REMOVED,
    SEGMENT_REQUEST, WAKE, borrowed, packet,
};
use crate::support::{Random, SetOnDrop, TIMEOUT, all_are, eventually, filled, memfd, pool};

pub(crate) const TESTS: &[Test] = &[
    ("a_valid_owner_is_accepted", valid),
    ("inconsistent_attach_replies_are_refused", replies),
    ("files_of_the_wrong_kind_are_refused", files),
    ("invalid_answers_are_refused", answers),
    ("an_owner_that_disconnects_at_every_step", steps),
    ("an_owner_that_never_answers", silence),
    ("garbage_sent_after_the_attach_reply", pushes),
    ("a_segment_declared_removed_under_a_lease_stays", removed),
    ("an_owner_that_sends_every_segment_except_the_requested_one", others),
    ("an_expelled_reader_learns_the_reason", expelled),
    ("a_header_that_changes_under_its_readers", header),
    ("an_owner_that_sends_without_end_does_not_delay_others", endless_packets),
];

/// The seals of a lease row, which readers write, and of everything else, which they do not.
const ROW_SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);
const SEALS: SealFlags = ROW_SEALS.union(SealFlags::FUTURE_WRITE);
const UID: u64 = 0xbad0_0000_0000_0001;
const SLOTS: u32 = 8;
const LEN: u64 = 64 << 10;

/// A valid reply of an owner, which a test can spoil.
pub(crate) struct Answer {
    reply: AttachReply,
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
            // Every slot is all of segment 0, except the last, which is in a segment that may come later.
            let location = if slot == 7 { [1, 0, 4096] } else { [0, 0, LEN] };
            let location = location.map(u64::to_ne_bytes).concat();
            rustix::io::pwrite(&header, &location, words + slot as u64 * 3 * 8).unwrap();
        }
        let mapping = Mapping::of(&header, LEASES + SLOTS as usize);
        rustix::fs::fcntl_add_seals(&header, SEALS).unwrap();
        let reply = AttachReply {
            uid,
            max_slots: SLOTS,
            max_leases: 4,
            count: 1,
            segments: vec![(0, LEN)],
        };
        Answer { reply, fds: vec![header, memfd(words, ROW_SEALS), segment], header: mapping }
    }

    pub(crate) fn send(&self, to: &Raw) {
        let _ = to.send(&self.reply.encode(), &borrowed(&self.fds));
    }
}

/// A descriptor of 1000 bytes in this segment and slot of a pool with this uid. An honest pool makes it,
/// and its first words are replaced.
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

/// Runs `attach` against an owner that runs `act` on the first connection, after its attach request.
fn against<T>(uid: u64, act: impl FnOnce(&Raw) + Send, attach: impl FnOnce(&str) -> T) -> T {
    let endpoint = FakeEndpoint::new(uid);
    std::thread::scope(|scope| {
        let served = scope.spawn(|| {
            let raw = endpoint.accept_request();
            act(&raw);
            raw
        });
        let result = attach(&endpoint.name);
        drop(served.join().unwrap());
        result
    })
}

/// The result of attaching to an owner with this answer.
fn answered(answer: &Answer) -> cenote::Result<TensorPool> {
    against(UID, |raw| answer.send(raw), |name| TensorPool::open(name))
}

fn valid() {
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

/// One way to spoil an attach reply.
type Spoil = fn(&mut Answer);

fn replies() {
    let spoils: &[Spoil] = &[
        |a| a.reply.uid ^= 1,
        |a| a.reply.max_slots = 0,
        |a| a.reply.max_slots = u32::MAX,
        |a| a.reply.max_slots = (1 << 20) + 65,
        |a| a.reply.max_slots = 1 << 20,
        |a| a.reply.count = 0,
        |a| a.reply.count = 2,
        |a| a.reply.count = 128,
        |a| a.reply.count = 129,
        |a| a.reply.count = u32::MAX,
        |a| a.reply.segments[0].1 = 0,
        |a| a.reply.segments[0].1 = LEN + 1,
        |a| a.reply.segments[0].1 = 1 << 46,
        |a| a.reply.segments[0].1 = u64::MAX,
        |a| a.fds.clear(),
        |a| drop(a.fds.pop()),
        |a| a.fds.truncate(1),
        |a| a.fds.extend((0..250).map(|_| memfd(4096, SEALS))),
    ];
    for (number, spoil) in spoils.iter().enumerate() {
        let mut answer = Answer::honest(UID);
        spoil(&mut answer);
        let error = answered(&answer).expect_err(&format!("lie {number} was accepted"));
        assert!(!matches!(error, Error::NoAnswer { .. }), "lie {number}: {error}");
    }
    // Odd, but harmless: one segment twice, fewer slots, no leases, a smaller segment.
    let harmless: &[Spoil] = &[
        |a| {
            a.reply.count = 2;
            a.reply.segments.push((0, 4096));
            a.fds.push(memfd(4096, SEALS));
        },
        |a| a.reply.max_slots = 1,
        |a| a.reply.max_leases = 0,
        |a| a.reply.max_leases = u32::MAX,
        |a| a.reply.segments[0].1 = 1,
        |a| a.reply.segments[0].0 = u32::MAX,
    ];
    for spoil in harmless {
        let mut answer = Answer::honest(UID);
        spoil(&mut answer);
        let pool = answered(&answer).unwrap();
        for slot in [0, 1, SLOTS, u32::MAX] {
            // The result depends on the lie; it must only return.
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

/// A large file without pages.
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
    for position in 0..3 {
        for (number, other) in others.iter().enumerate() {
            let mut answer = Answer::honest(UID);
            answer.fds[position] = other();
            assert!(answered(&answer).is_err(), "file {number} was accepted as {position}");
        }
    }
    // A lease row that cannot be written, and one that is the header.
    let answer = Answer::honest(UID);
    rustix::fs::fcntl_add_seals(&answer.fds[1], SealFlags::FUTURE_WRITE).unwrap();
    assert!(answered(&answer).is_err());
    let mut answer = Answer::honest(UID);
    answer.fds[1] = answer.fds[0].try_clone().unwrap();
    assert!(answered(&answer).is_err());
    // A header and a segment that another process could write.
    for position in [0, 2] {
        let mut answer = Answer::honest(UID);
        answer.fds[position] = memfd(1 << 20, ROW_SEALS);
        let error = answered(&answer).unwrap_err();
        assert!(error.to_string().contains("not sealed against writing"), "{error}");
    }
    let mut answer = Answer::honest(UID);
    answer.fds[2] = answer.fds[0].try_clone().unwrap();
    answer.reply.segments[0].1 = 64;
    let pool = answered(&answer).unwrap();
    let _ = pool.import(&descriptor(UID, 0, 0));
}

fn answers() {
    let honest = Answer::honest(UID).reply.encode();
    let mut lies: Vec<Vec<u8>> =
        [ATTACH, SEGMENT, SEGMENT_REMOVED, SEGMENT_REQUEST, WAKE, 0, 9, u32::MAX]
            .map(|kind| packet(kind, 0, 0))
            .into();
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
    // After the attach request, and before it.
    for after_request in [true, false] {
        let endpoint = FakeEndpoint::new(UID);
        std::thread::scope(|scope| {
            let name = endpoint.name.clone();
            let reader = scope.spawn(move || TensorPool::open(name));
            // The reader may try more than once.
            while !reader.is_finished() {
                if readable(&endpoint) {
                    drop(if after_request { endpoint.accept_request() } else { endpoint.accept() });
                }
            }
            reader.join().unwrap().unwrap_err();
        });
    }
    // After the reply: the owner lives but has no connection to this reader, so it would not see its
    // leases.
    let answer = Answer::honest(UID);
    let pool = answered(&answer).unwrap();
    eventually("the owner is disconnected", || !pool.is_alive());
    for slot in [1, 7] {
        let refused = pool.import(&descriptor(UID, 0, slot)).unwrap_err();
        assert!(matches!(refused, Error::PoolClosed { .. }), "{refused}");
    }
}

fn readable(endpoint: &FakeEndpoint) -> bool {
    endpoint.has_connection_within(Duration::from_millis(5))
}

fn silence() {
    let (given_up, receiver) = std::sync::mpsc::channel();
    let error = against(
        UID,
        // If the reader does not give up, the owner disconnects in the end, which is another error.
        move |_| {
            let _ = receiver.recv_timeout(TIMEOUT);
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
        for kind in
            [0, ATTACH, REFUSED, SEGMENT, SEGMENT_REMOVED, SEGMENT_REQUEST, WAKE, 8, u32::MAX]
        {
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
        send(&packet(SEGMENT, 0, 1), &[&good]); // a second time, with another file
        send(&packet(SEGMENT, 1, 4096), &[&good]);
    };
    let pool = against(UID, push, |name| {
        let pool = TensorPool::open(name).unwrap();
        let fits = pool.import(&descriptor(UID, 1, 7)).unwrap();
        assert!(all_are(&fits, 0));
        assert!(
            all_are(&pool.import(&descriptor(UID, 0, 0)).unwrap(), 6),
            "the first segment 0 counts"
        );
        pool
    });
    drop(pool);
}

fn removed() {
    let answer = Answer::honest(UID);
    let (sender, receiver) = std::sync::mpsc::channel();
    let sent = &answer;
    let act = move |raw: &Raw| {
        sent.send(raw);
        receiver.recv().unwrap();
        for segment in [0, 0, 1, u32::MAX] {
            raw.send(&packet(SEGMENT_REMOVED, segment, 0), &[]).unwrap();
        }
        receiver.recv().unwrap();
    };
    let tensor = against(UID, act, move |name| {
        let pool = TensorPool::open(name).unwrap();
        let tensor = pool.import(&descriptor(UID, 0, 0)).unwrap();
        sender.send(()).unwrap();
        eventually("the segment is removed", || pool.import(&descriptor(UID, 0, 1)).is_err());
        assert!(all_are(&tensor, 6));
        sender.send(()).unwrap();
        tensor
    });
    drop(answer);
    assert!(all_are(&tensor, 6), "its bytes stay while they are leased");
}

fn others() {
    let answer = Answer::honest(UID);
    let act = |raw: &Raw| {
        answer.send(raw);
        // More segments than a reader maps.
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
        let text = refused.unwrap_err().to_string();
        assert!(text.contains(&format!("its owner (pid {})", std::process::id())), "{text}");
        assert!(text.contains(" within "), "{text}");
    });
}

fn expelled() {
    let answer = Answer::honest(UID);
    let act = |raw: &Raw| {
        answer.send(raw);
        let _ = raw.send(&packet(REFUSED, 4, 9 << 32 | 4), &[]);
    };
    let pool = against(UID, act, |name| TensorPool::open(name).unwrap());
    eventually("the owner is disconnected", || !pool.is_alive());
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
    // Without slot 7: its segment never arrives, and the reader would wait for it.
    let slots = (0..=SLOTS).filter(|slot| *slot != 7);
    let wanted: Vec<TensorDescriptor> = slots.map(|slot| descriptor(UID, 0, slot)).collect();
    against(UID, act, |name| {
        let stop = SetOnDrop(&stop);
        let pool = TensorPool::open(name).unwrap();
        let (mut leased, mut refused) = (0, 0);
        for round in 0..20_000 {
            match pool.import(&wanted[round % wanted.len()]) {
                Ok(tensor) => leased += usize::from(all_are(&tensor, 6)),
                Err(Error::Stale { .. } | Error::NoSuchSlot { .. }) => refused += 1,
                Err(error) => panic!("{error}"),
            }
        }
        drop(stop);
        assert!(leased + refused == 20_000 && refused > 0);
    });
}

/// While one owner floods this process, its other pools still work in both directions.
fn endless_packets() {
    let answer = Answer::honest(UID);
    let stop = std::sync::atomic::AtomicBool::new(false);
    let act = |raw: &Raw| {
        answer.send(raw);
        while !stop.load(Ordering::Relaxed) {
            let _ = raw.send(&packet(SEGMENT_REMOVED, 77, 0), &[]);
        }
    };
    against(UID, act, |name| {
        let _stop = SetOnDrop(&stop);
        let flooding = TensorPool::open(name).unwrap();
        let until = Instant::now() + Duration::from_secs(1);
        super::reader::works_quickly(until, || super::reader::works(&pool(4)));
        drop(flooding);
    });
    let _ = Tensor::from_descriptor(&descriptor(UID, 0, 0));
}
