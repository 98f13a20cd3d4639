//! `MemoryPool` and `UnifiedBuffer`.
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]
#![allow(unsafe_code, reason = "writes what was lent by pointer")]

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use cenote::host_pool::{DeviceAllocator, DeviceMemory, HostDevice, HostView, SyncState};
use cenote::{DType, Error, MemoryPool, Result, UnifiedBuffer};
use proptest::prelude::*;

use mapping::Mapping;

mod mapping;

const MIB: usize = 1 << 20;

// ---- MemoryPool -----------------------------------------------------------------------------------

#[test]
fn buffers_are_used_again_by_whatever_needs_as_many_bytes() {
    let pool = MemoryPool::new().unwrap();
    let mut first = pool.acquire(&[1000], DType::F32).unwrap();
    first.host_mut::<f32>().unwrap().fill(1.0);
    pool.release(&mut first).unwrap();
    assert_eq!((pool.pool_size(), pool.total_bytes()), (1, 4096));

    let mut second = pool.acquire(&[10, 50], DType::Complex64).unwrap();
    assert_eq!(
        (second.shape(), second.dtype(), second.nbytes()),
        (&[10, 50][..], DType::Complex64, 4000)
    );
    // Used memory is not cleared, but nobody can mistake it for data.
    assert!(matches!(second.host_bytes(), Err(Error::Unwritten)));
    second.host_bytes_mut().unwrap();
    drop(second);

    let stats = pool.stats();
    assert_eq!((stats.total_acquired, stats.total_released), (2, 2));
    assert_eq!((stats.hits, stats.misses, stats.pool_size), (1, 1, 1));
    pool.clear();
    assert_eq!((pool.pool_size(), pool.total_bytes()), (0, 0));
}

#[test]
fn releasing_twice_is_an_error_and_corrupts_nothing() {
    let pool = MemoryPool::new().unwrap();
    let mut buffer = pool.acquire(&[10], DType::U8).unwrap();
    pool.release(&mut buffer).unwrap();
    assert!(buffer.is_released());
    assert!(matches!(pool.release(&mut buffer), Err(Error::Released)));
    assert!(matches!(buffer.host::<u8>(), Err(Error::Released)));
    assert!(matches!(buffer.host_mut::<u8>(), Err(Error::Released)));
    assert!(matches!(buffer.device(), Err(Error::Released)));
    assert!(matches!(buffer.device_mut(), Err(Error::Released)));
    drop(buffer);
    assert_eq!(pool.pool_size(), 1);

    let mut one = pool.acquire(&[10], DType::U8).unwrap();
    let mut two = pool.acquire(&[10], DType::U8).unwrap();
    one.host_mut::<u8>().unwrap().fill(1);
    two.host_mut::<u8>().unwrap().fill(2);
    assert_eq!(one.host::<u8>().unwrap(), [1; 10]);
}

#[test]
fn releasing_while_a_view_is_alive_is_an_error_and_corrupts_nothing() {
    let pool = MemoryPool::new().unwrap();
    let mut buffer = pool.acquire(&[4], DType::I16).unwrap();
    buffer.host_mut::<i16>().unwrap().copy_from_slice(&[1, 2, 3, 4]);
    let view = buffer.view().unwrap();
    let again = view.clone();
    let error = pool.release(&mut buffer).unwrap_err();
    assert!(matches!(error, Error::ViewsAlive { views: 2 }), "{error}");
    let error = buffer.host_mut::<i16>().unwrap_err();
    assert!(matches!(error, Error::ViewsAlive { views: 2 }), "{error}");
    assert!(error.to_string().contains("unified buffer"), "{error}");
    assert_eq!(buffer.host::<i16>().unwrap(), [1, 2, 3, 4]);

    drop(buffer);
    assert_eq!(view.as_slice::<i16>().unwrap(), [1, 2, 3, 4]);
    assert!(matches!(view.as_slice::<u16>(), Err(Error::WrongDType { .. })));
    assert_eq!(pool.pool_size(), 0);
    drop((view, again));
    assert_eq!(pool.pool_size(), 1);
}

