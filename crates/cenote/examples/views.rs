//! Views: other shapes of the same bytes, without a copy; and who may write while views exist.

use cenote::{CopyReason, DType, Error, NotWritable, Tensor};

fn main() -> cenote::Result<()> {
    let mut image = Tensor::new(&[4, 6, 3], DType::U8)?;
    image.map_mut()?.set::<u8>(&[1, 2, 0], 200)?;

    // Every view shares the buffer; only shape, strides and offset differ.
    let corner = image.roi(2, 1, 3, 2)?;
    let red = image.index(2, 0)?;
    let channels_first = image.permute(&[2, 0, 1])?;
    let every_other_row = image.slice(0, 0..4, 2)?;
    let flat = image.reshape(&[72])?;
    for (name, view, shape) in [
        ("roi(2, 1, 3, 2)", &corner, &[2, 3, 3][..]),
        ("index(2, 0)", &red, &[4, 6]),
        ("permute([2, 0, 1])", &channels_first, &[3, 4, 6]),
        ("slice(0, 0..4, 2)", &every_other_row, &[2, 6, 3]),
        ("reshape([72])", &flat, &[72]),
    ] {
        println!("{name:20} shape {:?}, byte strides {:?}", view.shape(), view.strides());
        assert_eq!(view.shape(), shape);
        assert_eq!(view.buffer_identity().id(), image.buffer_identity().id());
    }
    assert_eq!(corner.map()?.get::<u8>(&[0, 0, 0])?, 200);
    assert_eq!(red.map()?.get::<u8>(&[1, 2])?, 200);
    assert_eq!(channels_first.map()?.get::<u8>(&[0, 1, 2])?, 200);

    // Elements that are not contiguous have no slice. Read them run by run, or copy them.
    assert!(matches!(red.map()?.as_slice::<u8>(), Err(Error::NotContiguous { .. })));
    assert_eq!(corner.map()?.runs().map(<[u8]>::len).collect::<Vec<_>>(), [9, 9]);
    assert!(matches!(corner.reshape(&[18]), Err(Error::ReshapeNeedsCopy { .. })));
    assert_eq!(corner.to_contiguous()?.reshape(&[18])?.map()?.as_slice::<u8>()?[0], 200);
    let copied = cenote::copies().into_iter().find(|c| c.reason == CopyReason::ToContiguous);
    assert_eq!(copied.map(|copies| copies.bytes), Some(18));

    // While a view exists, no handle can write. Afterwards the only handle can.
    assert_eq!(image.not_writable(), Some(NotWritable::Shared));
    println!("while views exist: {}", image.map_mut().expect_err("views exist"));
    drop((corner, red, channels_first, every_other_row, flat));
    image.map_mut()?.as_mut_slice::<u8>()?.fill(1);

    // `make_mut` copies the bytes for one handle; the other keeps the old ones.
    let before = image.clone();
    image.make_mut()?.set::<u8>(&[0, 0, 0], 9)?;
    assert_eq!(before.map()?.get::<u8>(&[0, 0, 0])?, 1);
    assert_ne!(before.buffer_identity().id(), image.buffer_identity().id());
    println!("make_mut: {} bytes copied", image.nbytes());
    Ok(())
}
