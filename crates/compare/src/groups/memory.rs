//! Single tensors: created, mapped, shared.

use std::os::unix::net::UnixStream;

use cenote::{DType, Tensor, TensorMemory, TensorOptions};
use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, memfd_create};

use crate::Result;
use crate::mapping::Mapping;
use crate::measure::rounds::{Schedule, Subject, interleave};
use crate::measure::series::Series;

/// The name of the group.
pub(crate) const GROUP: &str = "memory";

const SHAPE: [usize; 3] = [1080, 1920, 3];

/// Measures the group.
pub(crate) fn run(schedule: Schedule) -> Result<Vec<Series>> {
    let mut all = Vec::new();
    for memory in [TensorMemory::Mem, TensorMemory::Shm] {
        all.extend(new(schedule, memory)?);
        all.extend(mapped(schedule, memory)?);
    }
    all.extend(shared(schedule)?);
    all.extend(only_cenote(schedule)?);
    Ok(all)
}

fn options(memory: TensorMemory) -> TensorOptions {
    Tensor::options().memory(memory)
}

/// A tensor whose every page was written.
fn frame(memory: TensorMemory) -> Result<Tensor> {
    let mut frame = options(memory).create(&SHAPE, DType::U8)?;
    frame.map_mut()?.as_mut_bytes()?.fill(1);
    Ok(frame)
}

fn new(schedule: Schedule, memory: TensorMemory) -> Result<Vec<Series>> {
    let options = options(memory);
    let mut subjects = vec![Subject::new("cenote", || Ok(options.create(&SHAPE, DType::U8)?))];
    #[cfg(feature = "peers")]
    subjects.push(Subject::new("edgefirst-tensor", move || edgefirst::new(memory)));
    match memory {
        TensorMemory::Mem => {
            subjects.push(Subject::new("mmap", || Mapping::private(crate::FRAME)));
            subjects.push(Subject::new("vec![0; n]", || {
                Ok(vec![0_u8; std::hint::black_box(crate::FRAME)])
            }));
        }
        _ => subjects.push(Subject::new("memfd, fallocate, mmap", memfd)),
    }
    interleave(schedule, GROUP, &format!("new 1080p, {memory}"), subjects)
}

/// Shared memory with every page reserved.
fn memfd() -> Result<Mapping> {
    let fd = memfd_create("compare", MemfdFlags::CLOEXEC)?;
    fallocate(&fd, FallocateFlags::empty(), 0, crate::FRAME as u64)?;
    Mapping::shared(&fd, crate::FRAME, true)
}

fn mapped(schedule: Schedule, memory: TensorMemory) -> Result<Vec<Series>> {
    let tensor = frame(memory)?;
    let mut subjects =
        vec![Subject::new("cenote", || Ok(std::hint::black_box(&tensor).map()?.as_bytes()?.len()))];
    #[cfg(feature = "peers")]
    {
        let other = edgefirst::frame(memory)?;
        subjects.push(Subject::new("edgefirst-tensor", move || edgefirst::map(&other)));
    }
    interleave(schedule, GROUP, &format!("map, {memory}"), subjects)
}

fn shared(schedule: Schedule) -> Result<Vec<Series>> {
    let tensor = frame(TensorMemory::Shm)?;
    #[cfg(feature = "peers")]
    let other = edgefirst::frame(TensorMemory::Shm)?;
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
        clones.push(Subject::new("edgefirst-tensor", || edgefirst::clone_fd(&other)));
        imports.push(Subject::new("edgefirst-tensor", || edgefirst::import(&other)));
        let read = || edgefirst::first_byte(&edgefirst::import(&other)?);
        import_maps.push(Subject::new("edgefirst-tensor", read));
    }
    let mut all = interleave(schedule, GROUP, "clone_fd, shm", clones)?;
    all.extend(interleave(schedule, GROUP, "clone_fd, import, shm", imports)?);
    let work = "clone_fd, import, map, read a byte, shm";
    all.extend(interleave(schedule, GROUP, work, import_maps)?);
    Ok(all)
}

/// Operations that only cenote has.
fn only_cenote(schedule: Schedule) -> Result<Vec<Series>> {
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
        all.extend(interleave(schedule, GROUP, work, vec![subject])?);
    }
    Ok(all)
}

#[cfg(feature = "peers")]
mod edgefirst {
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