#[test]
fn a_buffer_goes_back_to_its_own_pool_only() {
    let (one, two) = (MemoryPool::new().unwrap(), MemoryPool::new().unwrap());
    let mut buffer = one.acquire(&[4], DType::U8).unwrap();
    assert!(matches!(two.release(&mut buffer), Err(Error::OtherPool)));
    one.release(&mut buffer).unwrap();
    assert_eq!((one.pool_size(), two.pool_size()), (1, 0));
}

#[test]
fn the_limits_on_count_and_size_hold() {
    let pool = MemoryPool::with_limits(2, MIB).unwrap();
    let buffers: Vec<_> = (0..4).map(|_| pool.acquire(&[100], DType::F64).unwrap()).collect();
    drop(buffers);
    assert_eq!(pool.pool_size(), 2);
    drop(pool.acquire(&[2 * MIB], DType::U8).unwrap());
    assert_eq!(pool.pool_size(), 2);
}

#[test]
fn truth_values_are_always_valid() {
    let pool = MemoryPool::new().unwrap();
    let mut bytes = pool.acquire(&[64], DType::U8).unwrap();
    bytes.host_mut::<u8>().unwrap().fill(255);
    drop(bytes);
    let mut truth = pool.acquire(&[64], DType::Bool).unwrap();
    assert_eq!(truth.host_mut::<bool>().unwrap(), [false; 64]);
    truth.host_bytes_mut().unwrap()[3] = 7;
    assert!(matches!(truth.host::<bool>(), Err(Error::InvalidValue { .. })));

    // Neither is a borrow that is refused a write.
    truth.device().unwrap();
    assert_eq!(truth.state(), SyncState::InStep);
    assert!(matches!(truth.host_mut::<bool>(), Err(Error::InvalidValue { .. })));
    assert!(matches!(truth.host_mut::<u8>(), Err(Error::WrongDType { .. })));
    assert_eq!(truth.state(), SyncState::InStep);
}

#[test]
fn errors_of_unified_buffers_do_not_speak_of_tensors() {
    let pool = MemoryPool::new().unwrap();
    let mut buffer = pool.acquire(&[4], DType::U8).unwrap();
    let mut errors = vec![buffer.host::<u8>().unwrap_err(), buffer.host::<f32>().unwrap_err()];
    buffer.host_mut::<u8>().unwrap().fill(1);
    let view = buffer.view().unwrap();
    errors.push(buffer.host_mut::<u8>().unwrap_err());
    drop(view);
    pool.release(&mut buffer).unwrap();
    errors.push(pool.release(&mut buffer).unwrap_err());
    errors.push(pool.acquire(&[usize::MAX, 3], DType::F64).unwrap_err());
    for error in errors {
        let message = error.to_string();
        assert!(!message.contains("tensor") && !message.contains("make_mut"), "{message}");
    }
}

#[test]
fn a_transfer_of_the_wrong_length_is_an_error() {
    let mut memory = HostDevice.allocate(100).unwrap();
    memory.upload(&[1; 100]).unwrap();
    let error = memory.upload(&[2; 99]).unwrap_err();
    assert!(matches!(error, Error::TransferLen { device: 100, host: 99 }), "{error}");
    let mut host = [0; 101];
    let error = memory.download(&mut host).unwrap_err();
    assert!(matches!(error, Error::TransferLen { device: 100, host: 101 }), "{error}");
    assert_eq!(host, [0; 101]);
    memory.download(&mut host[..100]).unwrap();
    assert_eq!(host[..100], [1; 100]);
    assert!(HostDevice.allocate(usize::MAX).is_err());
}

#[test]
fn the_bytes_retained_are_limited_too() {
    let pool = MemoryPool::new().unwrap();
    pool.set_max_retained_bytes(MIB);
    assert_eq!(pool.max_retained_bytes(), MIB);
    drop((0..4).map(|_| pool.acquire(&[512 << 10], DType::U8).unwrap()).collect::<Vec<_>>());
    assert_eq!((pool.pool_size(), pool.total_bytes()), (2, MIB));
    pool.set_max_retained_bytes(0);
    assert_eq!(pool.total_bytes(), 0);
}

