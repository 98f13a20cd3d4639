"""The buffer protocol: `memoryview(tensor)` and what uses it."""

import array as arrays
import hashlib
import io
import struct
import zlib

import cenote
import numpy as np
import pytest


def filled(pool, dtype="uint8", shape=(4, 6)):
    tensor = pool.alloc(shape, dtype)
    tensor[...] = np.arange(tensor.size).reshape(shape)
    return tensor


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int8", "int16", "int32", "int64",
                                   "uint8", "uint16", "uint32", "uint64", "bool", "complex64", "complex128"])  # fmt: skip
def test_a_buffer_has_the_layout_of_the_array(pool, dtype):
    tensor = filled(pool, dtype)
    view, expected = memoryview(tensor), tensor.numpy()
    assert (view.shape, view.strides, view.itemsize, view.nbytes) == (
        expected.shape, expected.strides, expected.itemsize, expected.nbytes)  # fmt: skip
    assert np.asarray(view).dtype == expected.dtype
    if not dtype.startswith("complex"):
        assert struct.calcsize(view.format) == view.itemsize
    assert view.tobytes() == expected.tobytes()


def test_the_standard_library_reads_tensors_as_bytes(pool):
    tensor = filled(pool)
    expected = tensor.tobytes()
    assert bytes(tensor) == expected
    assert hashlib.sha256(tensor).digest() == hashlib.sha256(expected).digest()
    assert zlib.crc32(tensor) == zlib.crc32(expected)
    assert io.BytesIO(tensor).getvalue() == expected
    assert b"".join([tensor, tensor]) == expected * 2
    assert np.frombuffer(tensor, "uint8").tobytes() == expected


def test_writes_through_the_array_are_seen_through_the_buffer(pool):
    tensor = filled(pool)
    view = memoryview(tensor)
    io.BytesIO(bytes(range(24, 0, -1))).readinto(tensor.numpy())
    assert tensor.numpy().ravel().tolist() == list(range(24, 0, -1)) == view.cast("B").tolist()
    memoryview(tensor.numpy())[1, 2] = 99
    assert tensor[1, 2].item() == view[1, 2] == 99
    assert not tensor.lent
    tensor.descriptor()
    with pytest.raises((TypeError, BufferError)):
        io.BytesIO(bytes(24)).readinto(tensor.numpy())
    assert view.readonly and memoryview(tensor.numpy()).readonly


def test_buffers_of_views(pool):
    tensor = filled(pool)
    for view in (tensor[1:3], tensor[:, 1:3], tensor.T, tensor[::-1], tensor[0, 0], tensor[:, ::2]):
        assert np.asarray(memoryview(view)).tolist() == view.tolist()
        assert bytes(memoryview(view)) == view.tobytes()
    # A consumer that needs contiguous elements is refused.
    with pytest.raises(BufferError):
        hashlib.sha256(tensor[:, ::2])
    with pytest.raises((TypeError, ValueError, BufferError)):
        io.BytesIO(bytes(12)).readinto(tensor[:, ::2].numpy())


def test_a_buffer_outlives_its_tensor_and_pool(name):
    pool = cenote.TensorPool(name, size_mb=64)
    view = memoryview(filled(pool))
    pool.close()
    del pool
    assert view[3, 5] == 23
    view.release()


def test_a_buffer_keeps_the_memory_until_it_is_released(pool):
    tensor = filled(pool)
    with memoryview(tensor) as view, view[1:] as part:
        del tensor
        assert part.nbytes == 18 and pool.stats()["slots_in_use"] == 1
    assert pool.stats()["slots_in_use"] == 0


def test_array_of_the_standard_library_reads_a_tensor(pool):
    tensor = filled(pool)
    copied = arrays.array("B")
    copied.frombytes(tensor)
    assert copied.tolist() == list(range(24))
