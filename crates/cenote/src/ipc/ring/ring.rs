//! The ring of a publisher: one writer, any number of readers in other processes, no lock.
//!
//! ```text
//!   | HEAD … | WAITING  CLOSED … |  entry 0  |  entry 1  | …       words in a sealed memfd
//!                                  END BEGIN LEN payload …
//! ```
//!
//! **Actors.** The publisher writes the ring. Subscribers and observers read it; they map it read-only.
//!
//! **Entries.** The message with sequence `s` is in entry `s mod entries`. The number of entries is a power of two, and all
//! arithmetic wraps. Each entry is a sequence lock with two counters (Lamport, "Concurrent Reading and Writing", CACM
//! 1977; Boehm, "Can Seqlocks Get Along With Programming Language Memory Models?", MSPC 2012). BEGIN is the sequence of
//! the message that is being written, or was written last. END is the sequence of the message that is complete.
//!
//! **Steps.**
//!
//! ```text
//!   publisher                            reader
//!   W1  begin := s                       A1  end == s?               (acquire)
//!   W2  release fence                    A2  read the payload        (relaxed)
//!   W3  write the payload    (relaxed)   A3  acquire fence
//!   W4  end := s             (release)   A4  begin == s still?
//!   W5  SeqCst fence
//!   W6  head := s + 1        (release)
//! ```
//!
//! 1. A reader that does not find `s` at A1 has no message yet. It never waits for the publisher.
//! 2. A1 that reads the value of W4 sees the payload of W3.
//! 3. If A2 reads a word of a later message, A4 sees the W1 of that message, through W2 and A3. The reader discards
//!    what it read: the message is overwritten.
//! 4. A reader that leases the slot which the payload names repeats A4 after its lease (`ipc/lease/mod.rs`, R3). W1
//!    is the O1 of that protocol. If the ring keeps fewer messages than it has entries, retracting a message is.
//! 5. W5 is the T2 of `subscriber_row.rs`: it makes sure that a reader that goes to sleep is woken. W4 is a store and
//!    not an exchange, although an exchange would be a fence as well: an exchange waits for the stores before it, and
//!    meanwhile a reader that polls takes the cache line away.
//!
//! **Cache lines.** A reader that polls reads END. END, BEGIN, LEN and the first words of the payload are in the same
//! line, because fetching a line from another core costs more than everything else. The publisher writes that line last and
//! in one go. Otherwise a reader fetches it half written, and the publisher must fetch it back.
//!
//! Words of later lines are written only if they differ from what the entry has, so readers keep their copies. Without this, the rows
//! `hand-off/round trip, cenote, Image` of `compare` take 5 % longer on near cores and 20 % on far ones. A reader that sees
//! W4 also sees words that an earlier W3 wrote.
//!
//! **Limits.** [`RingShape::MAX_DEPTH`] messages of [`RingShape::MAX_PAYLOAD`] words.

use std::iter::zip;

use crate::ipc::ring::orderings::Orderings;
use crate::sync::{AtomicU64, Ordering, fence, fetch_to_write};

/// The sequence of the next message. A new reader starts from it.
const HEAD: usize = 0;
/// Non-zero: the publisher waits for subscribers, and must be woken when one advances.
const WAITING: usize = 2 * LINE;
/// Non-zero: no more messages will come.
const CLOSED: usize = 2 * LINE + 1;
/// The first entry. The words before it are on separate pairs of cache lines, because HEAD changes with every message
/// and readers also read the other two.
const ENTRIES: usize = 4 * LINE;

/// The words of an entry.
const END: usize = 0;
const BEGIN: usize = 1;
const LEN: usize = 2;
const PAYLOAD: usize = 3;

/// Words in a cache line. Processors fetch lines in pairs. A loom model has fewer words.
const LINE: usize = if cfg!(all(test, loom)) { PAYLOAD } else { 8 };

/// Words of the payload that are in the first line of their entry.
const FIRST: usize = LINE - PAYLOAD;

/// The size of a ring. Both sides have agreed on it before either reads or writes the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RingShape {
    /// A power of two.
    entries: u64,
    /// The words of an entry: a multiple of two cache lines.
    stride: usize,
    /// How many messages the ring keeps: at most one for each entry.
    pub(crate) depth: u64,
}

impl RingShape {
    /// The most messages that a ring keeps.
    pub(crate) const MAX_DEPTH: usize = 1 << 16;
    /// The most words of one message: 64 KiB, rounded up to whole pairs of cache lines. Rounded, so that the
    /// [`payload`](RingShape::payload) of the largest ring is allowed itself.
    pub(crate) const MAX_PAYLOAD: usize =
        (1_usize << 13).next_multiple_of(2 * LINE) + 2 * LINE - PAYLOAD;

