//! The ring of a publisher: one writer, any number of readers in other processes, no lock.
//!
//! ```text
//!   | HEAD … | WAITING  CLOSED … |  entry 0  |  entry 1  | …       words in a sealed memfd
//!                                  END BEGIN LEN payload …
//! ```
//!
//! Each entry is a sequence lock with two counters (Lamport, "Concurrent Reading and Writing", CACM 1977;
//! Boehm, "Can Seqlocks Get Along With Programming Language Memory Models?", MSPC 2012). BEGIN names the
//! message that is or was being written, END the one that is complete; a reader that does not find its
//! own at END has "nothing yet" and never waits. The message with sequence `s` is in entry `s mod
//! entries`, the number of entries is a power of two, and all arithmetic wraps.
//!
//! ```text
//!   writer                               reader
//!   W1  begin := s                       A1  end == s?               (acquire)
//!   W2  release fence                    A2  read the payload        (relaxed)
//!   W3  write the payload    (relaxed)   A3  acquire fence
//!   W4  end := s             (release)   A4  begin == s still?
//!   W5  SeqCst fence
//!   W6  head := s + 1        (release)
//! ```
//!
//! Readers spin on END, and what they need most of the time is in the same cache line: one that comes from
//! another core costs more than all the rest. It is written in one go, lest it be taken away half
//! written and have to come back.
//!
//! Words beyond that line are left as they are where they would not change, for readers have them. (Whoever sees W4 sees all
//! that was written before it, by an earlier W3, too.)
//!
//! A1 that reads W4 sees W3. A2 that reads any word of a later W3 has A4 see the W1 before it, through
//! W2 and A3, and throws the payload away. A reader that leases a slot which the payload names makes
//! the check of A4 once more, after its lease (`ipc/lease/reader.rs`, R3): W1 is the O1 of that protocol, or what
//! takes the message out where fewer are kept than there are entries.
//! W5 is for those who sleep: the T2 of `subscriber_words.rs`. W4 is no exchange, though that would be the fence as well:
//! it would wait for the stores before it, and the line be gone again to a reader that spins.

use std::iter::zip;

use crate::sync::{AtomicU64, Ordering, fence};

/// The sequence of the next message. Readers need it to find where to begin.
const HEAD: usize = 0;
/// Non-zero: the publisher waits for readers, and wants to be woken when one advances.
const WAITING: usize = 2 * LINE;
/// Non-zero: nothing more will come.
const CLOSED: usize = 2 * LINE + 1;
/// Where the entries start. What seldom changes has cache lines of its own, for readers look at it.
const ENTRIES: usize = 4 * LINE;

/// The words of an entry.
const END: usize = 0;
const BEGIN: usize = 1;
const LEN: usize = 2;
const PAYLOAD: usize = 3;

/// Words in a cache line; processors fetch them by twos. A model has fewer.
const LINE: usize = if cfg!(all(test, loom)) { PAYLOAD } else { 8 };

/// Words of a payload that are in the first line of its entry.
const FIRST: usize = LINE - PAYLOAD;

/// How large a ring is: known to both sides before either touches it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    /// A power of two.
    entries: u64,
    /// Of each entry, a multiple of two cache lines.
    stride: usize,
    /// How many messages are kept, at most one for each entry.
    pub(crate) depth: u64,
}

impl Shape {
    /// The most messages that a ring keeps.
    pub(crate) const MAX_DEPTH: usize = 1 << 16;
    /// The most words of one message: 64 KiB, and what is left of the last cache lines, so that the
    /// largest ring is what its own [`payload`](Shape::payload) says.
    pub(crate) const MAX_PAYLOAD: usize =
        (1_usize << 13).next_multiple_of(2 * LINE) + 2 * LINE - PAYLOAD;

