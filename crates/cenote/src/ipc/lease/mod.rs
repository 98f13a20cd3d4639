//! The lease protocol: how a reader keeps a slot, and how its owner finds out that it may reuse one.
//!
//! The protocol is hazard pointers (Michael, "Hazard Pointers: Safe Memory Reclamation for Lock-Free Objects", IEEE
//! TPDS 15(6), 2004), with counts instead of pointers, and across processes.
//!
//! # Actors and words
//!
//! | word | one for each | written by | read by |
//! |---|---|---|---|
//! | lease count | slot and reading process: its *row* | that process | the owner |
//! | serial (`serial.rs`) | slot | the owner | every reader |
//! | ring entry | message | the owner, as publisher | the subscribers of its topic |
//!
//! The *owner* is the process that made the pool: only it writes slots. A *reader* is any process that attached to the
//! pool, and the owner itself where it reads its own messages. Every reader has one row.
//!
//! # Steps
//!
//! ```text
//!   reader (reader.rs, on its own row)       owner (reclaim.rs, under its lock)
//!   R1  count[slot] += 1                     O1  overwrite the ring entries that name the slot
//!   R2  SeqCst fence                         O2  scan all rows: a count is not 0 → the slot waits
//!   R3  validate: the ring entry is          O3  serial := odd ("claiming")
//!       unchanged, or the serial is          O4  SeqCst fence
//!       the one in the descriptor            O5  scan all rows: a count is not 0 → restore the serial, the slot waits
//!   R4  read the bytes                       O6  serial := next even number
//!   R5  count[slot] -= 1                     O7  write the bytes
//! ```
//!
//! If R3 fails, the reader does R5 at once and has no lease. Descriptors from anywhere but the ring of the slot's
//! owner are validated by the serial.
//!
//! # Invariants
//!
//! 1. One process alone writes a row: any of its threads with `fetch_add` and `fetch_sub`, or one thread at a time
//!    under a lock. The owner alone stores serials, under its lock.
//! 2. The owner only tests whether a count is zero. So a hostile row can do no more than hold slots. Dropping a
//!    row undoes everything that its process did, at whatever instruction the process died.
//! 3. **Every later claim sees a validated lease.** The fences R2 and O4 are totally ordered. If O4 came first, R3 sees
//!    O1 and O3, or later values, and fails. So R2 came first, and O5 sees R1. This holds for each time that R3 reads,
//!    so one fence serves all of them, and for both ways to validate, as O1 precedes O4.
//! 4. A reader that checks only the ring of a *forwarder*, a process that republishes a slot of another owner, lacks
//!    invariant 3. The forwarder may release its lease after O5 has passed the reader's row and before O5 reaches
//!    the forwarder's. Hence R3 checks the owner's serial for slots that the publisher does not own.
//!
//! # Orderings
//!
//! `loom_tests.rs` has a model for each of these that fails when it is made weaker.
//!
//! - R1 `Relaxed`: R2 orders it. It is a read-modify-write, so it continues the release sequence of an earlier R5 by
//!   another thread. The owner that reads the sum still acquires that R5.
//! - R2 and O4 `SeqCst` fences, which pair with each other. Each side stores to one word and loads another; nothing
//!   weaker orders the two. O2 is a hint and needs no fence.
//! - R3 `Relaxed`: R2 orders it. The ring entry or socket that carried the descriptor made the bytes visible; the
//!   serial only says that they have not changed since.
//! - R5 `Release`, pairs with the `Acquire` of O2 and O5: the owner that sees zero writes after all reads are done.
//!   Where R5 is a plain store, the lock orders it after an earlier R5.
//! - O3, O6 `Relaxed`: O4 orders O3. O6 shows a reader nothing but "stale" until the new content is published, and
//!   publishing is a release.
//!
//! # Limits
//!
//! - A process can have at most [`MAX_LEASES`](reader::MAX_LEASES) leases on one slot.
//! - A reader waits for a claim of the owner for a bounded number of loads, then gives up ([`Refused::Busy`](reader::Refused::Busy)).
//! - A serial repeats after 2^63 reuses of one slot.

#[cfg(all(test, loom))]
pub(crate) mod loom_tests;
pub(crate) mod reader;
pub(crate) mod reclaim;
pub(crate) mod rows;
pub(crate) mod serial;