    /// A ring for `depth` messages of up to `payload` words. `None` if either is outside its limits.
    #[inline]
    pub(crate) fn new(depth: usize, payload: usize) -> Option<RingShape> {
        if !(1..=Self::MAX_DEPTH).contains(&depth) || payload > Self::MAX_PAYLOAD {
            return None;
        }
        let stride = (PAYLOAD + payload).next_multiple_of(2 * LINE);
        Some(RingShape { entries: depth.next_power_of_two() as u64, stride, depth: depth as u64 })
    }

    /// The words of the whole ring.
    pub(crate) fn words(&self) -> usize {
        // No overflow: both factors are limited.
        ENTRIES + small(self.entries) * self.stride
    }

    /// The most words of one message.
    #[inline]
    pub(crate) fn payload(&self) -> usize {
        self.stride - PAYLOAD
    }

    /// The number of entries.
    #[inline]
    pub(crate) fn entries(&self) -> usize {
        small(self.entries)
    }

    /// The entry of message `sequence`, below [`entries`](RingShape::entries).
    #[inline]
    pub(crate) fn index(&self, sequence: u64) -> usize {
        small(sequence & (self.entries - 1))
    }

    #[inline]
    fn entry<'a>(&self, words: &'a [AtomicU64], sequence: u64) -> &'a [AtomicU64] {
        let start = ENTRIES + self.index(sequence) * self.stride;
        &words[start..start + self.stride]
    }
}

/// Converts a number that is below the limits of a ring.
#[inline]
fn small(number: u64) -> usize {
    usize::try_from(number).unwrap_or_default()
}

/// The publisher's access to its ring. The caller makes sure that only one thread writes at a time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RingWriter<'a> {
    words: &'a [AtomicU64],
    shape: RingShape,
}

impl<'a> RingWriter<'a> {
    /// A writer over the words of a ring, at least [`RingShape::words`] of them.
    #[inline]
    pub(crate) fn new(words: &'a [AtomicU64], shape: RingShape) -> Self {
        debug_assert!(words.len() >= shape.words());
        RingWriter { words, shape }
    }

    /// Initializes a ring whose first message will be `first`.
    pub(crate) fn start(&self, first: u64) {
        for sequence in 0..self.shape.entries {
            let older = first.wrapping_add(sequence).wrapping_sub(self.shape.entries);
            let entry = self.shape.entry(self.words, older);
            entry[BEGIN].store(older, Ordering::Relaxed);
            entry[END].store(older, Ordering::Relaxed);
        }
        self.words[HEAD].store(first, Ordering::Release);
    }

    /// Retracts the oldest message before `sequence` is published, if the ring keeps fewer messages than it has entries.
    /// Otherwise publishing overwrites it.
    #[inline]
    pub(crate) fn retract_oldest(&self, sequence: u64) {
        if self.shape.depth < self.shape.entries {
            self.retract(sequence.wrapping_sub(self.shape.depth));
        }
    }

    /// Retracts message `sequence`: a reader that reads it from now on finds it overwritten.
    pub(crate) fn retract(&self, sequence: u64) {
        let next = sequence.wrapping_add(self.shape.entries);
        self.shape.entry(self.words, sequence)[BEGIN].store(next, Ordering::Relaxed);
    }

    /// Requests the line in which message `sequence` begins, while the message is still being encoded: readers have it.
    /// Without it, `hand-off/one way, 1080p` takes 22 % longer on near cores, `hand-off/round trip, 64 B` of an image 5 %
    /// on far ones.
    #[inline(always)]
    pub(crate) fn prefetch(&self, sequence: u64) {
        fetch_to_write(self.shape.entry(self.words, sequence).as_ptr().cast());
    }

    /// Publishes message `sequence`, the one after the last. Its payload is the first `len` of `words`. T3 of
    /// `subscriber_row.rs` must follow.
    #[inline(always)]
    pub(crate) fn publish<O: Orderings>(&self, sequence: u64, words: &[u64], len: usize) {
        let entry = self.shape.entry(self.words, sequence);
        let (head, payload) = entry.split_first_chunk::<PAYLOAD>().expect("an entry has two lines");
        debug_assert!(len <= words.len().min(payload.len()), "a payload that is too long");
        head[BEGIN].store(sequence, Ordering::Relaxed);
        if O::WRITE_FENCE {
            fence(Ordering::Release);
        }
        // First the words beyond the line that readers poll, where they differ. Then that line, in one go.
        let store = |(to, from): (&AtomicU64, &u64)| to.store(*from, Ordering::Relaxed);
        let differs = |(to, from): &(&AtomicU64, &u64)| to.load(Ordering::Relaxed) != **from;
        let (first, rest) = words[..len].split_at(len.min(FIRST));
        zip(&payload[FIRST..], rest).filter(differs).for_each(store);
        zip(payload, first).for_each(store);
        head[LEN].store(len as u64, Ordering::Relaxed);
        head[END].store(sequence, O::PUBLISH);
        if O::WAKE_FENCE {
            fence(Ordering::SeqCst);
        }
        self.words[HEAD].store(sequence.wrapping_add(1), Ordering::Release);
    }