    /// A ring for `depth` messages of up to `payload` words. `None` if that is out of all bounds.
    #[inline]
    pub(crate) fn new(depth: usize, payload: usize) -> Option<Shape> {
        if !(1..=Self::MAX_DEPTH).contains(&depth) || payload > Self::MAX_PAYLOAD {
            return None;
        }
        let stride = (PAYLOAD + payload).next_multiple_of(2 * LINE);
        Some(Shape { entries: depth.next_power_of_two() as u64, stride, depth: depth as u64 })
    }

    /// The words that the whole ring needs.
    pub(crate) fn words(&self) -> usize {
        // Both factors are limited.
        ENTRIES + small(self.entries) * self.stride
    }

    /// The most words of one message.
    #[inline]
    pub(crate) fn payload(&self) -> usize {
        self.stride - PAYLOAD
    }

    /// How many places there are to keep something for each message that is kept.
    #[inline]
    pub(crate) fn places(&self) -> usize {
        small(self.entries)
    }

    /// Which of them message `sequence` has.
    #[inline]
    pub(crate) fn place(&self, sequence: u64) -> usize {
        small(sequence & (self.entries - 1))
    }

    #[inline]
    fn entry<'a>(&self, words: &'a [AtomicU64], sequence: u64) -> &'a [AtomicU64] {
        let start = ENTRIES + self.place(sequence) * self.stride;
        &words[start..start + self.stride]
    }
}

/// Of numbers that are below the limits of a ring.
#[inline]
fn small(number: u64) -> usize {
    usize::try_from(number).unwrap_or_default()
}

/// The parts of the protocol that a model can take away to show that they are needed.
pub(crate) trait Orderings {
    /// W2.
    const WRITE_FENCE: bool = true;
    /// A3.
    const READ_FENCE: bool = true;
    /// W4.
    const PUBLISH: Ordering = Ordering::Release;
    /// W5.
    const WAKE_FENCE: bool = true;
    /// S2 of `subscriber_words.rs`, when a publisher sleeps.
    const WAIT_FENCE: bool = true;
}

/// The protocol with nothing taken away.
#[derive(Debug)]
pub(crate) struct Shipped;

impl Orderings for Shipped {}

/// The end that writes: the publisher's, one at a time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Writer<'a> {
    words: &'a [AtomicU64],
    shape: Shape,
}

impl<'a> Writer<'a> {
    /// Over the words of a ring, of which there must be [`Shape::words`].
    #[inline]
    pub(crate) fn new(words: &'a [AtomicU64], shape: Shape) -> Self {
        debug_assert!(words.len() >= shape.words());
        Writer { words, shape }
    }

    /// Makes a fresh ring, in which message `first` is the next.
    pub(crate) fn start(&self, first: u64) {
        for sequence in 0..self.shape.entries {
            let older = first.wrapping_add(sequence).wrapping_sub(self.shape.entries);
            let entry = self.shape.entry(self.words, older);
            entry[BEGIN].store(older, Ordering::Relaxed);
            entry[END].store(older, Ordering::Relaxed);
        }
        self.words[HEAD].store(first, Ordering::Release);
    }

    /// Takes out the message that is no longer kept when `sequence` is. If there is an entry for each that is, it is
    /// taken out by being overwritten.
    #[inline]
    pub(crate) fn make_way(&self, sequence: u64) {
        if self.shape.depth < self.shape.entries {
            self.retract(sequence.wrapping_sub(self.shape.depth));
        }
    }

    /// Takes message `sequence` out, so that no reader can begin to use it.
    pub(crate) fn retract(&self, sequence: u64) {
        let next = sequence.wrapping_add(self.shape.entries);
        self.shape.entry(self.words, sequence)[BEGIN].store(next, Ordering::Relaxed);
    }