#[test]
fn bad_shapes_are_errors() {
    let pool = MemoryPool::global().unwrap();
    assert!(pool.acquire(&[3, 0], DType::U8).is_err());
    assert!(pool.acquire(&[usize::MAX, 2], DType::U8).is_err());
    assert!(pool.acquire(&[usize::MAX / 8], DType::U8).is_err());
    assert_eq!(pool.acquire(&[], DType::F64).unwrap().nbytes(), 8);
}

#[test]
fn pinned_memory_is_pinned_or_says_that_it_is_not() {
    let pool = MemoryPool::new().unwrap();
    let mut buffer = pool.acquire_pinned(&[100], DType::F32).unwrap();
    buffer.host_mut::<f32>().unwrap().fill(1.0);
    assert_eq!(buffer.host::<f32>().unwrap(), [1.0; 100]);
    assert!(cfg!(target_os = "linux") || !buffer.is_pinned());
    let place = buffer.host_bytes().unwrap().as_ptr();
    if let Some(mapping) = Mapping::of(place) {
        assert_eq!(mapping.is_locked(), buffer.is_pinned(), "{mapping:?}");
    }
    pool.release(&mut buffer).unwrap();
    assert!(!buffer.is_pinned());
    // The pool has it still, and does not keep it locked.
    assert_eq!(pool.pool_size(), 1);
    assert!(Mapping::of(place).is_none_or(|mapping| !mapping.is_locked()));
}

// ---- UnifiedBuffer --------------------------------------------------------------------------------

#[derive(Debug, Default)]
struct Counts {
    uploads: AtomicUsize,
    downloads: AtomicUsize,
    frees: AtomicUsize,
}

#[derive(Debug, Default)]
struct Fake {
    counts: Arc<Counts>,
    broken: bool,
}

#[derive(Debug)]
struct FakeMemory(Vec<u8>, Arc<Counts>, bool);

impl DeviceAllocator for Fake {
    fn allocate(&self, bytes: usize) -> Result<Box<dyn DeviceMemory>> {
        Ok(Box::new(FakeMemory(vec![0; bytes], Arc::clone(&self.counts), self.broken)))
    }
}

impl DeviceMemory for FakeMemory {
    fn upload(&mut self, host: &[u8]) -> Result<()> {
        if self.2 {
            return Err(Error::Unwritten);
        }
        self.1.uploads.fetch_add(1, Ordering::Relaxed);
        self.0.copy_from_slice(host);
        Ok(())
    }

    fn download(&mut self, host: &mut [u8]) -> Result<()> {
        self.1.downloads.fetch_add(1, Ordering::Relaxed);
        host.copy_from_slice(&self.0);
        Ok(())
    }

    fn handle(&self) -> u64 {
        42
    }

    fn host_bytes(&mut self) -> Option<&mut [u8]> {
        Some(&mut self.0)
    }
}

impl Drop for FakeMemory {
    fn drop(&mut self) {
        self.1.frees.fetch_add(1, Ordering::Relaxed);
    }
}

fn on_fake() -> (UnifiedBuffer, Arc<Counts>) {
    let fake = Fake::default();
    let counts = Arc::clone(&fake.counts);
    let mut buffer = UnifiedBuffer::new(&[4], DType::U8).unwrap();
    buffer.set_device(Arc::new(fake)).unwrap();
    (buffer, counts)
}

fn transfers(counts: &Counts) -> (usize, usize) {
    (counts.uploads.load(Ordering::Relaxed), counts.downloads.load(Ordering::Relaxed))
}

#[test]
fn a_write_through_the_host_view_never_goes_unnoticed() {
    let (mut buffer, counts) = on_fake();
    buffer.host_mut::<u8>().unwrap().fill(1);
    buffer.device().unwrap();
    assert_eq!(buffer.state(), SyncState::InStep);

    buffer.host_mut::<u8>().unwrap()[2] = 9;
    assert_eq!(buffer.state(), SyncState::HostDirty);
    assert_eq!(buffer.device().unwrap().handle(), 42);
    assert_eq!(transfers(&counts), (2, 0));
    let device = buffer.device_mut().unwrap();
    assert_eq!(device.host_bytes().unwrap(), [1, 1, 9, 1]);
}

