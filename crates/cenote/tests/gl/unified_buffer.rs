//! The OpenGL side of unified buffers.

use std::sync::Arc;

use cenote::glow::{self, HasContext};
use cenote::host_pool::{DeviceAllocator, HostDevice, SyncState};
use cenote::{CopyReason, DType, Error, UnifiedBuffer};

use super::{alone, context, copied};

fn buffer() -> UnifiedBuffer {
    let mut buffer = UnifiedBuffer::new(&[4, 4], DType::F32).unwrap();
    buffer.set_device(Arc::new(context().clone())).unwrap();
    buffer
}

fn name(handle: u64) -> glow::NativeBuffer {
    glow::NativeBuffer(u32::try_from(handle).unwrap().try_into().unwrap())
}

/// The bytes of the device, read through OpenGL.
#[allow(unsafe_code, clippy::multiple_unsafe_ops_per_block, reason = "OpenGL is a C interface")]
fn on_device(handle: u64) -> Vec<f32> {
    let buffer = name(handle);
    // SAFETY: called where the context is current, with a buffer of 64 bytes that is not mapped.
    let bytes = context().with(move |gl| unsafe {
        gl.bind_buffer(glow::ARRAY_BUFFER, Some(buffer));
        let place = gl.map_buffer_range(glow::ARRAY_BUFFER, 0, 64, glow::MAP_READ_BIT);
        assert!(!place.is_null());
        let bytes = std::slice::from_raw_parts(place, 64).to_vec();
        gl.unmap_buffer(glow::ARRAY_BUFFER);
        gl.bind_buffer(glow::ARRAY_BUFFER, None);
        bytes
    });
    bytes.unwrap().chunks(4).map(|four| f32::from_ne_bytes(four.try_into().unwrap())).collect()
}

#[allow(unsafe_code, clippy::multiple_unsafe_ops_per_block, reason = "OpenGL is a C interface")]
fn write_on_device(handle: u64, value: f32) {
    let (buffer, bytes) = (name(handle), [value; 16].map(f32::to_ne_bytes).concat());
    // SAFETY: as above.
    let written = context().with(move |gl| unsafe {
        gl.bind_buffer(glow::ARRAY_BUFFER, Some(buffer));
        gl.buffer_sub_data_u8_slice(glow::ARRAY_BUFFER, 0, &bytes);
        gl.bind_buffer(glow::ARRAY_BUFFER, None);
    });
    written.unwrap();
}

fn transfers() -> (u64, u64) {
    (copied(CopyReason::Upload).0, copied(CopyReason::Download).0)
}

pub(super) fn a_side_is_transferred_when_it_is_behind() {
    let _alone = alone();
    let mut buffer = buffer();
    assert!(buffer.is_device());
    let (up, down) = transfers();
    buffer.host_mut::<f32>().unwrap().fill(1.5);
    assert_eq!((buffer.state(), transfers()), (SyncState::HostOnly, (up, down)));
    let handle = buffer.device().unwrap().handle();
    assert_eq!((buffer.state(), transfers()), (SyncState::InStep, (up + 1, down)));
    assert_eq!(on_device(handle), [1.5; 16]);
    for _ in 0..5 {
        assert_eq!(buffer.device().unwrap().handle(), handle);
        assert_eq!(buffer.host::<f32>().unwrap(), [1.5; 16]);
        buffer.sync().unwrap();
    }
    assert_eq!(transfers(), (up + 1, down), "nothing was behind");
    buffer.host_mut::<f32>().unwrap()[3] = 2.0;
    buffer.sync().unwrap();
    assert_eq!((on_device(handle)[3], transfers()), (2.0, (up + 2, down)));
}

pub(super) fn data_that_the_device_wrote_is_downloaded() {
    let _alone = alone();
    let mut buffer = buffer();
    let handle = buffer.device_mut().unwrap().handle();
    assert_eq!(buffer.state(), SyncState::DeviceOnly);
    write_on_device(handle, 4.0);
    let (up, down) = transfers();
    assert_eq!(buffer.host::<f32>().unwrap(), [4.0; 16]);
    assert_eq!((buffer.state(), transfers()), (SyncState::InStep, (up, down + 1)));
    assert_eq!(buffer.host::<f32>().unwrap(), [4.0; 16]);
    let handle = buffer.device_mut().unwrap().handle();
    assert_eq!(buffer.state(), SyncState::DeviceDirty);
    write_on_device(handle, 5.0);
    assert_eq!(buffer.view().unwrap().as_slice::<f32>().unwrap(), [5.0; 16]);
    assert_eq!(transfers(), (up, down + 2));
}

pub(super) fn devices_can_be_changed() {
    let _alone = alone();
    let mut buffer = buffer();
    let handle = buffer.device_mut().unwrap().handle();
    write_on_device(handle, 6.0);
    buffer.set_device(Arc::new(HostDevice)).unwrap();
    assert!(!buffer.is_device());
    assert_eq!(buffer.host::<f32>().unwrap(), [6.0; 16]);
    buffer.set_device(Arc::new(context().clone())).unwrap();
    assert_eq!(on_device(buffer.device().unwrap().handle()), [6.0; 16]);
}

pub(super) fn lengths_must_match() {
    let mut memory = context().allocate(10).unwrap();
    assert!(matches!(memory.upload(&[0; 9]), Err(Error::TransferLen { device: 10, host: 9 })));
    assert!(matches!(memory.download(&mut [0; 11]), Err(Error::TransferLen { host: 11, .. })));
    memory.upload(&[5; 10]).unwrap();
    let mut back = [0; 10];
    memory.download(&mut back).unwrap();
    assert_eq!(back, [5; 10]);
    assert!(memory.host_bytes().is_none());
}
