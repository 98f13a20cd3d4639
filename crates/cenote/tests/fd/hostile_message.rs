//! Messages that cenote did not write: damaged, truncated, with other descriptors.

use std::os::fd::{AsFd, OwnedFd};

use cenote::{DType, Error, PixelFormat, PlaneDescriptor, Tensor};
use rustix::fs::SealFlags;

use super::emulation::is_emulated;
use super::memory_file::{memfd, other_descriptors, sealed};
use super::socket::{message_of, packets, recv_raw, send_raw, streams};
use super::{Case, cases, counting, shm};

pub(super) const CASES: &[Case] = cases![
    random_bytes_are_an_error
    truncated_messages_are_errors
    a_packet_of_the_wrong_length_leaves_the_next_intact
    any_flipped_bit_is_an_error_or_a_valid_tensor
    any_flipped_bit_of_planes_is_an_error_or_a_valid_image
    the_number_of_descriptors_must_match_the_message
    a_message_with_another_kind_of_descriptor_is_refused
];

fn random_bytes_are_an_error() {
    let (message, fds) = message_of(&counting(&[4]));
    // A fixed generator, so that every run sends the same bytes.
    let mut state = 1u64;
    let mut byte = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        state.to_be_bytes()[0]
    };
    for round in 0..200 {
        let mut garbage: Vec<u8> = (0..message.len()).map(|_| byte()).collect();
        // Some rounds start with valid bytes, so that later checks are reached as well.
        let right = [0, 8, 11, 16][round % 4];
        garbage[..right].copy_from_slice(&message[..right]);
        let with = &fds[..round % 2];
        assert!(recv_raw(streams, &garbage, with).is_err());
    }
    let zeros = recv_raw(streams, &vec![0; message.len()], &fds);
    assert!(matches!(zeros, Err(Error::BadMessage { .. })));
    let mut other = message;
    other[7] += 1;
    let version = recv_raw(streams, &other, &fds).unwrap_err();
    assert!(matches!(version, Error::BadMessage { .. }) && version.to_string().contains("version"));
}

fn truncated_messages_are_errors() {
    let (message, fds) = message_of(&counting(&[4]));
    for len in [1, 7, 8, 16, message.len() / 2, message.len() - 1] {
        for with in [&fds[..], &[]] {
            let part = recv_raw(streams, &message[..len], with);
            assert!(matches!(part, Err(Error::Disconnected { mid_message: true })), "{part:?}");
            let part = recv_raw(packets, &message[..len], with);
            assert!(matches!(part, Err(Error::BadMessage { .. })), "{part:?}");
        }
    }
    // A message that arrives in pieces is complete.
    let (here, there) = streams();
    send_raw(&here, &message[..1], &[fds[0].as_fd()]);
    message[1..].chunks(7).for_each(|piece| send_raw(&here, piece, &[]));
    assert!(Tensor::recv(&there).unwrap().to_vec::<u16>().unwrap().into_iter().eq(0..4));
}

fn a_packet_of_the_wrong_length_leaves_the_next_intact() {
    let (message, fds) = message_of(&counting(&[4]));
    let long = [&message[..], &message[..]].concat();
    let (here, there) = packets();
    for bad in [&message[..100], &long] {
        send_raw(&here, bad, &[fds[0].as_fd()]);
        counting(&[2]).send(&here).unwrap();
        assert!(Tensor::recv(&there).is_err(), "a packet of {} bytes", bad.len());
        assert_eq!(Tensor::recv(&there).unwrap().to_vec::<u16>().unwrap(), [0, 1]);
    }
}

/// Reads everything a tensor offers. The test is that every call returns.
fn read_everything(tensor: &Tensor) {
    let mut seen = 0u64;
    for plane in 0..tensor.plane_count() {
        let view = tensor.plane(plane).unwrap();
        view.map().unwrap().runs().take(1000).flatten().for_each(|&byte| seen += u64::from(byte));
    }
    let _ = (format!("{tensor:?}"), tensor.image_size(), tensor.row_stride());
    let _ = (tensor.effective_row_stride(), tensor.plane_offset(), tensor.len(), tensor.nbytes());
    let _ = (tensor.map().unwrap().as_bytes().map(<[u8]>::len), tensor.clone());
    if let Some((width, height)) = tensor.image_size() {
        assert!(width > 0 && height > 0);
        let _ = tensor.roi(0, 0, width.div_ceil(2), height.div_ceil(2));
        if tensor.nbytes() < 1 << 20 {
            let copy = tensor.to_contiguous().unwrap();
            assert_eq!(copy.image_size(), tensor.image_size());
        }
    }
    if tensor.len() < 1 << 20 {
        let _ = (tensor.to_vec::<u8>(), tensor.to_vec::<bool>(), tensor.to_vec::<u16>());
        let _ = (tensor.to_array::<u8>(), tensor.to_array::<u16>());
    }
}

