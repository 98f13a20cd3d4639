//! Tensors by themselves: made, mapped, shared.

use std::os::unix::net::UnixStream;

use cenote::{DType, Tensor, TensorMemory, TensorOptions};
use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, memfd_create};

use crate::Result;
use crate::pace::{Pace, Subject, interleave};
use crate::region::Region;
use crate::series::Series;

/// What it is called.
pub(crate) const GROUP: &str = "memory";

const SHAPE: [usize; 3] = [1080, 1920, 3];

/// All of it.
pub(crate) fn run(pace: Pace) -> Result<Vec<Series>> {
    let mut all = Vec::new();
    for memory in [TensorMemory::Mem, TensorMemory::Shm] {
        all.extend(new(pace, memory)?);
        all.extend(mapped(pace, memory)?);
    }
    all.extend(shared(pace)?);
    all.extend(ours(pace)?);
    Ok(all)
}

fn options(memory: TensorMemory) -> TensorOptions {
    Tensor::options().memory(memory)
}

/// Every page of it has been written.
fn frame(memory: TensorMemory) -> Result<Tensor> {
    let mut frame = options(memory).create(&SHAPE, DType::U8)?;
    frame.map_mut()?.as_mut_bytes()?.fill(1);
    Ok(frame)
}

fn new(pace: Pace, memory: TensorMemory) -> Result<Vec<Series>> {
    let options = options(memory);
    let mut subjects = vec![Subject::new("cenote", || Ok(options.create(&SHAPE, DType::U8)?))];
    #[cfg(feature = "peers")]
    subjects.push(Subject::new("edgefirst-tensor", move || theirs::new(memory)));
    match memory {
        TensorMemory::Mem => {
            subjects.push(Subject::new("mmap", || Region::private(crate::FRAME)));
            subjects.push(Subject::new("vec![0; n]", || {
                Ok(vec![0_u8; std::hint::black_box(crate::FRAME)])
            }));
        }
        _ => subjects.push(Subject::new("memfd, fallocate, mmap", memfd)),
    }
    interleave(pace, GROUP, &format!("new 1080p, {memory}"), subjects)
}

/// Shared memory with every page reserved.
fn memfd() -> Result<Region> {
    let fd = memfd_create("floor", MemfdFlags::CLOEXEC)?;
    fallocate(&fd, FallocateFlags::empty(), 0, crate::FRAME as u64)?;
    Region::shared(&fd, crate::FRAME, true)
}

fn mapped(pace: Pace, memory: TensorMemory) -> Result<Vec<Series>> {
    let tensor = frame(memory)?;
    let mut subjects =
        vec![Subject::new("cenote", || Ok(std::hint::black_box(&tensor).map()?.as_bytes()?.len()))];
    #[cfg(feature = "peers")]
    {
        let theirs = theirs::frame(memory)?;
        subjects.push(Subject::new("edgefirst-tensor", move || theirs::map(&theirs)));
    }
    interleave(pace, GROUP, &format!("map, {memory}"), subjects)
}

fn shared(pace: Pace) -> Result<Vec<Series>> {
    let tensor = frame(TensorMemory::Shm)?;
    #[cfg(feature = "peers")]
    let other = theirs::frame(TensorMemory::Shm)?;
    let mut clones = vec![Subject::new("cenote", || Ok(tensor.clone_fd()?))];
    let import = || Ok(Tensor::from_fd(tensor.clone_fd()?, &SHAPE, DType::U8)?);
    let mut imports = vec![Subject::new("cenote", import)];
    let import_map = || {
        let there = Tensor::from_fd(tensor.clone_fd()?, &SHAPE, DType::U8)?;
        let first = there.map()?.as_slice::<u8>()?[0];
        Ok(first)
    };
    let mut import_maps = vec![Subject::new("cenote", import_map)];
    #[cfg(feature = "peers")]
    {
        clones.push(Subject::new("edgefirst-tensor", || theirs::clone_fd(&other)));
        imports.push(Subject::new("edgefirst-tensor", || theirs::import(&other)));
        let read = || theirs::first_byte(&theirs::import(&other)?);
        import_maps.push(Subject::new("edgefirst-tensor", read));
    }
    let mut all = interleave(pace, GROUP, "clone_fd, shm", clones)?;
    all.extend(interleave(pace, GROUP, "clone_fd, import, shm", imports)?);
    let work = "clone_fd, import, map, read a byte, shm";
    all.extend(interleave(pace, GROUP, work, import_maps)?);
    Ok(all)
}

/// What nobody else has.
fn ours(pace: Pace) -> Result<Vec<Series>> {
    let tensor = frame(TensorMemory::Shm)?;
    let mut unique = frame(TensorMemory::Shm)?;
    let (here, there) = UnixStream::pair()?;
    let sent = || {
        tensor.send(&here)?;
        Ok(Tensor::recv(&there)?)
    };
    let works = [
        (
            "map_mut, shm",
            Subject::new("cenote", move || Ok(unique.map_mut()?.as_mut_bytes()?.len())),
        ),
        ("clone a handle", Subject::new("cenote", || Ok(tensor.clone()))),
        ("region of interest", Subject::new("cenote", || Ok(tensor.roi(600, 200, 64, 64)?))),
        ("send + recv over a Unix socket", Subject::new("cenote", sent)),
    ];
    let mut all = Vec::new();
    for (work, subject) in works {
        all.extend(interleave(pace, GROUP, work, vec![subject])?);
    }
    Ok(all)
}

#[cfg(feature = "peers")]
mod theirs {
    use std::os::fd::OwnedFd;

    use edgefirst_tensor::{Tensor, TensorMapTrait, TensorMemory, TensorTrait};

    use super::SHAPE;
    use crate::Result;

    fn kind(memory: cenote::TensorMemory) -> TensorMemory {
        match memory {
            cenote::TensorMemory::Mem => TensorMemory::Mem,
            _ => TensorMemory::Shm,
        }
    }

    pub(crate) fn new(memory: cenote::TensorMemory) -> Result<Tensor<u8>> {
        Ok(Tensor::new(&SHAPE, Some(kind(memory)), None)?)
    }

    pub(crate) fn frame(memory: cenote::TensorMemory) -> Result<Tensor<u8>> {
        let frame = new(memory)?;
        frame.map()?.as_mut_slice().fill(1);
        Ok(frame)
    }

    pub(crate) fn map(tensor: &Tensor<u8>) -> Result<usize> {
        Ok(std::hint::black_box(tensor.map()?.as_slice()).len())
    }

    pub(crate) fn first_byte(tensor: &Tensor<u8>) -> Result<u8> {
        Ok(tensor.map()?.as_slice()[0])
    }

    pub(crate) fn clone_fd(tensor: &Tensor<u8>) -> Result<OwnedFd> {
        Ok(tensor.clone_fd()?)
    }

    pub(crate) fn import(tensor: &Tensor<u8>) -> Result<Tensor<u8>> {
        Ok(Tensor::from_fd(tensor.clone_fd()?, &SHAPE, None)?)
    }
}
