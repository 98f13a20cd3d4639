//! Every time span, retry count and back-off of this crate, by the name of what waits.
//!
//! A **timeout** ends in an error. A **poll** is how often a waiter looks by itself, because the event that it waits
//! for can come without a notification. A **retry** is the pause before the same attempt is made again.

#![allow(dead_code, reason = "which of them are used depends on platform and features")]

use std::time::Duration;

// Locks of this process.

/// How often a waiter looks at a lock before it lets other threads run.
pub(crate) const LOCK_SPINS: u32 = 64;

/// How often it lets other threads run before it sleeps.
pub(crate) const LOCK_YIELDS: u32 = 8;

/// How long it sleeps between two looks. A waiter of real-time priority that only yields starves the holder.
pub(crate) const LOCK_POLL: Duration = Duration::from_micros(50);

/// How often in a row a thread takes a biased lock before the lock becomes biased towards it, the first time. In a
/// model at once.
pub(crate) const BIAS_AFTER: u64 = if cfg!(all(test, loom)) { 0 } else { 16 };

/// The same after other threads revoked the bias again and again. One revocation costs about as much as
/// taking the latch this often.
pub(crate) const BIAS_AFTER_AT_MOST: u64 = 1 << 10;

/// How long a thread waits in place of a heavy fence that the kernel refuses: far longer than a store takes to
/// leave its processor.
pub(crate) const STORES_ARRIVE: Duration = Duration::from_millis(20);

// Memory.

/// How long a measurement of the free memory is used, in milliseconds. A measurement reads files of `/proc`.
pub(crate) const MEASUREMENT_MILLIS: u64 = 100;

/// How often a reservation that does not fit is tried again while other threads free memory.
pub(crate) const RESERVE_ATTEMPTS: u32 = 4;

/// How often a DMA heap is asked that answers `EAGAIN`: some answer so when they have no memory left.
pub(crate) const DMA_HEAP_ATTEMPTS: u32 = 100;

/// The most allocations of a pool that pass before it tries to grow ahead again, after the system refused.
pub(crate) const GROW_AHEAD_BACKOFF: u32 = 1 << 14;

// System calls.

/// The longest wait of one `epoll_wait`, whose argument is milliseconds in 32 bits. Callers wait again after it.
pub(crate) const LONGEST_EPOLL: Duration = Duration::from_secs(1 << 20);

/// The longest wait of one `ppoll`: its seconds fit in 32 bits, too. Callers wait again after it.
pub(crate) const LONGEST_POLL: Duration = Duration::from_secs(1 << 30);

/// How long the rest of a message may take whose beginning has arrived, on a non-blocking socket.
pub(crate) const MESSAGE_REST_TIMEOUT: Duration = Duration::from_secs(5);

// Directories of sockets.

/// How long a process waits for the lock of a directory. Others hold it for microseconds, but every process that can
/// read the directory can take the lock and keep it.
pub(crate) const DIR_LOCK_TIMEOUT: Duration = Duration::from_secs(5);

/// How often it tries to take that lock.
pub(crate) const DIR_LOCK_POLL: Duration = Duration::from_millis(1);

/// How often a directory is created that other processes remove meanwhile.
pub(crate) const DIR_ATTEMPTS: usize = 16;

/// How long the processes that an inspection asks may take to answer, all together.
pub(crate) const QUERY_TIMEOUT: Duration = Duration::from_millis(200);

// Pools: the owner.

/// How often an allocation that waits for a slot looks by itself: a reader that dies sends no notification.
pub(crate) const ALLOC_POLL: Duration = Duration::from_millis(1);

/// How often it also tries to grow the pool. Asking for memory takes long, and a fresh refusal would be repeated.
pub(crate) const ALLOC_GROW_RETRY: Duration = Duration::from_millis(100);

/// How often the owner creates its socket anew when it is removed at once.
pub(crate) const SOCKET_ATTEMPTS: usize = 4;

/// How long the service thread pauses when it can neither accept a connection nor refuse it, for want of
/// descriptors. Without the pause epoll would return at once, again and again.
pub(crate) const ACCEPT_RETRY: Duration = Duration::from_millis(10);

// Pools: a reader.

/// How long an owner may take to answer a handshake. One that is not stopped answers in microseconds.
pub(crate) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// The pause before connecting again to an owner whose queue of connections is full.
pub(crate) const CONNECT_RETRY: Duration = Duration::from_millis(1);