    /// Declares that no more messages will come: T1 and T2 of `subscriber_row.rs`. T3 must follow.
    pub(crate) fn close(&self) {
        self.words[CLOSED].store(1, Ordering::Release);
        fence(Ordering::SeqCst);
    }

    /// S1 and S2 of a publisher that waits for subscribers to advance. S3 must follow: look how far they are, then
    /// sleep.
    pub(crate) fn wait<O: Orderings>(&self) {
        self.words[WAITING].store(1, Ordering::Relaxed);
        if O::WAIT_FENCE {
            fence(Ordering::SeqCst);
        }
    }

    /// The publisher does not wait any more.
    pub(crate) fn stop_waiting(&self) {
        self.words[WAITING].store(0, Ordering::Relaxed);
    }
}

/// What a reader finds at its cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// The message; its payload has this many words.
    Message(usize),
    /// The message was not sent yet.
    NotYet,
    /// The message was overwritten or retracted.
    Overwritten,
}

/// A reader's access to a ring. Every word is input from another process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RingReader<'a> {
    words: &'a [AtomicU64],
    shape: RingShape,
}

impl<'a> RingReader<'a> {
    /// A reader over the words of a ring, at least [`RingShape::words`] of them.
    #[inline]
    pub(crate) fn new(words: &'a [AtomicU64], shape: RingShape) -> Self {
        debug_assert!(words.len() >= shape.words());
        RingReader { words, shape }
    }

    /// The sequence of the next message.
    pub(crate) fn head(&self) -> u64 {
        self.words[HEAD].load(Ordering::Acquire)
    }

    /// The oldest message that the ring can still have, if the publisher's first message was `first`.
    pub(crate) fn oldest(&self, first: u64) -> u64 {
        let head = self.head();
        let kept = head.wrapping_sub(first).min(self.shape.depth);
        head.wrapping_sub(kept)
    }

    /// Whether no more messages will come.
    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.words[CLOSED].load(Ordering::Acquire) != 0
    }

    /// T3 of a subscriber: whether the publisher waits for subscribers, and must be woken.
    #[inline]
    pub(crate) fn publisher_waits(&self) -> bool {
        self.words[WAITING].load(Ordering::Relaxed) != 0
    }

    /// The entry of message `sequence`, whether or not the message is there.
    #[inline(always)]
    pub(crate) fn entry(&self, sequence: u64) -> RingEntry<'a> {
        let words = self.shape.entry(self.words, sequence);
        let (head, payload) = words.split_first_chunk().expect("an entry has two lines");
        RingEntry { head, payload, sequence }
    }
}

/// The entry of one message, for a reader.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RingEntry<'a> {
    head: &'a [AtomicU64; PAYLOAD],
    payload: &'a [AtomicU64],
    sequence: u64,
}