#[test]
fn each_side_is_brought_up_to_date_when_it_is_used_and_not_before() {
    let (mut buffer, counts) = on_fake();
    assert!(buffer.is_device());
    assert_eq!(buffer.state(), SyncState::Uninitialized);
    assert!(matches!(buffer.host::<u8>(), Err(Error::Unwritten)));
    assert!(matches!(buffer.device(), Err(Error::Unwritten)));

    buffer.device_mut().unwrap().host_bytes().unwrap().fill(5);
    assert_eq!((buffer.state(), transfers(&counts)), (SyncState::DeviceOnly, (0, 0)));
    assert_eq!(buffer.host::<u8>().unwrap(), [5; 4]);
    assert_eq!((buffer.state(), transfers(&counts)), (SyncState::InStep, (0, 1)));
    buffer.host::<u8>().unwrap();
    buffer.device().unwrap();
    buffer.sync().unwrap();
    assert_eq!(transfers(&counts), (0, 1));

    buffer.device_mut().unwrap();
    assert_eq!(buffer.state(), SyncState::DeviceDirty);
    buffer.sync().unwrap();
    assert_eq!((buffer.state(), transfers(&counts)), (SyncState::InStep, (0, 2)));
}

#[test]
fn a_download_does_not_change_a_view() {
    let (mut buffer, _) = on_fake();
    buffer.host_mut::<u8>().unwrap().fill(1);
    let view = buffer.view().unwrap();
    buffer.device_mut().unwrap().host_bytes().unwrap().fill(2);
    assert!(matches!(buffer.host::<u8>(), Err(Error::ViewsAlive { views: 1 })));
    assert_eq!(*view, [1; 4]);
    drop(view);
    assert_eq!(buffer.host::<u8>().unwrap(), [2; 4]);
}

#[test]
fn a_transfer_that_fails_leaves_the_state_as_it_was() {
    let mut buffer = UnifiedBuffer::new(&[4], DType::U8).unwrap();
    buffer.set_device(Arc::new(Fake { broken: true, ..Fake::default() })).unwrap();
    buffer.host_mut::<u8>().unwrap().fill(1);
    assert!(buffer.device().is_err());
    assert!(buffer.device_mut().is_err());
    assert_eq!(buffer.host::<u8>().unwrap(), [1; 4]);
    assert!(matches!(buffer.state(), SyncState::HostOnly | SyncState::HostDirty));
    buffer.set_device(Arc::new(Fake::default())).unwrap();
    assert_eq!(buffer.device_mut().unwrap().host_bytes().unwrap(), [1; 4]);
}

#[test]
fn device_memory_is_freed_with_the_buffer() {
    let (mut buffer, counts) = on_fake();
    buffer.device_mut().unwrap();
    MemoryPool::global().unwrap().release(&mut buffer).unwrap();
    assert_eq!(counts.frees.load(Ordering::Relaxed), 1);
}

#[test]
fn without_a_device_host_memory_is_the_device_side() {
    let mut buffer = UnifiedBuffer::new(&[2, 2], DType::F32).unwrap();
    assert!(!buffer.is_device());
    buffer.host_mut::<f32>().unwrap().fill(1.5);
    let device = buffer.device_mut().unwrap();
    device.host_bytes().unwrap()[..4].copy_from_slice(&2.5_f32.to_ne_bytes());
    assert_eq!(buffer.host::<f32>().unwrap(), [2.5, 1.5, 1.5, 1.5]);
}