    /// Publishes message `sequence`: that after the last one. Its payload are the first `len` of `words`; beyond them there
    /// may be anything. Look afterwards who sleeps.
    #[inline(always)]
    pub(crate) fn publish<O: Orderings>(&self, sequence: u64, words: &[u64], len: usize) {
        let entry = self.shape.entry(self.words, sequence);
        let (head, place) = entry.split_first_chunk::<PAYLOAD>().expect("an entry has two lines");
        debug_assert!(len <= words.len().min(place.len()), "a payload that is too long");
        head[BEGIN].store(sequence, Ordering::Relaxed);
        if O::WRITE_FENCE {
            fence(Ordering::Release);
        }
        // First what is beyond the line that readers spin on, unless it is there already, from an earlier message: then
        // readers still have that. Then the line, in one go.
        let store = |(to, from): (&AtomicU64, &u64)| to.store(*from, Ordering::Relaxed);
        let differs = |(to, from): &(&AtomicU64, &u64)| to.load(Ordering::Relaxed) != **from;
        let (first, rest) = words[..len].split_at(len.min(FIRST));
        zip(&place[FIRST..], rest).filter(differs).for_each(store);
        zip(place, first).for_each(store);
        head[LEN].store(len as u64, Ordering::Relaxed);
        head[END].store(sequence, O::PUBLISH);
        if O::WAKE_FENCE {
            fence(Ordering::SeqCst);
        }
        self.words[HEAD].store(sequence.wrapping_add(1), Ordering::Release);
    }

    /// Says that nothing more will come. Look afterwards who sleeps.
    pub(crate) fn close(&self) {
        self.words[CLOSED].store(1, Ordering::Release);
        fence(Ordering::SeqCst);
    }

    /// Asks readers for a sign when they advance. Look afterwards how far they are, before sleeping.
    pub(crate) fn wait<O: Orderings>(&self) {
        self.words[WAITING].store(1, Ordering::Relaxed);
        if O::WAIT_FENCE {
            fence(Ordering::SeqCst);
        }
    }

    /// Needs no sign any more.
    pub(crate) fn stop_waiting(&self) {
        self.words[WAITING].store(0, Ordering::Relaxed);
    }
}

/// What a reader finds where it looks for a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// The message; its payload has this many words.
    Message(usize),
    /// Nothing yet.
    Nothing,
    /// It was overwritten, or taken out.
    Passed,
}

/// An end that reads. Everything it sees is input from a stranger.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader<'a> {
    words: &'a [AtomicU64],
    shape: Shape,
}

impl<'a> Reader<'a> {
    /// Over the words of a ring, of which there must be [`Shape::words`].
    #[inline]
    pub(crate) fn new(words: &'a [AtomicU64], shape: Shape) -> Self {
        debug_assert!(words.len() >= shape.words());
        Reader { words, shape }
    }

    /// The sequence of the next message.
    pub(crate) fn head(&self) -> u64 {
        self.words[HEAD].load(Ordering::Acquire)
    }

    /// The oldest message that can still be there, of a publisher that began with `first`.
    pub(crate) fn oldest(&self, first: u64) -> u64 {
        let head = self.head();
        let kept = head.wrapping_sub(first).min(self.shape.depth);
        head.wrapping_sub(kept)
    }

    /// Whether nothing more will come.
    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.words[CLOSED].load(Ordering::Acquire) != 0
    }

    /// Whether the publisher wants to be woken.
    #[inline]
    pub(crate) fn is_waited_for(&self) -> bool {
        self.words[WAITING].load(Ordering::Relaxed) != 0
    }

    /// Where message `sequence` is, was, or will be.
    #[inline(always)]
    pub(crate) fn entry(&self, sequence: u64) -> Entry<'a> {
        let words = self.shape.entry(self.words, sequence);
        let (head, payload) = words.split_first_chunk().expect("an entry has two lines");
        Entry { head, payload, sequence }
    }
}

/// The entry of a message, as a reader sees it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry<'a> {
    head: &'a [AtomicU64; PAYLOAD],
    payload: &'a [AtomicU64],
    sequence: u64,
}

