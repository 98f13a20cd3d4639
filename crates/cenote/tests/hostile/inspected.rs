//! Publishers and owners that send false answers to an inspecting process.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use cenote::{Observer, Topic, pools, topics};
use rustix::fs::SealFlags;

use super::Test;
use crate::support::raw::pool::{Pretender, packet};
use crate::support::raw::topic::{CLOSED, HEAD, Liar, ROW_SEALS, SEALS, pretend, signature, u64s};
use crate::support::{Random, eventually, memfd, unique};

pub(crate) const TESTS: &[Test] = &[
    ("an_inspector_accepts_plausible_values", truth),
    ("a_peer_that_sent_nonsense_is_read_once_it_is_valid", sense),
    ("an_inspector_rejects_inconsistent_rings", rings),
    ("an_inspector_of_a_constantly_changing_ring_sees_only_that_it_changes", restless),
    ("an_inspector_gets_an_error_for_invalid_tensors", tensors),
    ("invalid_accounts_are_rejected", accounts),
];

const UID: u64 = 0xbad0_0000_0000_0003;
const TOLD: u32 = 12;
const ACCOUNT: u32 = 15;

/// What a publisher tells whoever asks.
fn told(liar: &Liar, signature: &[u8]) -> Vec<u8> {
    let said = &liar.said;
    let words = [said.first, said.depth, said.payload, said.waits].map(u64::to_ne_bytes);
    // How often it copied and how much, for each reason that there is.
    let copies = [0; 6 * 2 * size_of::<u64>()];
    [&packet(TOLD, 0, 0)[..], &7_u64.to_ne_bytes(), signature, &words.concat(), &copies].concat()
}

/// Does something, while a liar gives everybody who asks the same answer.
fn while_lying<R>(
    pretender: &Pretender,
    answer: &[u8],
    fd: Option<&OwnedFd>,
    act: impl FnOnce() -> R,
) -> R {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                if pretender.waits_for(std::time::Duration::from_millis(5)) {
                    let fds: Vec<_> = fd.iter().map(|fd| fd.as_fd()).collect();
                    let _ = pretender.greeted().send(answer, &fds);
                }
            }
        });
        let result = act();
        done.store(true, Ordering::Relaxed);
        result
    })
}

/// An observer that has met a publisher which answers thus.
fn observer(name: &str, pretender: &Pretender, answer: &[u8], liar: &Liar) -> Observer {
    while_lying(pretender, answer, Some(&liar.fds[0]), || {
        let mut observer = Observer::new(name).unwrap();
        eventually("it is met", || {
            assert!(observer.look().unwrap().is_none());
            observer.publishers() == 1
        });
        observer
    })
}

fn truth() {
    let name = unique();
    let (pretender, liar) = (pretend(&name, UID), Liar::honest(UID));
    let mut observer = observer(&name, &pretender, &told(&liar, &u64s()), &liar);
    (0..3).for_each(|number| liar.publish(number, &[number + 40]));
    drop(pretender);
    for number in 0..3 {
        let seen = observer.look().unwrap().unwrap();
        assert_eq!((seen.sequence, seen.publisher, seen.nbytes), (number, UID, 8));
    }
    liar.write(CLOSED, 1);
    assert!(observer.newest().unwrap().is_none());
    assert_eq!(observer.publishers(), 0, "it said that nothing more will come");
}

fn sense() {
    let name = unique();
    let (pretender, liar) = (pretend(&name, UID), Liar::honest(UID));
    let (told, ring) = (told(&liar, &u64s()), Some(&liar.fds[0]));
    let mut observer = while_lying(&pretender, &[], None, || Observer::new(&name).unwrap());
    assert_eq!(observer.publishers(), 0);
    while_lying(&pretender, &told, ring, || {
        eventually("it is asked again", || {
            observer.look().unwrap();
            observer.publishers() == 1
        });
    });
}