/// How often a process tries to attach to an owner that closes the connection without an answer.
pub(crate) const ATTACH_ATTEMPTS: u32 = 4;

/// How long a segment that a descriptor names may take to arrive.
pub(crate) const SEGMENT_TIMEOUT: Duration = Duration::from_secs(1);

/// The pause before a reader requests a segment again; it doubles each time. An owner sends nothing to a reader with
/// many unread messages, or while the system has no room for more descriptors.
pub(crate) const SEGMENT_RETRY: Duration = Duration::from_millis(2);

/// How long a process may take to end after the kernel closed its sockets. Until then its death is not certain.
pub(crate) const EXIT_TIME: Duration = Duration::from_secs(1);

/// How often a reader looks at a serial while the owner claims the slot. A claim is a few stores and a scan, so only
/// an owner that was preempted, stopped or killed in the middle of one takes longer.
pub(crate) const CLAIM_LOOKS: u32 = if cfg!(all(test, loom)) { 2 } else { 128 };

// Topics.

/// How often a publisher that waits for a slow subscriber looks by itself.
pub(crate) const BACKPRESSURE_POLL: Duration = Duration::from_millis(1);

/// How often a subscriber looks again for a message that it cannot take yet: its segment is on its way, its pool
/// does not answer, or its publisher is about to die.
pub(crate) const UNRESOLVED_POLL: Duration = Duration::from_millis(1);

/// How many messages a subscriber or an observer skips in one call because they were overwritten or cannot be taken.
pub(crate) const SKIPPED_MESSAGES: usize = 64;

/// How long a new subscriber waits for the publishers it found. The others are connected later.
pub(crate) const FIRST_CONNECT_TIMEOUT: Duration = Duration::from_millis(200);

/// How often a subscriber connects to a publisher that closes the connection without an answer.
pub(crate) const SUBSCRIBE_ATTEMPTS: u32 = 4;

/// The pause before it connects again to a publisher whose queue of connections is full.
pub(crate) const SUBSCRIBE_RETRY: Duration = Duration::from_millis(10);

/// How often a subscriber reads the directory if it cannot watch it, and tries again if it lacked descriptors or
/// memory to connect.
pub(crate) const DISCOVERY_POLL: Duration = Duration::from_millis(50);

/// How long a publisher of another type that started at the same time may take to withdraw.
pub(crate) const WITHDRAW_TIMEOUT: Duration = Duration::from_millis(500);

/// How often a publisher looks whether it has withdrawn.
pub(crate) const WITHDRAW_POLL: Duration = Duration::from_millis(5);

/// How often an observer reads the directory of a topic.
pub(crate) const OBSERVER_POLL: Duration = Duration::from_millis(50);

/// How long an observation waits for publishers that are new. Slower ones are part of a later observation.
pub(crate) const OBSERVER_CONNECT_TIMEOUT: Duration = Duration::from_millis(10);

/// How long an observer ignores a publisher whose answer it could not read.
pub(crate) const OBSERVER_IGNORES: Duration = Duration::from_secs(1);

/// How long an observer waits for a segment.
pub(crate) const OBSERVER_SEGMENT_TIMEOUT: Duration = Duration::from_millis(200);

// Host pools.

/// How long a block of a buffer pool stays idle before it is freed, unless the pool says otherwise. It is freed before
/// twice this time.
pub(crate) const IDLE_BLOCK: Duration = Duration::from_secs(10);

/// The shortest time between two searches of a pool for idle blocks.
pub(crate) const IDLE_SEARCH: Duration = Duration::from_millis(1);

// Devices.

/// How often a camera with frames in use looks whether their buffers were released.
pub(crate) const CAMERA_POLL: Duration = Duration::from_millis(5);

/// How long the thread of an application's OpenGL context may take to start a task, unless the application says
/// otherwise.
pub(crate) const GL_THREAD_TIMEOUT: Duration = Duration::from_secs(10);

/// One wait for that thread. The timeout is counted in these waits and not by the clock, so that a process that was
/// stopped meanwhile does not report the other thread as stuck.
pub(crate) const GL_THREAD_STEP: Duration = Duration::from_millis(100);

/// One wait for the GPU, in nanoseconds. The argument of glow is an `i32`.
pub(crate) const GL_FENCE_STEP_NANOS: i32 = 1_000_000_000;

/// How many of those waits a fence gets before the driver is reported as stuck.
pub(crate) const GL_FENCE_STEPS: u32 = 30;
