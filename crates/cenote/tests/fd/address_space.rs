//! Dropped tensors give their address space back.

use std::fs;

use cenote::{DType, Tensor, TensorMemory};

use super::socket::send_and_receive;
use super::{Case, cases, shm};

pub(super) const CASES: &[Case] = cases![dropped_tensors_leave_no_mapping];

fn dropped_tensors_leave_no_mapping() {
    let round = || {
        for memory in [TensorMemory::Mem, TensorMemory::Shm] {
            for align in [64, 2 << 20] {
                let options = Tensor::options().memory(memory).alignment(align);
                let tensor = options.huge_pages(align > 64).create(&[4 << 20], DType::U8).unwrap();
                let view = tensor.narrow(0, 1, 100).unwrap();
                drop(tensor);
                drop(view);
            }
        }
        let tensor = shm().create(&[4 << 20], DType::U8).unwrap();
        drop(send_and_receive(&tensor));
        let _ = Tensor::from_fd(tensor.clone_fd().unwrap(), &[5 << 20], DType::U8);
    };
    round();
    let before = address_space();
    (0..50).for_each(|_| round());
    // Each round maps 24 MiB. The allocator may keep less than that.
    let growth = address_space().saturating_sub(before);
    assert!(growth < 24 << 20, "{growth} bytes");
}

/// Bytes of address space in use.
fn address_space() -> usize {
    let statm = fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = statm.split(' ').next().unwrap().parse().unwrap();
    pages * rustix::param::page_size()
}