#[test]
fn while_the_host_side_is_on_loan_no_write_goes_unnoticed() {
    let mut buffer = UnifiedBuffer::new(&[4], DType::U8).unwrap();
    let loan = buffer.lend().unwrap();
    assert_eq!((loan.len(), buffer.state()), (4, SyncState::HostOnly));
    for value in 1..4 {
        // SAFETY: the four bytes that were lent, and nobody looks.
        unsafe { loan.as_ptr().write_bytes(value, 4) };
        assert_eq!(*buffer.device_view().unwrap().unwrap(), [value; 4]);
        assert_eq!(buffer.state(), SyncState::HostDirty);
    }
    assert!(buffer.is_lent());
    assert!(matches!(buffer.host_mut::<u8>(), Err(Error::Lent)));
    assert!(matches!(buffer.view(), Err(Error::Lent)));
    assert!(matches!(buffer.device_mut(), Err(Error::Lent)));
    assert_eq!(buffer.host::<u8>().unwrap(), [3; 4]);

    // It may have been written after the last upload.
    drop(loan);
    assert_eq!((buffer.is_lent(), buffer.state()), (false, SyncState::HostDirty));
    buffer.device().unwrap();
    assert_eq!(buffer.state(), SyncState::InStep);
    let view = buffer.view().unwrap();
    assert!(matches!(buffer.lend(), Err(Error::ViewsAlive { views: 1 })));
    assert_eq!((buffer.state(), *view == [3; 4]), (SyncState::InStep, true));
}

#[test]
fn memory_on_loan_is_released_but_not_reused_before_the_loan_ends() {
    let pool = MemoryPool::new().unwrap();
    let mut buffer = pool.acquire(&[4], DType::U8).unwrap();
    let loans = [buffer.lend().unwrap(), buffer.lend().unwrap()];
    pool.release(&mut buffer).unwrap();
    assert!(matches!(buffer.lend(), Err(Error::Released)));
    let mut other = pool.acquire(&[4], DType::U8).unwrap();
    other.host_mut::<u8>().unwrap().fill(2);
    // SAFETY: the four bytes that were lent, and nobody looks.
    unsafe { loans[0].as_ptr().write_bytes(9, 4) };
    assert_eq!(other.host::<u8>().unwrap(), [2; 4]);

    pool.clear();
    let (place, stats) = (loans[1].as_ptr(), pool.stats());
    assert_eq!((stats.live, stats.pool_size, stats.total_released), (2, 0, 0));
    drop(loans);
    assert_eq!((pool.stats().live, pool.pool_size()), (1, 1));
    assert_eq!(pool.acquire(&[4], DType::U8).unwrap().lend().unwrap().as_ptr(), place);
}

#[test]
fn memory_that_was_on_loan_is_zeroed_where_zeros_are_requested() {
    let pool = MemoryPool::new().unwrap();
    let loan = pool.acquire(&[64], DType::U8).unwrap().lend().unwrap();
    // SAFETY: the bytes that were lent, and nobody looks.
    unsafe { loan.as_ptr().write_bytes(255, 64) };
    drop(loan);
    let mut truth = pool.acquire(&[64], DType::Bool).unwrap();
    assert_eq!((truth.host_mut::<bool>().unwrap(), pool.stats().hits), (&mut [false; 64][..], 1));
}

#[test]
fn views_of_the_device_side_show_what_it_was() {
    let mut buffer = UnifiedBuffer::new(&[4], DType::U8).unwrap();
    assert!(matches!(buffer.device_view(), Err(Error::Unwritten)));
    buffer.host_mut::<u8>().unwrap().fill(1);
    let first = buffer.device_view().unwrap().unwrap();
    buffer.host_mut::<u8>().unwrap().fill(2);
    let second = buffer.device_view().unwrap().unwrap();
    let device = buffer.device_mut().unwrap().host_bytes().unwrap();
    assert_eq!(device, [2; 4]);
    device[0] = 3;
    let third = buffer.device_view().unwrap().unwrap();
    assert_eq!(buffer.host::<u8>().unwrap(), [3, 2, 2, 2]);
    buffer.release().unwrap();
    assert_eq!((&*first, &*second, &*third), (&[1; 4][..], &[2; 4][..], &[3, 2, 2, 2][..]));

    let (mut far, _) = on_fake();
    far.host_mut::<u8>().unwrap().fill(1);
    assert!(far.device_view().unwrap().is_none());
}

