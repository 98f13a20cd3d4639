"""DLPack: capsules of tensors, and tensors of capsules."""

import ctypes
import gc
import weakref

import cenote
import ml_dtypes
import numpy as np
import pytest


def filled(pool, dtype="float32", shape=(4, 6)):
    tensor = pool.alloc(shape, dtype)
    tensor[...] = np.arange(tensor.size).reshape(shape)
    return tensor


def capsule_name(capsule):
    get = ctypes.pythonapi.PyCapsule_GetName
    get.restype, get.argtypes = ctypes.c_char_p, [ctypes.py_object]
    return get(capsule)


class CapsuleProducer:
    """A producer that passes on a given capsule."""

    def __init__(self, capsule):
        self.capsule = capsule

    def __dlpack__(self, **_):
        return self.capsule

    def __dlpack_device__(self):
        return (1, 0)


class LegacyProducer:
    """A producer from before version 1 of DLPack."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, stream=None):
        return self.array.__dlpack__()

    def __dlpack_device__(self):
        return (1, 0)


def test_the_capsule_has_the_requested_version(pool):
    tensor = filled(pool)
    assert capsule_name(tensor.__dlpack__()) == b"dltensor"
    assert capsule_name(tensor.__dlpack__(max_version=(0, 8))) == b"dltensor"
    assert capsule_name(tensor.__dlpack__(max_version=(1, 0))) == b"dltensor_versioned"
    assert capsule_name(tensor.__dlpack__(max_version=(7, 3))) == b"dltensor_versioned"
    assert tensor.__dlpack_device__() == (1, 0)


def test_a_capsule_without_a_consumer_is_freed(pool):
    tensor = filled(pool)
    capsules = [tensor.__dlpack__(), tensor.__dlpack__(max_version=(1, 0))]
    del tensor
    assert pool.stats()["slots_in_use"] == 1
    del capsules
    assert pool.stats()["slots_in_use"] == 0


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int8", "int16", "int32", "int64",
                                   "uint8", "uint16", "uint32", "uint64", "bool", "complex64", "complex128"])  # fmt: skip
def test_numpy_exchanges_tensors_of_every_dtype(pool, dtype):
    tensor = filled(pool, dtype)
    array = np.from_dlpack(tensor)
    assert array.dtype == dtype and array.tolist() == tensor.tolist()
    again = cenote.Tensor.from_dlpack(array)
    assert again.dtype == dtype and again.tolist() == tensor.tolist()


def test_bfloat16_is_exchanged_but_not_with_numpy(pool):
    tensor = filled(pool, "bfloat16")
    again = cenote.Tensor.from_dlpack(tensor)
    assert again.dtype == ml_dtypes.bfloat16 and again.tolist() == tensor.tolist()
    # `numpy.from_dlpack` has no bfloat16; `numpy()` does.
    del again
    with pytest.raises((BufferError, RuntimeError), match="dtype"):
        np.from_dlpack(tensor)
    assert not tensor.lent and tensor.numpy().dtype == ml_dtypes.bfloat16


@pytest.mark.parametrize("key", [..., (slice(1, 3), slice(2, None)), (slice(None, None, -1), slice(None, None, -2)), 0, (0, 0)])
def test_capsules_of_views(pool, key):
    tensor = filled(pool)
    view = tensor[key]
    assert np.from_dlpack(view).tolist() == view.tolist()
    assert cenote.Tensor.from_dlpack(view.T).tolist() == view.T.tolist()
    assert cenote.Tensor.from_dlpack(np.asarray(tensor.numpy()[key])).tolist() == view.tolist()


def test_a_capsule_of_read_only_memory_has_a_flag_or_is_refused(pool):
    tensor = filled(pool)
    array = np.from_dlpack(tensor)
    assert array.flags.writeable
    del array
    tensor.descriptor()
    assert not np.from_dlpack(tensor).flags.writeable
    with pytest.raises(BufferError, match="read-only"):
        tensor.__dlpack__()
    with pytest.raises(BufferError, match="read-only"):
        tensor.__dlpack__(max_version=(0, 8), copy=False)
    copied = np.from_dlpack(CapsuleProducer(tensor.__dlpack__(copy=True)))
    assert copied.tolist() == tensor.tolist()
    copied = np.from_dlpack(CapsuleProducer(tensor.__dlpack__(max_version=(1, 0), copy=True)))
    copied[...] = 0
    assert tensor[0, 1].item() == 1


def test_torch_is_refused_read_only_memory(pool):
    tensor = filled(pool)
    caller = {"__name__": "torch.utils.dlpack", "tensor": tensor}
    call = "tensor.__dlpack__(max_version=(1, 0))"
    assert capsule_name(eval(call, caller)) == b"dltensor_versioned"
    tensor.descriptor()
    with pytest.raises(BufferError, match="torch()"):
        eval(call, caller)
    eval("tensor.__dlpack__(max_version=(1, 0), copy=True)", caller)


def test_the_argument_copy_is_respected(pool):
    tensor = filled(pool)
    shared = np.from_dlpack(tensor, copy=False)
    shared[0, 0] = 7
    copied = np.from_dlpack(tensor, copy=True)
    copied[0, 0] = 8
    assert tensor[0, 0].item() == 7
    del shared
    assert not tensor.lent


def test_other_devices_and_streams_are_refused(pool):
    tensor = filled(pool)
    tensor.__dlpack__(dl_device=(1, 0))
    with pytest.raises(BufferError):
        tensor.__dlpack__(dl_device=(2, 0))
    with pytest.raises(BufferError):
        tensor.__dlpack__(stream=1)


def test_strides_that_are_no_multiple_of_an_element_are_refused():
    # Points of six bytes, which another program may have packed.
    fields = [("x", "float32", 1, 0), ("ring", "uint16", 1, 4)]
    cloud = cenote.PointCloud._unpickle(cenote.Tensor((5, 6), "uint8"), ("", 0, 0), 5, fields)
    column = cloud["x"]
    assert column.strides == (6,) and column.numpy().strides == (6,)
    for version in (None, (1, 0)):
        with pytest.raises(BufferError, match="multiple"):
            column.__dlpack__(max_version=version)
    assert not column.lent
    assert np.from_dlpack(column, copy=True).tolist() == [0] * 5
    assert np.from_dlpack(cloud["ring"]).strides == (6,)


def test_a_capsule_can_be_consumed_once(pool):
    capsule = filled(pool).__dlpack__(max_version=(1, 0))
    first = cenote.Tensor.from_dlpack(CapsuleProducer(capsule))
    with pytest.raises(Exception, match="name|incorrect"):
        cenote.Tensor.from_dlpack(CapsuleProducer(capsule))
    assert first.tolist()[3][5] == 23


def test_a_tensor_of_a_capsule_keeps_its_producer_until_it_is_gone():
    array = np.arange(1000)
    base = array.view()
    gone = weakref.ref(array)
    tensor = cenote.Tensor.from_dlpack(array)
    array[1] = 77
    del array, base
    gc.collect()
    assert gone() is not None
    assert tensor[1].item() == 77
    assert not tensor.writable
    with pytest.raises(cenote.ReadOnlyError):
        tensor[0] = 1
    del tensor
    gc.collect()
    assert gone() is None


def test_producers_from_before_version_1(pool):
    array = np.arange(6).reshape(2, 3)
    assert cenote.Tensor.from_dlpack(LegacyProducer(array)).tolist() == array.tolist()
    copied = cenote.Tensor.from_dlpack(LegacyProducer(array), copy=True)
    array[0, 0] = 9
    assert copied[0, 0].item() == 0


def test_a_requested_copy_is_writable_and_can_be_sent():
    array = np.arange(6.0).reshape(2, 3)
    array.flags.writeable = False
    for producer in (array, LegacyProducer(np.arange(6.0).reshape(2, 3))):
        copied = cenote.Tensor.from_dlpack(producer, copy=True)
        assert copied.writable
        copied[0, 0] = 7
        assert copied.tolist() == [[7, 1, 2], [3, 4, 5]]
        assert cenote.Tensor.from_descriptor(copied.descriptor()).tolist() == copied.tolist()
        assert not cenote.Tensor.from_dlpack(producer).writable
    assert array[0, 0] == 0


def test_unusable_producers_raise_errors():
    class Gpu(CapsuleProducer):
        def __dlpack_device__(self):
            return (2, 0)

    with pytest.raises(BufferError, match="device"):
        cenote.Tensor.from_dlpack(Gpu(None))
    with pytest.raises(TypeError):
        cenote.Tensor.from_dlpack(CapsuleProducer(None))
    with pytest.raises(AttributeError):
        cenote.Tensor.from_dlpack([1, 2])
    with pytest.raises(ValueError):
        cenote.Tensor.from_dlpack(np.zeros((0, 3)))
    with pytest.raises(ValueError):
        cenote.Tensor.from_dlpack(np.zeros((1,) * 9))
