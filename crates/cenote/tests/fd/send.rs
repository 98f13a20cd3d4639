//! Tensors sent over sockets.

use std::fs::File;
use std::io::ErrorKind;

use cenote::{DType, Error, NotWritable, PixelFormat, PlaneDescriptor, Tensor, TensorMemory};

use super::memory_file::sealed;
use super::socket::{message_of, os_error, packets, send_and_receive, streams};
use super::{Case, cases, counting, shm};

pub(super) const CASES: &[Case] = cases![
    only_unix_sockets_carry_tensors
    tensors_are_sent_over_streams_and_packets
    views_keep_their_layout
    images_keep_their_format_and_planes
    planes_of_several_files_are_sent
    many_messages_keep_their_order
    a_received_tensor_can_be_sent_again
    a_closed_peer_is_an_error
    a_socket_that_would_block_loses_nothing
    a_file_is_not_a_socket
];

fn tensors_are_sent_over_streams_and_packets() {
    for pair in [streams, packets] {
        for dtype in DType::all() {
            let (here, there) = pair();
            let mut tensor = shm().create(&[2, 3], dtype).unwrap();
            tensor.map_mut().unwrap().as_mut_bytes().unwrap().fill(1);
            tensor.send(&here).unwrap();
            let received = Tensor::recv(&there).unwrap();
            assert_eq!((received.shape(), received.dtype()), (tensor.shape(), dtype));
            assert_eq!(received.memory(), TensorMemory::Shm);
            assert_eq!(received.not_writable(), Some(NotWritable::Received));
            let map = received.map().unwrap();
            assert_eq!(map.as_bytes().unwrap(), tensor.map().unwrap().as_bytes().unwrap());
        }
    }
}

fn views_keep_their_layout() {
    let tensor = counting(&[3, 4, 5]);
    let views = [
        tensor.index(1, 2).unwrap(),
        tensor.transpose(),
        tensor.flip(0).unwrap().flip(2).unwrap(),
        tensor.slice(2, 1..5, 3).unwrap(),
        tensor.reshape(&[1, 3, 1, 4, 1, 5, 1, 1]).unwrap(),
        tensor.index(0, 1).unwrap().index(0, 1).unwrap().index(0, 1).unwrap(),
    ];
    for view in views {
        let received = send_and_receive(&view);
        assert_eq!(received.layout(), view.layout());
        assert_eq!(received.to_vec::<u16>().unwrap(), view.to_vec::<u16>().unwrap());
    }
}

fn images_keep_their_format_and_planes() {
    for format in PixelFormat::all() {
        let image = shm().row_alignment(32).image(7, 5, format).unwrap();
        let received = send_and_receive(&image);
        assert_eq!((received.format(), received.image_size()), (Some(format), Some((7, 5))));
        assert_eq!(received.layout(), image.layout());
        let roi = send_and_receive(&image.roi(2, 2, 5, 3).unwrap());
        assert_eq!((roi.format(), roi.image_size()), (Some(format), Some((5, 3))));
        for index in 0..format.plane_count() {
            assert_eq!(
                roi.plane(index).unwrap().layout(),
                image.roi(2, 2, 5, 3).unwrap().plane(index).unwrap().layout()
            );
        }
    }
}

fn planes_of_several_files_are_sent() {
    let luma = sealed(&(0..24).collect::<Vec<u8>>());
    let chroma = sealed(&(100..112).collect::<Vec<u8>>());
    let planes = vec![PlaneDescriptor::new(luma).unwrap(), PlaneDescriptor::new(chroma).unwrap()];
    let image = Tensor::from_planes(6, 4, PixelFormat::Nv12, planes).unwrap();
    let received = send_and_receive(&image);
    assert_eq!(received.image_size(), Some((6, 4)));
    assert!(received.plane(0).unwrap().to_vec::<u8>().unwrap().into_iter().eq(0..24));
    assert!(received.plane(1).unwrap().to_vec::<u8>().unwrap().into_iter().eq(100..112));
    let part = send_and_receive(&received.roi(2, 2, 4, 2).unwrap());
    assert_eq!(part.plane(0).unwrap().to_vec::<u8>().unwrap(), [14, 15, 16, 17, 20, 21, 22, 23]);
    assert_eq!(part.plane(1).unwrap().to_vec::<u8>().unwrap(), [108, 109, 110, 111]);
    // Two regions of one buffer need one descriptor.
    let (_, fds) =
        message_of(&shm().image(8, 8, PixelFormat::I420).unwrap().roi(2, 2, 4, 4).unwrap());
    assert_eq!(fds.len(), 1);
}

