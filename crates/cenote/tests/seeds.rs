//! What the first users know from elsewhere, each as one short test: how it is done here.

use cenote::{DType, Error, PixelFormat, PlaneDescriptor, Tensor, TensorMemory};

type Done = Result<(), Box<dyn std::error::Error>>;

#[test]
fn memory_is_selected_automatically() -> Done {
    let tensor = Tensor::new(&[1, 3, 224, 224], DType::F32)?;
    println!("{}", tensor.selection());
    assert_eq!(tensor.shape(), [1, 3, 224, 224]);
    assert_eq!(tensor.selection().chosen(), tensor.memory());
    assert!(TensorMemory::PREFERENCE.contains(&tensor.memory()));
    assert!(tensor.memory().is_available());
    Ok(())
}

#[test]
fn memory_is_requested_explicitly() -> Done {
    for memory in [TensorMemory::Shm, TensorMemory::Mem] {
        let tensor = Tensor::options().memory(memory).create(&[480, 640, 3], DType::U8)?;
        assert_eq!(tensor.memory(), memory);
    }
    let named =
        Tensor::options().memory(TensorMemory::Shm).name("camera").create(&[4], DType::U8)?;
    assert_eq!(named.memory(), TensorMemory::Shm);
    Ok(())
}

#[test]
fn a_tensor_is_mapped_and_filled() -> Done {
    let mut tensor = Tensor::new(&[480, 640, 3], DType::U8)?;
    tensor.map_mut()?.as_mut_slice::<u8>()?.fill(128);
    let map = tensor.map()?;
    assert!(map.as_slice::<u8>()?.iter().all(|&value| value == 128));
    assert_eq!(map.as_slice::<u8>()?.len(), 480 * 640 * 3);
    Ok(())
}

#[test]
fn a_tensor_is_shared_by_its_file_descriptor() -> Done {
    let shm = Tensor::options().memory(TensorMemory::Shm);
    let tensor = shm.create_from_slice(&[1.0f32, 2.0, 3.0, 4.0], &[2, 2])?;
    let fd = tensor.clone_fd()?;
    let other = Tensor::from_fd(fd, &[2, 2], DType::F32)?;
    assert_eq!(other.to_vec::<f32>()?, [1.0, 2.0, 3.0, 4.0]);
    Ok(())
}

#[test]
fn a_tensor_is_an_ndarray() -> Done {
    let array = ndarray::array![[1.0f32, 2.0], [3.0, 4.0]];
    let tensor = Tensor::from_array(array.clone())?;
    assert_eq!(tensor.to_array::<f32>()?, array.into_dyn());
    Ok(())
}

#[test]
fn a_plane_descriptor_has_a_descriptor_of_its_own() -> Done {
    let buffer =
        Tensor::options().memory(TensorMemory::Shm).create(&[4096 + 480 * 2048], DType::U8)?;
    let fd = buffer.clone_fd()?;
    let plane = PlaneDescriptor::new(&fd)?.with_stride(2048).with_offset(4096);
    assert_eq!((plane.stride(), plane.offset()), (Some(2048), Some(4096)));
    drop(fd);

    let image = Tensor::from_planes(640, 480, PixelFormat::Rgb8, vec![plane])?;
    assert_eq!(image.row_stride(), Some(2048));
    assert_eq!(image.plane_offset(), Some(4096));
    Ok(())
}

#[test]
fn a_format_is_set_on_a_shape_that_fits() -> Done {
    let mut tensor = Tensor::new(&[1080, 1920, 3], DType::U8)?;
    tensor.set_format(PixelFormat::Rgb8)?;
    assert_eq!(tensor.format(), Some(PixelFormat::Rgb8));
    assert!(tensor.set_format(PixelFormat::Nv12).is_err());

    let tensor = Tensor::new(&[1620, 1920], DType::U8)?.with_format(PixelFormat::Nv12)?;
    assert_eq!(tensor.image_size(), Some((1920, 1080)));
    Ok(())
}

#[test]
fn rows_may_be_padded() -> Done {
    let padded = Tensor::options().row_alignment(2048).image(640, 480, PixelFormat::Rgb8)?;
    assert_eq!(padded.row_stride(), Some(2048));
    assert_eq!(padded.effective_row_stride(), Some(2048));

    let tight = Tensor::image(640, 480, PixelFormat::Rgb8)?;
    assert_eq!(tight.row_stride(), None);
    assert_eq!(tight.effective_row_stride(), Some(1920));

    // The format comes first, and a row must fit.
    let mut tensor = Tensor::new(&[480, 640, 3], DType::U8)?;
    assert!(matches!(tensor.set_row_stride(2048), Err(Error::NoFormat { .. })));
    assert_eq!(tensor.effective_row_stride(), None);
    let mut padded = padded.with_row_stride(1984)?;
    assert_eq!(padded.row_stride(), Some(1984));
    assert!(matches!(padded.set_row_stride(1919), Err(Error::BadRowStride { min: 1920, .. })));
    Ok(())
}

#[test]
fn an_image_may_start_anywhere_in_its_buffer() -> Done {
    let buffer = Tensor::new(&[4096 + 640 * 480], DType::U8)?;
    let mut image = buffer.narrow(0, 0, 640 * 480)?.reshape(&[480, 640])?;
    image.set_format(PixelFormat::Grey)?;
    assert_eq!(image.plane_offset(), None);
    image.set_plane_offset(4096)?;
    assert_eq!(image.plane_offset(), Some(4096));
    assert_eq!(image.with_plane_offset(0)?.plane_offset(), None);
    Ok(())
}

#[test]
fn a_buffer_has_an_identity() -> Done {
    let tensor = Tensor::new(&[4], DType::F32)?;
    let key = tensor.buffer_identity().id();
    let guard = tensor.buffer_identity().weak();
    assert_eq!(tensor.clone().buffer_identity().id(), key);
    assert!(Tensor::new(&[4], DType::F32)?.buffer_identity().id() > key);
    assert!(guard.upgrade().is_some());
    drop(tensor);
    assert!(guard.upgrade().is_none());
    Ok(())
}

#[test]
fn memory_kinds_have_names_and_codes() -> Done {
    for (memory, name, code) in [
        (TensorMemory::Mem, "mem", 0),
        (TensorMemory::Dma, "dma", 1),
        (TensorMemory::Shm, "shm", 2),
        (TensorMemory::Pbo, "pbo", 3),
    ] {
        assert_eq!(TensorMemory::try_from(name)?, memory);
        assert_eq!(name.parse::<TensorMemory>()?, memory);
        assert_eq!(name.to_uppercase().parse::<TensorMemory>()?, memory);
        assert_eq!(String::from(memory), name);
        assert_eq!(memory.to_string(), name);
        assert_eq!((memory.code(), TensorMemory::from_code(code)), (code, Some(memory)));
        assert_eq!(memory.is_available(), memory.availability().is_ok());
    }
    assert_eq!(TensorMemory::from_code(4), None);
    let unknown = TensorMemory::try_from("vram").expect_err("no such memory");
    assert!(unknown.to_string().contains("vram"));
    assert!(TensorMemory::Mem.is_available() && TensorMemory::Shm.is_available());
    Ok(())
}