fn rings() {
    let spoils: &[fn(&mut Liar)] = &[
        |l| l.said.depth = 0,
        |l| l.said.depth = 9,
        |l| l.said.depth = u64::MAX,
        |l| l.said.payload = 1 << 13,
        |l| l.said.payload = u64::MAX,
        |l| l.fds.clear(),
        |l| l.fds[0] = memfd(768, ROW_SEALS),
        |l| l.fds[0] = memfd(768, SealFlags::FUTURE_WRITE),
        |l| l.fds[0] = memfd(767, SEALS),
        |l| l.fds[0] = memfd(0, SEALS),
        |l| l.fds[0] = std::fs::File::open("/dev/zero").unwrap().into(),
        |l| l.fds[0] = std::io::pipe().unwrap().0.into(),
    ];
    for (number, spoil) in spoils.iter().enumerate() {
        let name = unique();
        let honest: Topic<u64> = Topic::new(&name).unwrap();
        honest.advertise().unwrap();
        let (pretender, mut liar) = (pretend(&name, UID), Liar::honest(UID));
        spoil(&mut liar);
        let answer = told(&liar, &u64s());
        while_lying(&pretender, &answer, liar.fds.first(), || {
            let mut observer = Observer::new(&name).unwrap();
            assert_eq!(observer.publishers(), 1, "lie {number} was believed");
            honest.send(&5).unwrap();
            assert_eq!(observer.look().unwrap().unwrap().nbytes, 8);
            // What it says of itself can be shown, whatever it is.
            assert_eq!(
                topics().unwrap().iter().find(|it| it.name == name).unwrap().publishers.len(),
                2
            );
        });
    }
}

fn restless() {
    let name = unique();
    let (pretender, liar) = (pretend(&name, UID), Liar::honest(UID));
    let mut observer = observer(&name, &pretender, &told(&liar, &u64s()), &liar);
    drop(pretender);
    let mut random = Random(5);
    let words = liar.said.words();
    for _ in 0..20_000 {
        let value = [random.next(), random.next() % 8, u64::MAX][random.below(3)];
        liar.write(random.below(words), value);
        if random.below(4) == 0 {
            liar.write(HEAD, value);
        }
        if let Some(seen) = observer.look().unwrap() {
            assert!(seen.nbytes <= 8);
            observer.content(&seen).unwrap();
        }
        if let Some(seen) = observer.newest().unwrap() {
            assert!(seen.nbytes <= 8);
        }
    }
}

fn tensors() {
    let name = unique();
    let (pretender, liar) = (pretend(&name, UID), Liar::honest(UID));
    let answer = told(&liar, &signature(2, 0, 0, "Image"));
    let mut observer = observer(&name, &pretender, &answer, &liar);
    drop(pretender);
    let mut random = Random(6);
    for number in 0..5_000 {
        // Of u8, with two dimensions, of a pool that is not there; and then something wrong with it.
        let codes = 2 << 32 | 8 << 40 | 1 << 56;
        let mut words = vec![2, codes, random.next(), 0, 1 << 32, 4, 4, 0, 0, 0];
        let at = random.below(words.len());
        words[at] = [random.next(), 0, u64::MAX][random.below(3)];
        words.truncate(random.below(words.len() + 1));
        liar.publish(number, &words);
        if let Ok(Some(seen)) = observer.look() {
            assert!(observer.content(&seen).map_or(true, |content| content.is_none()));
        }
    }
}

fn accounts() {
    let pretender = Pretender::new(UID);
    let mut random = Random(7);
    for len in [0, 1, 23, 24, 100, 400, 500, 4000, 30_000] {
        for kind in [ACCOUNT, TOLD, u32::MAX] {
            let garbage = std::iter::repeat_with(|| random.next().to_le_bytes()[0]);
            let answer: Vec<u8> = packet(kind, 0, 0).into_iter().chain(garbage).take(len).collect();
            let found = while_lying(&pretender, &answer, None, || pools().unwrap());
            let found = found.into_iter().find(|pool| pool.uid == UID).unwrap();
            let can_be = kind == ACCOUNT && len >= 400;
            assert!(can_be || found.account.is_none(), "{kind} {len}");
            for process in found.account.iter().flat_map(|account| &account.processes) {
                assert!(!process.program.chars().any(char::is_control));
            }
        }
    }
}
