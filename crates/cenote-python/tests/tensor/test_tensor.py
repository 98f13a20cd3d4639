"""Tensors: making, describing, copying, numbers of one element."""

import copy
import pickle

import cenote
import ml_dtypes
import numpy as np
import pytest


def sent(tensor):
    """The tensor after `descriptor()`, which makes it read-only as sending does."""
    tensor.descriptor()
    return tensor


def test_a_shape_is_a_length_or_an_iterable_of_lengths():
    assert cenote.Tensor(np.int64(3)).shape == (3,)
    assert cenote.Tensor(4).shape == (4,)
    assert cenote.Tensor(()).shape == ()
    assert cenote.Tensor([2, np.int64(3)]).shape == (2, 3)
    for bad in ((0,), (2, -1), (1,) * 9, (2**62, 2**62), (2**63 - 1,), -1, 2**70, (-(2**70),), (10**5000,)):
        with pytest.raises(cenote.Error) as raised:
            cenote.Tensor(bad)
        assert isinstance(raised.value, (ValueError, MemoryError))
    for iterable in (range(2, 4), iter([2, 3]), (n for n in (2, 3)), np.array([2, 3])):
        assert cenote.Tensor(iterable).shape == (2, 3)

    def broken():
        yield 2
        raise KeyError("raised by the iterable")

    with pytest.raises(KeyError):
        cenote.Tensor(broken())
    for bad in ("12", (1.5,), None):
        with pytest.raises(TypeError):
            cenote.Tensor(bad)


def test_a_new_tensor_is_filled_with_zeros_in_the_given_kind_of_memory():
    for memory, expected in ((None, "shm"), ("shm", "shm"), ("mem", "mem")):
        tensor = cenote.Tensor((100, 100), "uint8", memory=memory)
        assert tensor.memory == expected
        assert not tensor.numpy().any()
        assert tensor.writable
    with pytest.raises(ValueError):
        cenote.Tensor((1,), memory="cloud")
    for memory in ("dma", "pbo"):
        with pytest.raises(cenote.ArgumentError, match=f'memory "{memory}"'):
            cenote.Tensor((1,), memory=memory)


def test_attributes_and_repr(pool):
    tensor = pool.alloc((2, 3, 4), "int16")
    assert (tensor.shape, tensor.strides) == ((2, 3, 4), (24, 8, 2))
    assert (tensor.ndim, tensor.size, tensor.nbytes, len(tensor)) == (3, 24, 48, 2)
    assert (tensor.device, tensor.format) == ("cpu", None)
    assert tensor.with_device("cuda:1").device == "cuda:1"
    assert repr(tensor) == "<cenote.Tensor (2, 3, 4) int16, shm>"
    assert repr(sent(tensor)) == "<cenote.Tensor (2, 3, 4) int16, shm, read-only>"
    with pytest.raises(TypeError):
        len(pool.alloc(()))
    with pytest.raises(AttributeError):
        tensor.shape = (24,)


def test_a_tensor_of_one_element_is_a_number(pool):
    one = pool.alloc((1, 1), "float32")
    one.fill(2.5)
    assert (int(one), float(one), complex(one), bool(one)) == (2, 2.5, 2.5 + 0j, True)
    scalar = cenote.Tensor((), "uint8")
    scalar.fill(3)
    assert "abcdef"[scalar] == "d" and int(scalar) == 3 and not cenote.Tensor(())
    for refused in (one.__index__, lambda: "abc"[pool.alloc((), "float32")], lambda: "abc"[pool.alloc((2,), "uint8")]):
        with pytest.raises(TypeError):
            refused()
    several = pool.alloc((2,))
    for number in (int, float, complex):
        with pytest.raises(TypeError, match="one element"):
            number(several)
    with pytest.raises(ValueError, match="ambiguous"):
        bool(several)
    with pytest.raises(TypeError):
        int(cenote.Tensor(1, "complex64"))


