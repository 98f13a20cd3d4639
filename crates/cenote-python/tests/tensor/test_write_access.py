"""Which objects can write a tensor, and until when."""

import ctypes
import gc
import inspect
import io
import pickle
import weakref

import cenote
import numpy as np
import pytest


def sent(tensor):
    """The tensor after `descriptor()`, which makes it read-only as sending does."""
    tensor.descriptor()
    return tensor


class ArrayInterface:
    """An object with the array interface of a tensor."""

    def __init__(self, tensor):
        self.__array_interface__ = tensor.__array_interface__
        self.tensor = tensor


class DataBuffer:
    """Makes numpy request a buffer, release it, and keep the pointer."""

    def __init__(self, buffer):
        self.__array_interface__ = {"version": 3, "shape": (16,), "typestr": "|u1", "data": buffer}


def test_no_object_can_write_a_sent_tensor(pool):
    tensor = sent(pool.alloc((4, 4)))
    assert not tensor.writable
    array = tensor.numpy()
    assert not array.flags.writeable
    for attempt in (
        lambda: tensor.__setitem__(..., 1),
        lambda: tensor.fill(1),
        lambda: array.__setitem__(..., 1),
        lambda: array.setflags(write=True),
        lambda: array[0].setflags(write=True),
        lambda: array.view().setflags(write=True),
        lambda: np.asarray(tensor).setflags(write=True),
        lambda: np.asarray(tensor).__setitem__(..., 1),
        lambda: np.from_dlpack(tensor).__setitem__(..., 1),
        lambda: np.from_dlpack(tensor).setflags(write=True),
        lambda: np.add(1, 1, out=tensor.numpy()),
        lambda: np.asarray(ArrayInterface(tensor)).__setitem__(..., 1),
        lambda: np.asarray(ArrayInterface(tensor)).setflags(write=True),
    ):
        with pytest.raises(ValueError):
            attempt()
    with pytest.raises(cenote.ReadOnlyError, match=r"`copy\(\)`"):
        tensor.fill(1)
    with pytest.raises(TypeError, match="read-only"):
        memoryview(tensor)[0, 0] = 1
    with pytest.raises((TypeError, BufferError)):
        (ctypes.c_float * 16).from_buffer(tensor)
    # numpy requests a writable buffer of an array's base before it makes the array writable.
    with pytest.raises((TypeError, BufferError)):
        (ctypes.c_float * 16).from_buffer(array.base)


def test_an_array_of_a_sent_tensor_keeps_its_memory(pool):
    tensor = pool.alloc((4,), "uint8")
    tensor[...] = 7
    array = sent(tensor).numpy()[1:]
    del tensor
    gc.collect()
    noise = [pool.alloc((4,), "uint8") for _ in range(20)]
    for each in noise:
        each.fill(9)
    assert array.tolist() == [7, 7, 7]


def test_an_object_that_refers_to_its_own_array_is_collected():
    class Frame(cenote.Tensor):
        pass

    for make in (lambda: Frame((4,)), lambda: sent(Frame((4,)))):
        frame = make()
        frame.array = frame.numpy()
        gone = weakref.ref(frame)
        del frame
        gc.collect()
        assert gone() is None


def test_a_tensor_is_lent_until_its_writable_array_and_its_views_are_gone(pool):
    tensor = pool.alloc((4, 4))
    assert not tensor.lent
    array = tensor.numpy()
    assert tensor.lent and tensor[1].lent
    row = array[0]
    del array
    assert tensor.lent
    with pytest.raises(cenote.ReadOnlyError, match="lent"):
        tensor.descriptor()
    del row
    assert not tensor.lent
    tensor.descriptor()
    assert not tensor.writable


@pytest.mark.parametrize(
    "export",
    [
        np.from_dlpack, lambda tensor: tensor.__dlpack__(), lambda tensor: tensor.__dlpack__(max_version=(1, 0)),
        lambda tensor: tensor[0].numpy(), lambda tensor: tensor.T.numpy()[..., 0], lambda tensor: tensor.numpy().reshape(16),
        lambda tensor: memoryview(tensor.numpy()), lambda tensor: tensor.numpy().view("uint8"),
        lambda tensor: np.frombuffer(tensor.numpy(), "uint8"), lambda tensor: np.asarray(memoryview(tensor.numpy())),
        lambda tensor: np.ndarray((4, 4), "uint8", buffer=tensor.numpy()), lambda tensor: pickle.PickleBuffer(tensor.numpy()),
        lambda tensor: (ctypes.c_char * 16).from_buffer(tensor.numpy()), lambda tensor: np.asarray(DataBuffer(tensor.numpy())),
        lambda tensor: np.nditer(tensor.numpy(), op_flags=["readwrite"]), lambda tensor: tensor.numpy().flat,
        lambda tensor: np.ctypeslib.as_ctypes(tensor.numpy()), lambda tensor: memoryview(tensor.numpy()).cast("B")[3:],
    ],
)  # fmt: skip
def test_a_tensor_is_lent_while_an_object_can_write_it(pool, export):
    tensor = pool.alloc((4, 4), "uint8")
    exported = export(tensor)
    assert tensor.lent
    with pytest.raises(cenote.ReadOnlyError):
        tensor.descriptor()
    del exported
    assert not tensor.lent


