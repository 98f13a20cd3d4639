//! Heaps that DMA-BUFs come from, and errors when there is none.

use std::collections::HashSet;
use std::os::unix::process::CommandExt;
use std::process::Command;

use cenote::{DType, Error, PixelFormat, Protection, Tensor, TensorMemory, Unavailable};

use super::{Role, Test, dma, from_heap, over_both};
use crate::support::peer::ROLE;

pub(super) const TESTS: &[Test] = &[
    ("heaps_are_tried_first_and_named", heaps_are_tried_first_and_named),
    ("memory_is_protected_without_a_request", memory_is_protected_without_a_request),
    ("one_heap_can_be_requested", one_heap_can_be_requested),
    ("a_heap_that_is_not_there_is_an_error_that_names_it", a_heap_that_is_not_there),
    ("names_that_lead_elsewhere_are_errors", names_that_lead_elsewhere_are_errors),
    ("without_permission_the_error_has_the_reason", without_permission_the_error_has_the_reason),
    ("a_heap_that_is_full_is_an_error", a_heap_that_is_full_is_an_error),
    ("more_than_a_udmabuf_may_have_is_an_error", more_than_a_udmabuf_may_have_is_an_error),
    ("rows_are_aligned_for_hardware", rows_are_aligned_for_hardware),
    ("buffers_show_their_names", buffers_show_their_names),
    ("many_at_once", many_at_once),
];

pub(super) const ROLES: &[Role] = &[("unprivileged", unprivileged)];

fn heaps_are_tried_first_and_named() {
    assert!(TensorMemory::Dma.is_available());
    let tensor = dma().create(&[100, 100], DType::F32).unwrap();
    assert_eq!(tensor.memory(), TensorMemory::Dma);
    assert_eq!(tensor.selection().dma_heap(), Some("system"));
    assert_eq!(tensor.selection().to_string(), "dma (allocated from system)");
    assert!(tensor.to_vec::<f32>().unwrap().iter().all(|&value| value == 0.0));
}

fn memory_is_protected_without_a_request() {
    let mut tensor = Tensor::new(&[100, 100], DType::F32).unwrap();
    assert_eq!(tensor.selection().to_string(), "dma (allocated from udmabuf)");
    assert_eq!(tensor.protection(), Protection::Kernel);
    let other = tensor.clone();
    tensor.make_mut().unwrap();
    assert_eq!(tensor.selection().dma_heap(), Some("udmabuf"), "a copy is, too");
    drop(other);
    let copy = dma().create(&[4], DType::U8).unwrap().to_contiguous().unwrap();
    assert_eq!(copy.selection().dma_heap(), Some("system"), "a copy of what was asked for");

    // The user of the program can request it through the environment, too.
    from_heap("system", || {
        let tensor = Tensor::new(&[10], DType::U8).unwrap();
        assert_eq!(tensor.selection().dma_heap(), Some("system"));
    });
}

fn one_heap_can_be_requested() {
    over_both(|heap| {
        let tensor = dma().create(&[10], DType::U8).unwrap();
        assert_eq!(tensor.selection().dma_heap(), Some(heap));
        let expected = match heap {
            "udmabuf" => Protection::Kernel,
            _ => Protection::Convention,
        };
        assert_eq!(tensor.protection(), expected);
    });
}

fn a_heap_that_is_not_there() {
    from_heap("linux,cma", || {
        let error = dma().create(&[10], DType::U8).unwrap_err();
        assert!(error.to_string().contains("/dev/dma_heap/linux,cma: No such file"), "{error}");
        let Error::Unavailable { memory: "dma", why: Unavailable::NoDevice { tried } } = error
        else {
            panic!("{error}");
        };
        assert_eq!(tried.len(), 1);
        assert!(!TensorMemory::Dma.is_available());

        // A request for any memory gets another kind, and the reason.
        let any = Tensor::new(&[10], DType::U8).unwrap();
        assert_eq!(any.memory(), TensorMemory::Shm);
        assert!(any.selection().to_string().contains("not dma: /dev/dma_heap/linux,cma"));
        let packed = Tensor::image(10, 10, PixelFormat::Rgb8).unwrap();
        assert_eq!((packed.memory(), packed.row_stride()), (TensorMemory::Shm, None));
    });
}

fn names_that_lead_elsewhere_are_errors() {
    for name in ["", "../null", "/dev/null", ".", "system/"] {
        from_heap(name, || {
            let error = dma().create(&[10], DType::U8).unwrap_err();
            assert!(matches!(error, Error::Unavailable { memory: "dma", .. }), "{name}: {error}");
        });
    }
}