impl RingEntry<'_> {
    /// Copies the message into `payload`, as much of it as fits. If the result is not a message, the content of
    /// `payload` is unspecified.
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
        if self.is_unchanged() { Found::Message(len) } else { Found::Overwritten }
    }

    /// A4: whether the message, which was found before, is still there. The caller orders it by a fence.
    #[inline(always)]
    pub(crate) fn is_unchanged(&self) -> bool {
        self.head[BEGIN].load(Ordering::Relaxed) == self.sequence
    }

    /// A1: what the entry has, without its payload. A message has length 0 here, and may be overwritten meanwhile.
    #[inline(always)]
    pub(crate) fn peek(&self) -> Found {
        let end = self.head[END].load(Ordering::Acquire);
        match end.wrapping_sub(self.sequence).cast_signed() {
            0 => Found::Message(0),
            ..0 => Found::NotYet,
            1.. => Found::Overwritten,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::ipc::ring::orderings::Shipped;

    fn ring(shape: RingShape, first: u64) -> Vec<AtomicU64> {
        let words: Vec<AtomicU64> = (0..shape.words()).map(|_| AtomicU64::new(0)).collect();
        RingWriter::new(&words, shape).start(first);
        words
    }

    fn read(words: &[AtomicU64], shape: RingShape, sequence: u64) -> Option<u64> {
        let mut payload = [0; 1];
        match RingReader::new(words, shape).entry(sequence).read::<Shipped>(&mut payload) {
            Found::Message(1) => Some(payload[0]),
            _ => None,
        }
    }

    #[test]
    fn a_ring_keeps_as_many_messages_as_its_depth() {
        for depth in [1, 2, 3, 10, 16] {
            let shape = RingShape::new(depth, 1).unwrap();
            for first in [0, 7, u64::MAX / 2 - 5, u64::MAX - 5] {
                let words = ring(shape, first);
                let (writer, reader) =
                    (RingWriter::new(&words, shape), RingReader::new(&words, shape));
                for n in 0..40_u64 {
                    let sequence = first.wrapping_add(n);
                    assert_eq!(reader.entry(sequence).peek(), Found::NotYet, "{depth} {first} {n}");
                    writer.retract_oldest(sequence);
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
                    assert!(n < shape.depth || found == Found::Overwritten);
                    assert_eq!(reader.oldest(first), sequence.wrapping_add(1).wrapping_sub(kept));
                }
            }
        }
    }

    #[test]
    fn an_entry_that_is_being_written_has_no_message_yet() {
        let shape = RingShape::new(4, 1).unwrap();
        let words = ring(shape, 0);
        shape.entry(&words, 0)[BEGIN].store(0, Ordering::Relaxed);
        assert_eq!(RingReader::new(&words, shape).entry(0).peek(), Found::NotYet);
        assert_eq!(read(&words, shape, 0), None);
    }

    #[test]
    fn a_false_length_is_cut() {
        let shape = RingShape::new(1, 3).unwrap();
        let words = ring(shape, 0);
        RingWriter::new(&words, shape).publish::<Shipped>(0, &[1, 2, 3], 3);
        shape.entry(&words, 0)[LEN].store(u64::MAX, Ordering::Relaxed);
        let mut payload = [0; 100];
        let found = RingReader::new(&words, shape).entry(0).read::<Shipped>(&mut payload);
        assert_eq!(found, Found::Message(shape.payload()));
        assert_eq!(payload[..3], [1, 2, 3]);
    }

    #[test]
    fn payloads_of_every_length_are_read_back() {
        let shape = RingShape::new(2, 1).unwrap();
        let words = ring(shape, 0);
        let (writer, reader) = (RingWriter::new(&words, shape), RingReader::new(&words, shape));
        let lens = (0..=shape.payload()).flat_map(|len| [len, shape.payload() - len]);
        for (sequence, len) in (0..).zip(lens) {
            // A publisher reuses its buffer: words beyond the payload are of an earlier message.
            let message: Vec<u64> =
                (0..shape.payload() as u64).map(|n| 100 * sequence + n).collect();
            writer.publish::<Shipped>(sequence, &message, len);
            let mut payload = vec![7; shape.payload()];
            let found = reader.entry(sequence).read::<Shipped>(&mut payload);
            assert_eq!((found, &payload[..len]), (Found::Message(len), &message[..len]));
        }
    }

    #[test]
    fn shapes_outside_the_limits_are_refused() {
        assert_eq!(RingShape::new(0, 1), None);
        assert_eq!(RingShape::new(RingShape::MAX_DEPTH + 1, 1), None);
        assert_eq!(RingShape::new(1, RingShape::MAX_PAYLOAD + 1), None);
        let largest = RingShape::new(RingShape::MAX_DEPTH, RingShape::MAX_PAYLOAD).unwrap();
        assert_eq!(largest.payload(), RingShape::MAX_PAYLOAD);
    }
}

/// The ring in loom. `ipc/lease/loom_tests.rs` says how to run it and what it means.
#[cfg(all(test, loom))]
mod loom_tests {
    use loom::sync::Arc;
    use loom::thread;

    use super::*;
    use crate::ipc::ring::orderings::Shipped;

    /// Two messages through a ring of one entry. A reader gets a whole message or none.
    fn torn<O: Orderings + 'static>() {
        loom::model(|| {
            // The two words of the payload are in two lines.
            let shape = RingShape { entries: 1, stride: 2 * LINE, depth: 1 };
            let words: Arc<Vec<AtomicU64>> =
                Arc::new((0..shape.words()).map(|_| AtomicU64::new(0)).collect());
            RingWriter::new(&words, shape).start(0);
            let theirs = words.clone();
            let reader = thread::spawn(move || {
                let reader = RingReader::new(&theirs, shape);
                for sequence in 0..2 {
                    let mut payload = [9, 9];
                    if reader.entry(sequence).read::<O>(&mut payload) == Found::Message(2) {
                        assert_eq!(payload, [sequence, sequence], "torn");
                    }
                }
            });
            for sequence in 0..2 {
                RingWriter::new(&words, shape).publish::<O>(sequence, &[sequence; 2], 2);
            }
            reader.join().unwrap();
            assert_eq!(RingReader::new(&words, shape).oldest(0), 1);
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
