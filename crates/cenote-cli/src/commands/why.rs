//! `cenote why`

use cenote::{CopyReason, PoolInfo, PublisherInfo, StagedBecause, StagedCopies, pools};
use serde::Serialize;

use crate::commands::pool::HolderLine;
use crate::commands::topic::find;
use crate::failure::Outcome;
use crate::output::unit;
use crate::output::{NO_ANSWER, Output, Page, Report};

/// Show whether a topic copies tensors, how often and why, and which process holds the oldest lease
///
/// Example: cenote why camera.rgb
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The topic: camera.rgb or /camera/rgb
    topic: String,
}

impl Args {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        let found = find::published_topic(&self.topic)?;
        let pools = pools()?;
        let pool_of = |uid: u64| pools.iter().find(|pool| pool.uid == uid);
        let publishers: Vec<Publisher> = found
            .publishers
            .iter()
            .map(|publisher| Publisher::new(publisher, pool_of(publisher.uid)))
            .collect();
        let copies = publishers.iter().any(|publisher| !publisher.copies.is_empty());
        let all_answer = publishers.iter().all(|publisher| publisher.answers);
        let zero_copy = if copies { Some(false) } else { all_answer.then_some(true) };
        output.report(&Why { topic: found.name, zero_copy, publishers })
    }
}

#[derive(Debug, Serialize)]
struct Why {
    topic: String,
    /// `None` if a publisher does not answer and no other copies.
    zero_copy: Option<bool>,
    publishers: Vec<Publisher>,
}

#[derive(Debug, Serialize)]
struct Publisher {
    pid: i32,
    program: String,
    answers: bool,
    /// `None` if it does not answer.
    sent: Option<u64>,
    /// Messages that were copied before they were sent, by reason.
    copies: Vec<Copied>,
    /// All copies of tensor bytes in the publisher's process, including those of other topics.
    process_copies: Vec<ProcessCopies>,
    oldest_lease: Option<HolderLine>,
}

#[derive(Debug, Serialize)]
struct Copied {
    reason: &'static str,
    count: u64,
    bytes: u64,
    because: &'static str,
    advice: &'static str,
}

#[derive(Debug, Serialize)]
struct ProcessCopies {
    reason: &'static str,
    count: u64,
    bytes: u64,
}

impl Publisher {
    fn new(info: &PublisherInfo, pool: Option<&PoolInfo>) -> Publisher {
        let account = pool.and_then(|pool| pool.account.as_ref());
        let processes = account.into_iter().flat_map(|account| &account.processes);
        let held = processes.filter(|process| process.retired_slots > 0);
        let copies = account.into_iter().flat_map(|account| &account.copies);
        let copies = copies.filter(|copies| copies.count > 0).map(|copies| ProcessCopies {
            reason: process_reason(copies.reason),
            count: copies.count,
            bytes: copies.bytes,
        });
        Publisher {
            pid: info.pid,
            program: info.program.clone(),
            answers: info.carries.is_some(),
            sent: info.carries.as_ref().map(|_| info.sent),
            copies: info.copies.iter().map(Copied::new).collect(),
            process_copies: copies.collect(),
            oldest_lease: held.max_by_key(|process| process.longest).map(HolderLine::new),
        }
    }
}

impl Copied {
    fn new(copies: &StagedCopies) -> Copied {
        let (reason, because, advice) = explain(copies.reason);
        Copied { reason, count: copies.count, bytes: copies.bytes, because, advice }
    }
}

/// A reason as a word, as a sentence, and with advice.
fn explain(reason: StagedBecause) -> (&'static str, &'static str, &'static str) {
    match reason {
        StagedBecause::Heap => (
            "heap",
            "the tensor was on the heap, which no other process can map",
            "allocate it from the topic: topic.image(...), topic.alloc_tensor(...)",
        ),
        StagedBecause::NotAdopted => (
            "not adopted",
            "the topic's pool could not adopt its shared memory: it may still be written, part of it is \
             missing, or the pool has adopted too many already",
            "allocate it from the topic, or from a TensorPool",
        ),
        StagedBecause::FarPlanes => (
            "far planes",
            "the planes of the image are in several buffers",
            "allocate one buffer for all planes, as topic.image(...) does",
        ),
        StagedBecause::OwnerGone => (
            "owner gone",
            "it came from a pool whose owner is dead, so no process can attach to it any more",
            "none needed: the copies end when frames of a living owner are forwarded",
        ),
        StagedBecause::Pbo => (
            "pbo",
            "the tensor was in an OpenGL buffer, which no other process can map",
            "read it back directly into a tensor of the topic: topic.image(...)",
        ),
        StagedBecause::Lent => (
            "lent",
            "its memory could still be written through a pointer, such as a NumPy array",
            "drop arrays and pointers into it before you send it",
        ),
        _ => ("other", "for a reason that is newer than this command", "update the command"),
    }
}

fn process_reason(reason: CopyReason) -> &'static str {
    match reason {
        CopyReason::MakeMut => "make_mut",
        CopyReason::ToContiguous => "to_contiguous",
        CopyReason::CopiedIn => "copied in",
        CopyReason::CopiedOut => "copied out",
        CopyReason::Staged => "staged",
        CopyReason::Upload => "upload",
        CopyReason::Download => "download",
        _ => "other",
    }
}

impl Report for Why {
    fn write(&self, page: &mut Page) {
        match self.zero_copy {
            Some(true) => page.good(&format!("{}: zero-copy", self.topic)),
            Some(false) => page.warning(&format!("{}: not zero-copy", self.topic)),
            None => page.warning(&format!("{}: unknown", self.topic)),
        }
        self.publishers.iter().for_each(|publisher| publisher.write(page));
    }
}

impl Publisher {
    fn write(&self, page: &mut Page) {
        let Publisher { pid, program, .. } = self;
        let Some(sent) = self.sent else {
            page.heading(&format!("{program} (pid {pid})"));
            return page.warning(&format!("it {NO_ANSWER}"));
        };
        page.heading(&format!("{program} (pid {pid}) sent {sent} messages"));
        for copied in &self.copies {
            let bytes = unit::bytes(copied.bytes);
            page.line(format!("copied {} of them ({bytes}): {}", copied.count, copied.because));
            page.aside(&format!("  {}", copied.advice));
        }
        if self.copies.is_empty() {
            page.line("copied none of them");
        }
        for copies in &self.process_copies {
            let ProcessCopies { reason, count, bytes } = copies;
            let bytes = unit::bytes(*bytes);
            page.aside(&format!("in the whole process: {reason}, {count} times, {bytes}"));
        }
        match &self.oldest_lease {
            Some(lease) => {
                let held = unit::nanos(lease.longest_ms.unwrap_or(0.0) * 1e6);
                page.line(format!(
                    "{} (pid {}) holds the oldest lease: {} slots that have left the queue, the oldest for \
                     {held}",
                    lease.program, lease.pid, lease.retired_slots
                ));
            }
            None => page.line("no process holds messages that have left the queue"),
        }
    }
}