// ---- a model --------------------------------------------------------------------------------------

/// A device whose memory a test can look at, and that fails when it is told to.
#[derive(Debug, Default, Clone)]
struct Rig(Arc<RigState>);

#[derive(Debug, Default)]
struct RigState {
    bytes: Mutex<Vec<u8>>,
    broken: AtomicBool,
}

impl Rig {
    fn works(&self) -> Result<()> {
        if self.0.broken.load(Ordering::Relaxed) { Err(Error::NotThePrefix) } else { Ok(()) }
    }

    fn bytes(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.bytes.lock().unwrap()
    }
}

impl DeviceAllocator for Rig {
    fn allocate(&self, bytes: usize) -> Result<Box<dyn DeviceMemory>> {
        self.works()?;
        *self.bytes() = vec![0xEE; bytes];
        Ok(Box::new(self.clone()))
    }
}

impl DeviceMemory for Rig {
    fn upload(&mut self, host: &[u8]) -> Result<()> {
        self.works()?;
        self.bytes().copy_from_slice(host);
        Ok(())
    }

    fn download(&mut self, host: &mut [u8]) -> Result<()> {
        self.works()?;
        host.copy_from_slice(&self.bytes());
        Ok(())
    }

    fn handle(&self) -> u64 {
        0
    }
}

#[derive(Debug, Clone)]
enum Op {
    ReadHost,
    WriteHost(usize, u8),
    ReadDevice,
    WriteDevice(usize, u8),
    Sync,
    View,
    DropView,
    Break(bool),
    SetDevice,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        2 => Just(Op::ReadHost),
        4 => (0..4_usize, any::<u8>()).prop_map(|(at, byte)| Op::WriteHost(at, byte)),
        2 => Just(Op::ReadDevice),
        4 => (0..4_usize, any::<u8>()).prop_map(|(at, byte)| Op::WriteDevice(at, byte)),
        1 => Just(Op::Sync),
        1 => Just(Op::View),
        2 => Just(Op::DropView),
        1 => any::<bool>().prop_map(Op::Break),
        1 => Just(Op::SetDevice),
    ]
}

/// Which sides hold what was written last.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Newest {
    Neither,
    Host,
    Device,
    Both,
}

/// The buffer, what it should hold, and what could be in its way.
struct Scene {
    buffer: UnifiedBuffer,
    rig: Rig,
    last: [u8; 4],
    newest: Newest,
    allocated: bool,
    views: Vec<(HostView, [u8; 4])>,
}

impl Scene {
    fn new() -> Scene {
        let rig = Rig::default();
        let mut buffer = UnifiedBuffer::new(&[4], DType::U8).unwrap();
        buffer.set_device(Arc::new(rig.clone())).unwrap();
        let (last, newest) = ([0; 4], Newest::Neither);
        Scene { buffer, rig, last, newest, allocated: false, views: Vec::new() }
    }

    fn works(&self) -> bool {
        self.rig.works().is_ok()
    }

    /// Whether the host side is up to date, or can be brought there.
    fn host_can(&self) -> bool {
        self.newest != Newest::Device || (self.works() && self.views.is_empty())
    }

    fn device_can(&self) -> bool {
        self.works() || (self.allocated && self.newest != Newest::Host)
    }

    fn is_written(&self) -> bool {
        self.newest != Newest::Neither
    }

    fn read_host(&mut self) {
        let can = self.is_written() && self.host_can();
        match self.buffer.host::<u8>() {
            Ok(host) => assert!(can && host == self.last),
            Err(error) => assert!(!can, "{error}"),
        }
        self.host_is_read(can);
    }

    fn host_is_read(&mut self, read: bool) {
        if read && self.newest == Newest::Device {
            self.newest = Newest::Both;
        }
    }

