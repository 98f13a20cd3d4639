"""Indexing and other views of tensors."""

import cenote
import numpy as np
import pytest


@pytest.mark.parametrize(
    "key",
    [
        0, -1, np.int64(1), slice(None), slice(1, 3), slice(None, None, 2), slice(None, None, -1), slice(3, 0, -2),
        slice(-100, 100), ..., None, (0, 1), (0, 1, 2), (..., 0), (0, ...), (slice(1, 2), ..., -1),
        (None, 0, None, ..., None), (slice(None), slice(4, 1, -1), slice(1, None, 2)), (),
    ],
)  # fmt: skip
def test_views_are_the_same_as_in_numpy(pool, key):
    tensor = pool.alloc((4, 5, 6), "int32")
    tensor[...] = np.arange(120).reshape(4, 5, 6)
    view, expected = tensor[key], tensor.numpy()[key]
    assert view.shape == expected.shape
    assert view.tolist() == expected.tolist()
    if isinstance(expected, np.ndarray):
        # Only addresses are compared: strides of axes of length 1 have no meaning.
        assert view.numpy().__array_interface__["data"][0] == expected.__array_interface__["data"][0]
    view[...] = -1
    changed = np.arange(120).reshape(4, 5, 6)
    changed[key] = -1
    assert (tensor.numpy() == changed).all()


@pytest.mark.parametrize("key", [4, -5, (0, 0, 0, 0), (..., ...), (0, 5)])
def test_an_index_out_of_range_raises_index_error(pool, key):
    with pytest.raises(IndexError):
        pool.alloc((4, 5, 6))[key]


@pytest.mark.parametrize("key", [True, "a", 1.5, [0, 1], np.array([0, 1])])
def test_other_indices_raise_type_error(pool, key):
    with pytest.raises(TypeError, match="numpy"):
        pool.alloc((4, 5, 6))[key]


def test_a_tensor_of_no_dimensions_has_no_index(pool):
    for key in (0, slice(None), (0,)):
        with pytest.raises(IndexError):
            pool.alloc(())[key]
    assert pool.alloc(())[...].shape == pool.alloc(())[()].shape == ()
    assert pool.alloc(())[None].shape == (1,)


def test_a_view_cannot_be_empty(pool):
    with pytest.raises(ValueError, match="empty"):
        pool.alloc((4,))[2:2]


def test_transposed_reshaped_squeezed_and_flipped_views(pool):
    tensor = pool.alloc((2, 3, 4), "uint8")
    array = np.arange(24, dtype="uint8").reshape(2, 3, 4)
    tensor[...] = array
    assert tensor.T.tolist() == array.T.tolist()
    assert tensor.transpose().tolist() == array.T.tolist()
    assert tensor.transpose(1, 0, 2).tolist() == array.transpose(1, 0, 2).tolist()
    assert tensor.transpose((2, 1, 0)).tolist() == array.T.tolist()
    assert tensor.reshape(6, 4).tolist() == tensor.reshape((6, 4)).tolist() == array.reshape(6, 4).tolist()
    assert tensor[0:1].squeeze(0).shape == (3, 4)
    assert tensor.flip(2).tolist() == array[:, :, ::-1].tolist()
    assert [view.tolist() for view in tensor] == array.tolist()
    with pytest.raises(ValueError):
        tensor.T.reshape(24)


def test_negative_axes_count_from_the_end(pool):
    tensor = pool.alloc((1, 2, 3), "int32")
    tensor[...] = np.arange(6).reshape(1, 2, 3)
    array = tensor.numpy()
    for axis in (-1, -2, -3, 0, 1, 2, np.int8(1)):
        assert tensor.flip(axis).tolist() == np.flip(array, int(axis)).tolist()
    assert tensor.squeeze(-3).shape == tensor.squeeze(0).shape == tensor.squeeze().shape == (2, 3)
    assert pool.alloc((1, 1)).squeeze().shape == ()
    assert tensor.transpose(-1, 0, -2).tolist() == array.transpose(-1, 0, -2).tolist()
    assert tensor.transpose([2, 1, 0]).shape == tensor.transpose(2, 1, 0).shape == (3, 2, 1)
    for bad in (3, -4, 2**70):
        for call in (tensor.flip, tensor.squeeze, lambda axis: tensor.transpose(0, 1, axis)):
            with pytest.raises(cenote.OutOfRange, match=f"axis {bad}\\b"):
                call(bad)
    with pytest.raises(ValueError):
        tensor.transpose(0, 0, -1)
    with pytest.raises(TypeError):
        tensor.flip(0.5)


@pytest.mark.parametrize("shape", [(-1,), (3, -1), (-1, 2, 2), (2, -1, 3, 1), (12,), ()])
def test_one_length_of_reshape_can_be_minus_one(pool, shape):
    tensor = pool.alloc((3, 4) if shape else (1,), "int32")
    tensor[...] = np.arange(tensor.size).reshape(tensor.shape)
    expected = tensor.numpy().reshape(shape)
    for made in (tensor.reshape(shape), tensor.reshape(*shape), tensor.reshape(list(shape))):
        assert made.tolist() == expected.tolist()


@pytest.mark.parametrize("shape", [(-1, -1), (5, -1), (0, -1), (-2,), (2**62, 2**62, -1), (13,), (2**70, -1)])
def test_reshape_refuses_shapes_that_do_not_fit(pool, shape):
    with pytest.raises(cenote.ArgumentError):
        pool.alloc((3, 4)).reshape(shape)
