//! Images over the planes that a driver hands out, in one file or several.

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use cenote::{Error, PixelFormat, PlaneDescriptor, Tensor};
use rustix::fs::SealFlags;

use super::memory_file::{memfd, other_descriptors, sealed};
use super::{Case, cases};

pub(super) const CASES: &[Case] = cases![
    a_plane_descriptor_duplicates_the_callers_descriptor
    a_plane_descriptor_refuses_a_closed_descriptor
    an_image_is_built_from_one_plane
    an_image_is_built_from_planes_in_one_file
    an_image_is_built_from_planes_in_several_files
    planes_that_do_not_fit_are_refused
];

fn a_plane_descriptor_duplicates_the_callers_descriptor() {
    let fd = sealed(&[7; 8]);
    let plane = PlaneDescriptor::new(&fd).unwrap().with_stride(4).with_offset(2);
    assert_eq!((plane.stride(), plane.offset()), (Some(4), Some(2)));
    assert_ne!(plane.fd().as_raw_fd(), fd.as_raw_fd());
    drop(plane);
    rustix::fs::fstat(&fd).unwrap();
    let plane = PlaneDescriptor::new(fd).unwrap();
    assert_eq!((plane.stride(), plane.offset()), (None, None));
    rustix::fs::fstat(plane.fd()).unwrap();
}

fn a_plane_descriptor_refuses_a_closed_descriptor() {
    // SAFETY: no descriptor of this process has that number, and the call only duplicates it.
    #[allow(unsafe_code, reason = "safe code cannot make a closed descriptor")]
    let closed = unsafe { BorrowedFd::borrow_raw(1_000_000_000) };
    assert!(matches!(PlaneDescriptor::new(closed), Err(Error::Os { .. })));
}

fn plane(fd: &OwnedFd) -> PlaneDescriptor {
    PlaneDescriptor::new(fd).unwrap()
}

fn an_image_is_built_from_one_plane() {
    let bytes: Vec<u8> = (0..=255).collect();
    let file = sealed(&bytes);
    let one =
        |width, height, format, plane| Tensor::from_planes(width, height, format, vec![plane]);
    let rgb = one(3, 4, PixelFormat::Rgb8, plane(&file).with_stride(16).with_offset(20)).unwrap();
    assert_eq!((rgb.image_size(), rgb.row_stride()), (Some((3, 4)), Some(16)));
    assert_eq!(rgb.plane_offset(), Some(20));
    assert_eq!(rgb.index(0, 3).unwrap().to_vec::<u8>().unwrap(), (68..77).collect::<Vec<u8>>());
    let nv12 = one(6, 4, PixelFormat::Nv12, plane(&file)).unwrap();
    assert_eq!((nv12.row_stride(), nv12.shape()), (None, &[6, 6][..]));
    assert!(nv12.plane(1).unwrap().to_vec::<u8>().unwrap().into_iter().eq(24..36));
    let odd = one(5, 3, PixelFormat::I420, plane(&file).with_offset(1)).unwrap();
    assert_eq!(odd.plane(2).unwrap().to_vec::<u8>().unwrap(), [25, 26, 27, 28, 29, 30]);

    let refused = one(3, 4, PixelFormat::Rgb8, plane(&file).with_stride(8));
    assert!(matches!(refused, Err(Error::BadRowStride { min: 9, .. })));
    let refused = one(3, 4, PixelFormat::Rgb8, plane(&file).with_stride(usize::MAX));
    assert!(refused.is_err());
    let refused = one(3, 4, PixelFormat::Rgb8, plane(&file).with_offset(221));
    assert!(matches!(refused, Err(Error::FdTooSmall { needed: 257, size: 256 })));
    assert!(one(3, 4, PixelFormat::Rgb8, plane(&file).with_offset(220)).is_ok());
    assert!(one(3, 4, PixelFormat::Rgb8, plane(&file).with_offset(usize::MAX)).is_err());
    assert!(one(0, 4, PixelFormat::Rgb8, plane(&file)).is_err());
    assert!(one(usize::MAX, usize::MAX, PixelFormat::Nv12, plane(&file)).is_err());
    // The last row of chroma must be inside the file as well.
    assert!(one(16, 10, PixelFormat::Nv12, plane(&file).with_offset(16)).is_ok());
    assert!(one(16, 10, PixelFormat::Nv12, plane(&file).with_offset(17)).is_err());
}