impl Entry<'_> {
    /// Copies the message to `payload`, as much of it as fits; beyond that there may be anything.
    #[inline(always)]
    pub(crate) fn read<O: Orderings>(&self, payload: &mut [u64]) -> Found {
        let found = self.peek();
        if found != Found::Message(0) {
            return found;
        }
        let len = usize::try_from(self.head[LEN].load(Ordering::Relaxed)).unwrap_or(usize::MAX);
        let len = len.min(payload.len()).min(self.payload.len());
        let load = |(to, from): (&mut u64, &AtomicU64)| *to = from.load(Ordering::Relaxed);
        zip(&mut payload[..len], self.payload).for_each(load);
        if O::READ_FENCE {
            fence(Ordering::Acquire);
        }
        if self.is_there() { Found::Message(len) } else { Found::Passed }
    }

    /// Whether the message, which was seen, is still there. Ordered by a fence of the caller's.
    #[inline(always)]
    pub(crate) fn is_there(&self) -> bool {
        self.head[BEGIN].load(Ordering::Relaxed) == self.sequence
    }

    /// Whether there is a message, without looking at it.
    #[inline(always)]
    pub(crate) fn peek(&self) -> Found {
        end(self.head[END].load(Ordering::Acquire), self.sequence)
    }
}

/// What the END of an entry says about message `sequence`. (It may still be taken out meanwhile.)
#[inline]
fn end(found: u64, sequence: u64) -> Found {
    match found.wrapping_sub(sequence).cast_signed() {
        0 => Found::Message(0),
        ..0 => Found::Nothing,
        _ => Found::Passed,
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn ring(shape: Shape, first: u64) -> Vec<AtomicU64> {
        let words: Vec<AtomicU64> = (0..shape.words()).map(|_| AtomicU64::new(0)).collect();
        Writer::new(&words, shape).start(first);
        words
    }

    fn read(words: &[AtomicU64], shape: Shape, sequence: u64) -> Option<u64> {
        let mut payload = [0; 1];
        match Reader::new(words, shape).entry(sequence).read::<Shipped>(&mut payload) {
            Found::Message(1) => Some(payload[0]),
            _ => None,
        }
    }

    #[test]
    fn as_many_messages_are_kept_as_were_asked_for() {
        for depth in [1, 2, 3, 10, 16] {
            let shape = Shape::new(depth, 1).unwrap();
            for first in [0, 7, u64::MAX / 2 - 5, u64::MAX - 5] {
                let words = ring(shape, first);
                let (writer, reader) = (Writer::new(&words, shape), Reader::new(&words, shape));
                for n in 0..40_u64 {
                    let sequence = first.wrapping_add(n);
                    assert_eq!(
                        reader.entry(sequence).peek(),
                        Found::Nothing,
                        "{depth} {first} {n}"
                    );
                    writer.make_way(sequence);
                    writer.publish::<Shipped>(sequence, &[n], 1);
                    let kept = (n + 1).min(shape.depth);
                    for back in 0..kept {
                        assert_eq!(
                            read(&words, shape, sequence.wrapping_sub(back)),
                            Some(n - back)
                        );
                    }
                    let before = sequence.wrapping_sub(kept);
                    let found = reader.entry(before).read::<Shipped>(&mut [0]);
                    assert!(n < shape.depth || found == Found::Passed);
                    assert_eq!(reader.oldest(first), sequence.wrapping_add(1).wrapping_sub(kept));
                }
            }
        }
    }

    #[test]
    fn an_entry_that_is_being_written_is_nothing_yet() {
        let shape = Shape::new(4, 1).unwrap();
        let words = ring(shape, 0);
        shape.entry(&words, 0)[BEGIN].store(0, Ordering::Relaxed);
        assert_eq!(Reader::new(&words, shape).entry(0).peek(), Found::Nothing);
        assert_eq!(read(&words, shape, 0), None);
    }

    #[test]
    fn lengths_that_lie_are_cut() {
        let shape = Shape::new(1, 3).unwrap();
        let words = ring(shape, 0);
        Writer::new(&words, shape).publish::<Shipped>(0, &[1, 2, 3], 3);
        shape.entry(&words, 0)[LEN].store(u64::MAX, Ordering::Relaxed);
        let mut payload = [0; 100];
        let found = Reader::new(&words, shape).entry(0).read::<Shipped>(&mut payload);
        assert_eq!(found, Found::Message(shape.payload()));
        assert_eq!(payload[..3], [1, 2, 3]);
    }

    #[test]
    fn payloads_of_every_length_follow_each_other() {
        let shape = Shape::new(2, 1).unwrap();
        let words = ring(shape, 0);
        let (writer, reader) = (Writer::new(&words, shape), Reader::new(&words, shape));
        let lens = (0..=shape.payload()).flat_map(|len| [len, shape.payload() - len]);
        for (sequence, len) in (0..).zip(lens) {
            // As publishers do it: beyond the payload is what was there before.
            let message: Vec<u64> =
                (0..shape.payload() as u64).map(|n| 100 * sequence + n).collect();
            writer.publish::<Shipped>(sequence, &message, len);
            let mut payload = vec![7; shape.payload()];
            let found = reader.entry(sequence).read::<Shipped>(&mut payload);
            assert_eq!((found, &payload[..len]), (Found::Message(len), &message[..len]));
        }
    }

    #[test]
    fn senseless_shapes_are_refused() {
        assert_eq!(Shape::new(0, 1), None);
        assert_eq!(Shape::new(Shape::MAX_DEPTH + 1, 1), None);
        assert_eq!(Shape::new(1, Shape::MAX_PAYLOAD + 1), None);
        let largest = Shape::new(Shape::MAX_DEPTH, Shape::MAX_PAYLOAD).unwrap();
        assert_eq!(largest.payload(), Shape::MAX_PAYLOAD);
    }
}

/// The ring in loom: see `ipc/lease/loom_tests.rs` for how to run it and what it means.
#[cfg(all(test, loom))]
mod loom_tests {
    use loom::sync::Arc;
    use loom::thread;

    use super::*;

    /// Two messages through a ring of one entry; a reader that reads anything reads it whole.
    fn torn<O: Orderings + 'static>() {
        loom::model(|| {
            // Its two words are in two lines.
            let shape = Shape { entries: 1, stride: 2 * LINE, depth: 1 };
            let words: Arc<Vec<AtomicU64>> =
                Arc::new((0..shape.words()).map(|_| AtomicU64::new(0)).collect());
            Writer::new(&words, shape).start(0);
            let theirs = words.clone();
            let reader = thread::spawn(move || {
                let reader = Reader::new(&theirs, shape);
                for sequence in 0..2 {
                    let mut payload = [9, 9];
                    if reader.entry(sequence).read::<O>(&mut payload) == Found::Message(2) {
                        assert_eq!(payload, [sequence, sequence], "torn");
                    }
                }
            });
            for sequence in 0..2 {
                Writer::new(&words, shape).publish::<O>(sequence, &[sequence; 2], 2);
            }
            reader.join().unwrap();
            assert_eq!(Reader::new(&words, shape).oldest(0), 1);
        });
    }

    #[test]
    fn loom_messages_are_whole() {
        torn::<Shipped>();
    }

    #[test]
    #[should_panic(expected = "torn")]
    fn loom_needs_the_writers_fence() {
        struct Weak;
        impl Orderings for Weak {
            const WRITE_FENCE: bool = false;
        }
        torn::<Weak>();
    }

    #[test]
    #[should_panic(expected = "torn")]
    fn loom_needs_the_readers_fence() {
        struct Weak;
        impl Orderings for Weak {
            const READ_FENCE: bool = false;
        }
        torn::<Weak>();
    }

    #[test]
    #[should_panic(expected = "torn")]
    fn loom_needs_publishing_to_release() {
        struct Weak;
        impl Orderings for Weak {
            const PUBLISH: Ordering = Ordering::Relaxed;
        }
        torn::<Weak>();
    }
}
