"""Dtypes as arguments, and as attributes of tensors."""

import cenote
import ml_dtypes
import numpy as np
import pytest

DTYPES = [
    "float32", "float64", "float16", "bfloat16", "int8", "int16", "int32", "int64",
    "uint8", "uint16", "uint32", "uint64", "bool", "complex64", "complex128",
]  # fmt: skip


def numpy_dtype(name):
    return np.dtype(ml_dtypes.bfloat16) if name == "bfloat16" else np.dtype(name)


@pytest.mark.parametrize("dtype", DTYPES)
def test_elements_of_every_dtype_can_be_written_and_read(pool, dtype):
    expected = numpy_dtype(dtype)
    for given in (dtype, expected, expected.type):
        tensor = pool.alloc((3, 5), given)
        assert tensor.dtype == expected
        assert tensor.itemsize == expected.itemsize
        assert tensor.nbytes == 15 * expected.itemsize
    values = (np.arange(15).reshape(3, 5) % 2).astype(expected)
    tensor[...] = values
    array = tensor.numpy()
    assert array.dtype == expected
    assert (array == values).all()
    assert tensor.tobytes() == values.tobytes()
    assert tensor.tolist() == values.tolist()


def test_unknown_dtypes_raise_dtype_error():
    for bad in ("float23", np.dtype(">f4"), np.dtype("datetime64[s]"), np.dtype([("x", "f4")]), object()):
        with pytest.raises(cenote.DTypeError) as raised:
            cenote.Tensor((1,), bad)
        assert isinstance(raised.value, TypeError)
    assert cenote.Tensor((1,), "<f4").dtype == np.float32
    assert cenote.Tensor((1,), float).dtype == np.float64
    assert cenote.Tensor((1,), "F64").dtype == np.float64


def test_a_dtype_name_means_what_it_means_in_numpy():
    for name in ["u8", "i8", "u1", "i4", "f4", "f8", "c8", "<u2", "float", "int"]:
        assert cenote.Tensor((2,), name).numpy().dtype == np.dtype(name), name
    for name, numpy_name in [("f32", "float32"), ("u16", "uint16")]:
        assert cenote.Tensor((2,), name).numpy().dtype == np.dtype(numpy_name), name


def test_dtype_none_means_float32(pool):
    for made in (cenote.Tensor(1, None), cenote.Tensor(1), pool.alloc(1, None), cenote.get_memory_pool().acquire(1, None)):
        assert made.dtype == np.float32


SCALAR_TYPES = "bool_ int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 complex128"


@pytest.mark.parametrize("name", [*SCALAR_TYPES.split(), "intc", "longlong", "ulonglong", "intp"])
def test_scalar_types_of_numpy_are_dtypes(pool, name):
    scalar = getattr(np, name)
    for given in (scalar, np.dtype(scalar), np.zeros(1, scalar).dtype):
        assert pool.alloc((2,), given).dtype == np.dtype(scalar)
    assert pool.alloc((2,), ml_dtypes.bfloat16).dtype == np.dtype(ml_dtypes.bfloat16)


def test_bfloat16_arrays_have_the_dtype_of_ml_dtypes(pool):
    tensor = pool.alloc((4,), "bfloat16")
    tensor[...] = [1, 2, 3, 4]
    assert tensor.dtype == ml_dtypes.bfloat16
    assert np.asarray(tensor).dtype == ml_dtypes.bfloat16
    assert not np.asarray(tensor).flags.writeable and tensor.numpy().flags.writeable
    with pytest.raises(BufferError, match="numpy"):
        memoryview(tensor)
    assert not hasattr(tensor, "__array_interface__")