fn an_image_is_built_from_planes_in_one_file() {
    let bytes: Vec<u8> = (0..=255).collect();
    let file = sealed(&bytes);
    let nv12 = |luma, chroma| Tensor::from_planes(6, 4, PixelFormat::Nv12, vec![luma, chroma]);
    // At the positions of the format: an ordinary tensor.
    for image in [
        nv12(plane(&file), plane(&file)),
        nv12(plane(&file), plane(&file).with_offset(24)),
        nv12(plane(&file).with_stride(6), plane(&file).with_stride(6)),
    ] {
        let image = image.unwrap();
        assert_eq!(image.shape(), [6, 6]);
        assert!(image.plane(1).unwrap().to_vec::<u8>().unwrap().into_iter().eq(24..36));
    }
    let base = nv12(plane(&file).with_offset(10), plane(&file)).unwrap();
    assert_eq!(base.plane(1).unwrap().plane_offset(), Some(34));
    // Elsewhere in the file, as by a driver that aligns planes.
    let separate =
        nv12(plane(&file).with_stride(8), plane(&file).with_offset(64).with_stride(16)).unwrap();
    assert_eq!((separate.shape(), separate.image_size()), (&[4, 6][..], Some((6, 4))));
    assert_eq!(separate.row_stride(), Some(8));
    let chroma = separate.plane(1).unwrap();
    assert!(chroma.index(0, 1).unwrap().to_vec::<u8>().unwrap().into_iter().eq(80..86));
    assert_eq!(chroma.buffer_identity().id(), separate.buffer_identity().id(), "mapped once");
    assert!(matches!(
        nv12(plane(&file).with_stride(8), plane(&file).with_stride(5)),
        Err(Error::BadRowStride { .. })
    ));
}

fn an_image_is_built_from_planes_in_several_files() {
    let (luma, chroma) =
        (sealed(&(0..64).collect::<Vec<u8>>()), sealed(&(64..128).collect::<Vec<u8>>()));
    let image = |planes| Tensor::from_planes(6, 4, PixelFormat::I420, planes).unwrap();
    let read = |image: &Tensor, index| image.plane(index).unwrap().to_vec::<u8>().unwrap();
    // Both chroma planes in one file, one after the other.
    let two = image(vec![plane(&luma), plane(&chroma), plane(&chroma)]);
    assert!(read(&two, 0).into_iter().eq(0..24));
    assert!(read(&two, 1).into_iter().eq(64..70));
    assert!(read(&two, 2).into_iter().eq(70..76));
    let moved =
        image(vec![plane(&luma).with_offset(8), plane(&chroma).with_offset(16), plane(&chroma)]);
    assert!(read(&moved, 0).into_iter().eq(8..32));
    assert!(read(&moved, 1).into_iter().eq(80..86));
    assert!(read(&moved, 2).into_iter().eq(86..92));
    let mixed = image(vec![plane(&luma), plane(&chroma), plane(&luma).with_offset(40)]);
    assert!(read(&mixed, 2).into_iter().eq(40..46));
    let strided =
        image(vec![plane(&luma).with_stride(10), plane(&chroma), plane(&luma).with_offset(50)]);
    assert_eq!(read(&strided, 1), [64, 65, 66, 69, 70, 71], "half of the luma's stride");
    assert_ne!(
        two.plane(1).unwrap().buffer_identity().id(),
        two.buffer_identity().id(),
        "another file is another buffer"
    );
    assert_eq!(two.to_contiguous().unwrap().shape(), [6, 6]);
    assert!(
        two.to_contiguous().unwrap().to_vec::<u8>().unwrap().into_iter().eq((0..24).chain(64..76))
    );
}

fn planes_that_do_not_fit_are_refused() {
    let file = sealed(&[7; 64]);
    let small = sealed(&[7; 11]);
    let nv12 = |planes| Tensor::from_planes(6, 4, PixelFormat::Nv12, planes).unwrap_err();
    assert!(matches!(nv12(vec![]), Error::PlaneCount { expected: 2, given: 0, .. }));
    let three = vec![plane(&file), plane(&file), plane(&file)];
    assert!(matches!(nv12(three), Error::PlaneCount { given: 3, .. }));
    let short = nv12(vec![plane(&file), plane(&small)]);
    assert!(matches!(short, Error::FdTooSmall { needed: 12, size: 11 }), "{short}");
    nv12(vec![plane(&file).with_offset(41), plane(&small)]);
    nv12(vec![plane(&file), plane(&file).with_offset(53)]);
    nv12(vec![plane(&file), plane(&file).with_offset(usize::MAX)]);
    nv12(vec![plane(&file), plane(&file).with_stride(usize::MAX)]);
    nv12(vec![plane(&file).with_offset(usize::MAX), plane(&file)]);
    for (fd, _) in other_descriptors() {
        nv12(vec![plane(&fd)]);
        nv12(vec![plane(&file), plane(&fd)]);
    }
    assert!(matches!(nv12(vec![plane(&memfd(64, SealFlags::empty()))]), Error::Unsealed));
}