    fn write_host(&mut self, at: usize, byte: u8) {
        let can = self.host_can() && self.views.is_empty();
        let (written, last) = (self.is_written(), self.last);
        match self.buffer.host_mut::<u8>() {
            Ok(host) => {
                assert!(can && (!written || host == last));
                self.last[at] = byte;
                host.copy_from_slice(&self.last);
                self.newest = Newest::Host;
            }
            Err(error) => assert!(!can, "{error}"),
        }
    }

    fn read_device(&mut self) {
        let can = self.is_written() && self.device_can();
        let read = self.buffer.device().map(|_| ());
        assert_eq!(read.is_ok(), can, "{read:?}");
        if can {
            assert_eq!(*self.rig.bytes(), self.last);
            self.device_is_used();
        }
    }

    fn device_is_used(&mut self) {
        self.allocated = true;
        if self.newest == Newest::Host {
            self.newest = Newest::Both;
        }
    }

    fn write_device(&mut self, at: usize, byte: u8) {
        let can = self.device_can();
        let written = self.buffer.device_mut().map(|_| ());
        assert_eq!(written.is_ok(), can, "{written:?}");
        if can {
            assert!(!self.is_written() || *self.rig.bytes() == self.last);
            self.last[at] = byte;
            self.rig.bytes().copy_from_slice(&self.last);
            self.allocated = true;
            self.newest = Newest::Device;
        }
    }

    fn sync(&mut self) {
        let can = self.is_written() && self.host_can();
        let behind = self.newest == Newest::Host;
        let synced = self.buffer.sync();
        assert_eq!(synced.is_ok(), can && (!behind || self.works()), "{synced:?}");
        self.host_is_read(can);
        if synced.is_ok() && behind {
            assert_eq!(*self.rig.bytes(), self.last);
            self.device_is_used();
        }
    }

    fn view(&mut self) {
        let can = self.is_written() && self.host_can();
        match self.buffer.view() {
            Ok(view) => self.views.push((view, self.last)),
            Err(error) => assert!(!can, "{error}"),
        }
        self.host_is_read(can);
    }

    fn set_device(&mut self) {
        let can = self.host_can();
        let next = Rig::default();
        let set = self.buffer.set_device(Arc::new(next.clone()));
        assert_eq!(set.is_ok(), can, "{set:?}");
        if can {
            self.rig = next;
            self.allocated = false;
            self.newest = if self.is_written() { Newest::Host } else { Newest::Neither };
        }
    }

    fn step(&mut self, op: &Op) {
        match *op {
            Op::ReadHost => self.read_host(),
            Op::WriteHost(at, byte) => self.write_host(at, byte),
            Op::ReadDevice => self.read_device(),
            Op::WriteDevice(at, byte) => self.write_device(at, byte),
            Op::Sync => self.sync(),
            Op::View => self.view(),
            Op::DropView => drop(self.views.pop()),
            Op::Break(broken) => self.rig.0.broken.store(broken, Ordering::Relaxed),
            Op::SetDevice => self.set_device(),
        }
    }

    /// The state that the buffer must say it has.
    fn states(&self) -> &'static [SyncState] {
        match self.newest {
            Newest::Neither => &[SyncState::Uninitialized],
            Newest::Host if self.allocated => &[SyncState::HostDirty],
            // A transfer that failed may have allocated the device side.
            Newest::Host => &[SyncState::HostOnly, SyncState::HostDirty],
            Newest::Device => &[SyncState::DeviceOnly, SyncState::DeviceDirty],
            Newest::Both => &[SyncState::InStep],
        }
    }
}

proptest! {
    #[test]
    fn both_sides_always_show_the_last_write(ops in proptest::collection::vec(op(), 1..60)) {
        let mut scene = Scene::new();
        for op in &ops {
            scene.step(op);
            prop_assert!(scene.states().contains(&scene.buffer.state()), "{:?}", scene.buffer);
            prop_assert!(scene.views.iter().all(|(view, then)| **view == *then));
        }
        // Whatever happened: once nothing is in the way, both sides are as they were written last.
        scene.views.clear();
        scene.step(&Op::Break(false));
        scene.step(&Op::ReadHost);
        scene.step(&Op::ReadDevice);
    }
}