@pytest.mark.parametrize("read", [bytes, lambda tensor: tensor.tobytes(), lambda tensor: tensor.tolist(), repr, hash, np.mean])
def test_reading_does_not_lend_a_tensor(pool, read):
    tensor = pool.alloc((4, 4), "uint8")
    kept = read(tensor)
    assert not tensor.lent, kept


@pytest.mark.parametrize("make", [
    np.asarray, memoryview, lambda tensor: tensor.__array__(), lambda tensor: np.frombuffer(tensor, "uint8"),
    lambda tensor: np.frombuffer(memoryview(tensor), "uint8"), lambda tensor: np.asarray(memoryview(tensor)),
    lambda tensor: np.ndarray((4, 4), "uint8", buffer=tensor), lambda tensor: np.ndarray((4, 4), "uint8", buffer=memoryview(tensor)),
    lambda tensor: np.ndarray((4, 4), "uint8", buffer=memoryview(tensor).obj), lambda tensor: np.asarray(ArrayInterface(tensor)),
    lambda tensor: np.recarray((16,), dtype=[("x", "u1")], buf=tensor), lambda tensor: np.asarray(DataBuffer(tensor)),
    lambda tensor: np.asarray(DataBuffer(memoryview(tensor))), lambda tensor: pickle.PickleBuffer(tensor).raw(),
    lambda tensor: memoryview(tensor).cast("B")[3:], lambda tensor: np.asarray(pickle.PickleBuffer(tensor)),
])  # fmt: skip
def test_buffers_of_a_tensor_are_read_only_and_cannot_be_made_writable(pool, make):
    tensor = pool.alloc((4, 4), "uint8")
    tensor[...] = 7
    made = make(tensor)
    assert not tensor.lent
    base = getattr(made, "base", None)
    if isinstance(base, memoryview):
        # numpy allows the release, and still uses the memory.
        base.release()
    descriptor = tensor.descriptor()
    if isinstance(made, memoryview):
        assert made.readonly
    else:
        assert not made.flags.writeable
        with pytest.raises(ValueError):
            made.setflags(write=True)
        with pytest.raises(ValueError):
            made[...] = 9
        with pytest.raises(ValueError):
            made.view(np.ndarray).view("uint8")[...] = 9
    assert (cenote.Tensor.from_descriptor(descriptor).numpy() == 7).all()


def test_a_request_for_a_writable_buffer_fails(pool):
    tensor = pool.alloc((4, 4), "uint8")
    with pytest.raises((TypeError, BufferError)):
        (ctypes.c_char * 16).from_buffer(tensor)
    with pytest.raises(TypeError):
        io.BytesIO(bytes(16)).readinto(tensor)
    if hasattr(tensor, "__buffer__"):  # Python 3.12 or later
        with pytest.raises(BufferError, match="numpy"):
            tensor.__buffer__(inspect.BufferFlags.FULL)
        assert tensor.__buffer__(inspect.BufferFlags.FULL_RO).readonly
    assert io.BytesIO(bytes([3] * 16)).readinto(tensor.numpy()) == 16
    assert not tensor.lent and tensor.tobytes() == bytes([3] * 16)


def test_calculating_into_a_tensor_leaves_it_not_lent(pool):
    tensor = pool.alloc((480, 640), "float32")
    a, b = np.full((480, 640), 3.0, "float32"), np.full((480, 640), 2.0, "float32")
    np.multiply(a, b, out=tensor.numpy())
    tensor[10:20] = 1
    assert not tensor.lent
    assert tensor[0, 0].item() == 6 and tensor[10, 0].item() == 1


def test_an_array_keeps_the_memory_alive(pool):
    tensor = pool.alloc((1000,), "int64")
    array = tensor.numpy()
    array[:] = 7
    gone = weakref.ref(tensor)
    del tensor
    gc.collect()
    assert gone() is None
    assert pool.stats()["slots_in_use"] == 1
    assert (array == 7).all()
    del array
    assert pool.stats()["slots_in_use"] == 0


def test_asarray_shares_and_array_copies(pool):
    tensor = pool.alloc((4,), "int32")
    tensor[...] = [1, 2, 3, 4]
    start = tensor.__array_interface__["data"][0]

    def address(array):
        return array.__array_interface__["data"][0]

    assert address(np.asarray(tensor)) == address(np.asarray(tensor, copy=False)) == start
    assert address(tensor.__array__()) == start
    assert np.asarray(tensor, "float64").tolist() == [1, 2, 3, 4]
    with pytest.raises(ValueError):
        np.asarray(tensor, "float64", copy=False)
    assert address(tensor.__array__(copy=False)) == start
    assert address(tensor.__array__(np.int32)) == start
    assert address(tensor.__array__(copy=True)) != start
    assert address(np.array(tensor)) != start
    assert tensor.__array__("float64").tolist() == [1, 2, 3, 4]
    with pytest.raises(ValueError):
        tensor.__array__("float64", copy=False)
    assert (np.asarray(tensor) + tensor).tolist() == [2, 4, 6, 8]
