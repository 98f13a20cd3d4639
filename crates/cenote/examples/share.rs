//! One process shares a 1080p image with another; no pixel is copied.
//!
//! The parent writes an image into shared memory, and sends the tensor over a Unix socket, which is the standard input of
//! the child. The child checks every pixel; a mismatch is an error.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::{env, error::Error, io};

use cenote::{PixelFormat, Tensor, TensorMemory};

fn main() -> Result<(), Box<dyn Error>> {
    match env::args().nth(1) {
        None => parent(),
        Some(expected) => child(expected.parse()?),
    }
}

fn parent() -> Result<(), Box<dyn Error>> {
    let options = Tensor::options().memory(TensorMemory::Shm).name("demo");
    let mut frame = options.image(1920, 1080, PixelFormat::Rgb8)?;
    for (byte, value) in frame.map_mut()?.as_mut_slice()?.iter_mut().zip((0..251u8).cycle()) {
        *byte = value;
    }
    println!("parent: {:?}, {} bytes in {}", frame.shape(), frame.nbytes(), frame.selection());

    let (here, there) = UnixStream::pair()?;
    let mut child = Command::new(env::current_exe()?);
    child.arg(checksum(&frame)?.to_string()).stdin(OwnedFd::from(there));
    frame.send(&here)?; // the socket keeps it until the child runs
    assert!(frame.map_mut().is_err(), "a sent tensor is immutable");
    let status = child.status()?;
    println!("parent: child: {status}");
    status.success().then_some(()).ok_or_else(|| "the child failed".into())
}

fn child(expected: u64) -> Result<(), Box<dyn Error>> {
    let mut frame = Tensor::recv(io::stdin())?;
    assert_eq!((frame.shape(), frame.format()), (&[1080, 1920, 3][..], Some(PixelFormat::Rgb8)));
    assert_eq!(checksum(&frame)?, expected, "the pixels differ");
    println!("child:  {:?} in {}, checksum matches", frame.shape(), frame.selection());

    let roi = frame.roi(800, 400, 320, 240)?;
    assert_eq!(roi.map()?.get::<u8>(&[0, 0, 1])?, frame.map()?.get::<u8>(&[400, 800, 1])?);
    let copied: u64 = cenote::copies().iter().map(|copies| copies.bytes).sum();
    assert_eq!(copied, 0);
    println!("child:  region of interest {:?}; bytes copied: {copied}", roi.shape());

    drop(roi);
    let refused = frame.map_mut().err().ok_or("a received tensor must not be writable")?;
    println!("child:  map_mut is refused: {refused}");
    Ok(())
}

fn checksum(frame: &Tensor) -> cenote::Result<u64> {
    let sum = |sum: u64, &byte: &u8| sum.wrapping_mul(31).wrapping_add(byte.into());
    Ok(frame.map()?.as_bytes()?.iter().fold(0, sum))
}