fn many_messages_keep_their_order() {
    for pair in [streams, packets] {
        let (here, there) = pair();
        for round in 0..3 {
            let tensors: Vec<Tensor> =
                (0..8).map(|i| shm().create_from_slice(&[i, round], &[2]).unwrap()).collect();
            tensors.iter().for_each(|tensor| tensor.send(&here).unwrap());
            drop(tensors);
            for i in 0..8u8 {
                assert_eq!(Tensor::recv(&there).unwrap().to_vec::<u8>().unwrap(), [i, round]);
            }
        }
    }
}

fn a_received_tensor_can_be_sent_again() {
    let tensor = counting(&[3, 4]);
    let twice = send_and_receive(&send_and_receive(&tensor.transpose()).index(0, 1).unwrap());
    assert_eq!(twice.to_vec::<u16>().unwrap(), [1, 5, 9]);
}

fn a_closed_peer_is_an_error() {
    for pair in [streams, packets] {
        let (here, there) = pair();
        drop(there);
        let refused = counting(&[4]).send(&here).map(|()| counting(&[1]));
        assert_eq!(os_error(refused), ErrorKind::BrokenPipe);
        let received = Tensor::recv(&here);
        assert!(
            matches!(received, Err(Error::Disconnected { mid_message: false })),
            "{received:?}"
        );
        // A message sent before the peer closed still arrives.
        let (here, there) = pair();
        counting(&[4]).send(&here).unwrap();
        drop(here);
        assert!(Tensor::recv(&there).unwrap().to_vec::<u16>().unwrap().into_iter().eq(0..4));
        assert!(matches!(Tensor::recv(&there), Err(Error::Disconnected { mid_message: false })));
    }
}

fn a_socket_that_would_block_loses_nothing() {
    for pair in [streams, packets] {
        let (here, there) = pair();
        for socket in [&here, &there] {
            rustix::io::ioctl_fionbio(socket, true).unwrap();
        }
        assert_eq!(os_error(Tensor::recv(&there)), ErrorKind::WouldBlock);
        let tensor = counting(&[4]);
        let mut sent = 0;
        loop {
            match tensor.narrow(0, sent % 4, 1).unwrap().send(&here) {
                Ok(()) => sent += 1,
                Err(Error::Os { source, .. }) if source.kind() == ErrorKind::WouldBlock => break,
                // The kernel limits descriptors in flight.
                Err(Error::Os { source, .. }) => panic!("after {sent}: {source}"),
                Err(error) => panic!("{error}"),
            }
        }
        assert!(sent > 1);
        for i in 0..sent {
            let received = Tensor::recv(&there).unwrap().to_vec::<u16>().unwrap();
            assert_eq!(received, [u16::try_from(i % 4).unwrap()]);
        }
        assert_eq!(os_error(Tensor::recv(&there)), ErrorKind::WouldBlock);
        tensor.send(&here).unwrap();
        assert!(Tensor::recv(&there).unwrap().to_vec::<u16>().unwrap().into_iter().eq(0..4));
    }
}

fn a_file_is_not_a_socket() {
    let file = File::open("/dev/null").unwrap();
    assert!(matches!(Tensor::recv(&file), Err(Error::Os { .. })));
    assert!(matches!(counting(&[4]).send(&file), Err(Error::Os { .. })));
}

fn only_unix_sockets_carry_tensors() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let tcp = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let mut tensor = counting(&[4]);
    assert!(matches!(tensor.send(&tcp), Err(Error::NotUnixSocket)));
    tensor.map_mut().unwrap();
}