/// Only root may open the devices.
fn without_permission_the_error_has_the_reason() {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let output = command.env(ROLE, "unprivileged").uid(65534).gid(65534).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    for path in ["/dev/dma_heap/system", "/dev/udmabuf"] {
        assert!(said.contains(&format!("{path}: Permission denied")), "{said}");
    }
}

fn unprivileged(_: &[&str]) {
    println!("{}", dma().create(&[10], DType::U8).unwrap_err());
    let any = Tensor::new(&[10], DType::U8).unwrap();
    println!("{}", any.selection());
    assert_eq!(any.memory(), TensorMemory::Shm);
}

fn a_heap_that_is_full_is_an_error() {
    const MORE: usize = 16 << 20;
    let _little = Ballast::leaving(200 << 20);
    over_both(|heap| {
        let mut held = Vec::new();
        let error = loop {
            match dma().create(&[MORE], DType::U8) {
                Ok(tensor) => held.push(tensor),
                Err(error) => break error,
            }
            assert!(held.len() < 100, "the machine has not that much");
        };
        assert!(held.len() > 2, "{heap}: {error}");
        assert!(
            matches!(error, Error::OutOfMemory { .. } | Error::Unavailable { memory: "dma", .. }),
            "{error}"
        );
        drop(held);
        assert!(dma().create(&[MORE], DType::U8).is_ok(), "what was dropped can be had again");
    });
}

/// Memory reserved for huge pages. That is quick, and leaves little memory to fill.
struct Ballast(String);

impl Ballast {
    const PAGES: &str = "/proc/sys/vm/nr_hugepages";

    fn leaving(bytes: usize) -> Ballast {
        let before = std::fs::read_to_string(Self::PAGES).unwrap();
        let info = std::fs::read_to_string("/proc/meminfo").unwrap();
        let line = info.lines().find_map(|line| line.strip_prefix("MemAvailable:")).unwrap();
        let available: usize = line.trim().trim_end_matches(" kB").parse().unwrap();
        let pages = (available << 10).saturating_sub(bytes) >> 21;
        std::fs::write(Self::PAGES, pages.to_string()).unwrap();
        Ballast(before)
    }
}

impl Drop for Ballast {
    fn drop(&mut self) {
        std::fs::write(Self::PAGES, self.0.trim()).unwrap();
    }
}

/// The driver has a limit of 64 MiB, beyond which it returns an error.
fn more_than_a_udmabuf_may_have_is_an_error() {
    from_heap("udmabuf", || {
        let error = dma().create(&[65 << 20], DType::U8).unwrap_err();
        assert!(error.to_string().contains("/dev/udmabuf: Invalid argument"), "{error}");
    });
}

fn rows_are_aligned_for_hardware() {
    let image = dma().image(100, 10, PixelFormat::Rgb8).unwrap();
    assert_eq!(image.row_stride(), Some(320));
    assert_eq!(image.selection().row_alignment(), Some(64));
    let said = image.selection().to_string();
    assert_eq!(said, "dma (allocated from system, rows at multiples of 64 bytes)");

    let chosen = Tensor::image(100, 10, PixelFormat::Rgb8).unwrap();
    assert_eq!((chosen.memory(), chosen.row_stride()), (TensorMemory::Dma, Some(320)));

    let asked = dma().row_alignment(256).image(100, 10, PixelFormat::Rgb8).unwrap();
    assert_eq!((asked.row_stride(), asked.selection().row_alignment()), (Some(512), None));
    let packed = dma().row_alignment(1).image(100, 10, PixelFormat::Rgb8).unwrap();
    assert_eq!(packed.row_stride(), None);
}

fn buffers_show_their_names() {
    over_both(|_| {
        let name = "a name that is longer than the kernel has room for";
        let tensor = dma().name(name).create(&[10], DType::U8).unwrap();
        let fd = std::os::fd::AsRawFd::as_raw_fd(&tensor.dmabuf().unwrap());
        let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).unwrap();
        assert!(info.contains(&format!("name:\t{}\n", &name[..31])), "{info}");
    });
}

fn many_at_once() {
    let tensors: Vec<Tensor> =
        (0..200).map(|_| dma().create(&[5000], DType::U8).unwrap()).collect();
    let inode = |tensor: &Tensor| rustix::fs::fstat(tensor.dmabuf().unwrap()).unwrap().st_ino;
    let inodes: HashSet<u64> = tensors.iter().map(inode).collect();
    assert_eq!(inodes.len(), 200);
}