/// Sends a message with its right descriptors, once for each changed bit and once for each inverted byte.
/// Returns how many of the changed messages were accepted.
fn flip_every_byte(tensor: &Tensor) -> usize {
    let (message, fds) = message_of(tensor);
    let every: &[u8] = &[1, 2, 4, 8, 16, 32, 64, 128, 255];
    let changes = if is_emulated() { &[1, 128, 255] } else { every };
    let mut valid = 0;
    for at in 0..message.len() {
        for change in changes {
            let mut changed = message.clone();
            changed[at] ^= change;
            if let Ok(tensor) = recv_raw(streams, &changed, &fds) {
                read_everything(&tensor);
                valid += 1;
            }
        }
    }
    valid
}

fn any_flipped_bit_is_an_error_or_a_valid_tensor() {
    let tensor = shm().create_from_slice(&[1u8; 4096], &[4, 64, 16]).unwrap();
    // Bytes that the receiver does not read may change: those of unused axes and views.
    assert!(flip_every_byte(&tensor.narrow(1, 8, 32).unwrap()) > 0);
    flip_every_byte(&shm().row_alignment(64).image(7, 5, PixelFormat::Rgb8).unwrap());
    flip_every_byte(&shm().image(8, 6, PixelFormat::Nv12).unwrap());
    flip_every_byte(&shm().image(8, 6, PixelFormat::PlanarRgb).unwrap());
}

fn any_flipped_bit_of_planes_is_an_error_or_a_valid_image() {
    let luma = sealed(&[1; 4096]);
    let chroma = sealed(&[2; 4096]);
    let planes = vec![PlaneDescriptor::new(luma).unwrap(), PlaneDescriptor::new(chroma).unwrap()];
    flip_every_byte(&Tensor::from_planes(6, 4, PixelFormat::Nv12, planes).unwrap());
    let i420 = shm().image(16, 12, PixelFormat::I420).unwrap();
    flip_every_byte(&i420.roi(2, 2, 8, 6).unwrap());

    // Planes inside their buffers that do not form an image.
    let (message, fds) = message_of(&i420.roi(2, 2, 8, 6).unwrap());
    let view = |index: usize| 16 + 144 * index;
    for (at, word) in [(4, 0u32), (4, 1), (4, 3), (4, 8)] {
        for plane in 0..3 {
            let mut changed = message.clone();
            changed[view(plane) + at..][..4].copy_from_slice(&word.to_ne_bytes());
            // The unused lengths of the shape are 0: make them 1.
            for axis in 2..8 {
                changed[view(plane) + 16 + 8 * axis..][..8].copy_from_slice(&1u64.to_ne_bytes());
            }
            let refused = recv_raw(streams, &changed, &fds);
            assert!(refused.is_err(), "plane {plane} of {word} dimensions: {refused:?}");
        }
    }
    for (axis, len) in [(0, 1u64), (1, 1), (0, 2), (1, 3)] {
        for plane in 0..3 {
            let mut changed = message.clone();
            changed[view(plane) + 16 + 8 * axis..][..8].copy_from_slice(&len.to_ne_bytes());
            let refused = recv_raw(streams, &changed, &fds);
            assert!(refused.is_err(), "plane {plane} with {len} on axis {axis}: {refused:?}");
        }
    }
    let mut changed = message.clone();
    changed[9] = DType::I8.code();
    assert!(recv_raw(streams, &changed, &fds).is_err(), "the format has another dtype");
    let mut changed = message;
    changed[10] = PixelFormat::PlanarRgb.code();
    assert!(
        recv_raw(streams, &changed, &fds).is_err(),
        "another format with the same number of planes"
    );
}

fn the_number_of_descriptors_must_match_the_message() {
    let tensor = counting(&[4]);
    let (message, fds) = message_of(&tensor);
    let bad = |count: usize| {
        let fds: Vec<OwnedFd> = (0..count).map(|_| fds[0].try_clone().unwrap()).collect();
        [streams, packets].map(|pair| recv_raw(pair, &message, &fds).unwrap_err())
    };
    let mut counts = vec![0, 2, 4, 5, 8];
    if is_emulated() {
        eprintln!("note: qemu leaks descriptors that do not fit, so no more than 8 are sent");
    } else {
        counts.extend([9, 30]);
    }
    for count in counts {
        for error in bad(count) {
            assert!(matches!(error, Error::BadMessage { .. }), "{count}: {error}");
        }
    }
    // One more descriptor with every byte: the receiver stops collecting them.
    let (here, there) = streams();
    for byte in &message[..100] {
        send_raw(&here, &[*byte], &[fds[0].as_fd()]);
    }
    assert!(matches!(Tensor::recv(&there), Err(Error::BadMessage { .. })));
}

fn a_message_with_another_kind_of_descriptor_is_refused() {
    let (message, _) = message_of(&counting(&[4]));
    let send = |fd: OwnedFd| recv_raw(streams, &message, &[fd]).unwrap_err();
    for (fd, kind) in other_descriptors() {
        let error = send(fd);
        assert!(matches!(error, Error::WrongFdKind { found } if found == kind), "{error}");
    }
    assert!(matches!(send(memfd(8, SealFlags::empty())), Error::Unsealed));
    assert!(matches!(send(sealed(&[7; 7])), Error::FdTooSmall { needed: 8, size: 7 }));
    assert!(matches!(send(memfd(0, SealFlags::SHRINK)), Error::FdTooSmall { .. }));
}