def test_the_in_operator_works_as_in_numpy(pool):
    tensor = pool.alloc((2, 3), "int32")
    tensor[...] = [[1, 2, 3], [4, 5, 6]]
    assert 6 in tensor and 7 not in tensor and 2.0 in tensor and [1, 2, 3] in tensor
    assert not tensor.lent


def test_assignment_works_as_in_numpy(pool):
    tensor = pool.alloc((4, 4), "float32")
    tensor.fill(2)
    tensor[1] = [1, 2, 3, 4]
    tensor[tensor.numpy() > 3] = 0
    assert tensor.tolist()[1] == [1, 2, 3, 0]
    assert tensor[0, 0].item() == 2
    with pytest.raises(ValueError, match="broadcast"):
        tensor[...] = [1, 2, 3]
    assert not tensor.lent


def test_copies_are_counted():
    before = cenote.copies()
    tensor = cenote.Tensor.from_numpy(np.ones(1000, "uint8"))
    tensor.copy()
    counted = {reason: counts[1] - before[reason][1] for reason, counts in cenote.copies().items()}
    assert counted["CopiedIn"] == 2000
    assert sum(counted.values()) == 2000


@pytest.mark.parametrize(
    "array",
    [
        np.arange(24).reshape(2, 3, 4), np.arange(24).reshape(2, 3, 4)[::-1, :, ::-2], np.arange(24).reshape(4, 6).T,
        np.broadcast_to(np.int16(3), (2, 3)), np.float64(2.5), np.array(True), [[1, 2], [3, 4]],
        np.arange(24, dtype="uint8")[5:].view()[1::3], np.arange(3).astype(ml_dtypes.bfloat16),
    ],
)  # fmt: skip
def test_from_numpy_copies_arrays_of_all_layouts(array):
    tensor = cenote.Tensor.from_numpy(array)
    assert tensor.dtype == np.asarray(array).dtype
    assert tensor.tolist() == np.asarray(array).tolist()
    assert tensor.writable
    tensor.descriptor()


@pytest.mark.parametrize("array", [np.zeros((0, 3)), np.zeros(3, ">f8"), np.array(["a"]), np.array([object()])])
def test_from_numpy_refuses_empty_and_foreign_arrays(array):
    with pytest.raises((TypeError, ValueError)):
        cenote.Tensor.from_numpy(array)


def test_pickle_and_copy_make_writable_copies(pool):
    tensor = sent(pool.alloc((3, 4), "float32")).with_device("cuda:3")
    for again in (
        pickle.loads(pickle.dumps(tensor)),
        pickle.loads(pickle.dumps(tensor.T, protocol=5)).T,
        copy.copy(tensor),
        copy.deepcopy(tensor),
    ):
        assert again.tolist() == tensor.tolist()
        assert again.device == "cuda:3"
        assert again.writable
        again[...] = 1


def test_a_descriptor_names_a_tensor_until_its_memory_is_reused(pool):
    tensor = pool.alloc((3, 4), "float32")
    tensor[...] = np.arange(12).reshape(3, 4)
    descriptor = tensor[1:, ::2].descriptor()
    again = cenote.Tensor.from_descriptor(descriptor)
    assert again.tolist() == [[4, 6], [8, 10]]
    assert not again.writable and not again.numpy().flags.writeable
    for kind in (bytearray, memoryview, lambda bytes: np.frombuffer(bytes, "uint8")):
        assert cenote.Tensor.from_descriptor(kind(descriptor)).tolist() == again.tolist()
    with pytest.raises(TypeError, match="bytes-like"):
        cenote.Tensor.from_descriptor(descriptor.hex())
    del tensor
    assert again.tolist() == [[4, 6], [8, 10]]
    del again
    other = pool.alloc((3, 4), "float32")
    with pytest.raises(cenote.Stale):
        cenote.Tensor.from_descriptor(descriptor)
    del other
    for bad in (b"", b"x" * 10, descriptor[:-1], descriptor + b"x", bytes(len(descriptor))):
        with pytest.raises(cenote.Error):
            cenote.Tensor.from_descriptor(bad)
    with pytest.raises(cenote.Error):
        cenote.Tensor((1,), memory="mem").descriptor()
