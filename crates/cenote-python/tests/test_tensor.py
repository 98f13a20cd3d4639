import copy
import ctypes
import gc
import inspect
import io
import pickle
import weakref

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


def sent(tensor):
    """The tensor, after another process may have it."""
    tensor.descriptor()
    return tensor


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_goes_in_and_out(pool, dtype):
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


def test_dtypes_that_are_none():
    for bad in ("float23", np.dtype(">f4"), np.dtype("datetime64[s]"), np.dtype([("x", "f4")]), object()):
        with pytest.raises(cenote.DTypeError) as raised:
            cenote.Tensor((1,), bad)
        assert isinstance(raised.value, TypeError)
    assert cenote.Tensor((1,), "<f4").dtype == np.float32
    assert cenote.Tensor((1,), float).dtype == np.float64
    assert cenote.Tensor((1,), "F64").dtype == np.float64


def test_names_that_numpy_knows_are_meant_as_numpy_means_them():
    for name in ["u8", "i8", "u1", "i4", "f4", "f8", "c8", "<u2", "float", "int"]:
        assert cenote.Tensor((2,), name).numpy().dtype == np.dtype(name), name
    for name, numpy_name in [("f32", "float32"), ("u16", "uint16")]:
        assert cenote.Tensor((2,), name).numpy().dtype == np.dtype(numpy_name), name


def test_no_dtype_is_the_default(pool):
    for made in (cenote.Tensor(1, None), cenote.Tensor(1), pool.alloc(1, None), cenote.get_memory_pool().acquire(1, None)):
        assert made.dtype == np.float32


def test_shapes():
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
        raise KeyError("mine")

    with pytest.raises(KeyError):
        cenote.Tensor(broken())
    for bad in ("12", (1.5,), None):
        with pytest.raises(TypeError):
            cenote.Tensor(bad)


def test_a_new_tensor_is_zeros_in_the_memory_asked_for():
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


def test_what_a_tensor_tells_about_itself(pool):
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


@pytest.mark.parametrize(
    "key",
    [
        0, -1, np.int64(1), slice(None), slice(1, 3), slice(None, None, 2), slice(None, None, -1), slice(3, 0, -2),
        slice(-100, 100), ..., None, (0, 1), (0, 1, 2), (..., 0), (0, ...), (slice(1, 2), ..., -1),
        (None, 0, None, ..., None), (slice(None), slice(4, 1, -1), slice(1, None, 2)), (),
    ],
)  # fmt: skip
def test_views_are_those_of_numpy(pool, key):
    tensor = pool.alloc((4, 5, 6), "int32")
    tensor[...] = np.arange(120).reshape(4, 5, 6)
    view, expected = tensor[key], tensor.numpy()[key]
    assert view.shape == expected.shape
    assert view.tolist() == expected.tolist()
    if isinstance(expected, np.ndarray):
        # Strides of axes of length 1 say nothing.
        assert view.numpy().__array_interface__["data"][0] == expected.__array_interface__["data"][0]
    view[...] = -1
    changed = np.arange(120).reshape(4, 5, 6)
    changed[key] = -1
    assert (tensor.numpy() == changed).all()


@pytest.mark.parametrize("key", [4, -5, (0, 0, 0, 0), (..., ...), (0, 5)])
def test_indices_out_of_range(pool, key):
    with pytest.raises(IndexError):
        pool.alloc((4, 5, 6))[key]


@pytest.mark.parametrize("key", [True, "a", 1.5, [0, 1], np.array([0, 1])])
def test_indices_that_are_none(pool, key):
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


def test_other_views(pool):
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


def test_axes_count_from_either_end(pool):
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
def test_one_length_can_be_left_open(pool, shape):
    tensor = pool.alloc((3, 4) if shape else (1,), "int32")
    tensor[...] = np.arange(tensor.size).reshape(tensor.shape)
    expected = tensor.numpy().reshape(shape)
    for made in (tensor.reshape(shape), tensor.reshape(*shape), tensor.reshape(list(shape))):
        assert made.tolist() == expected.tolist()


@pytest.mark.parametrize("shape", [(-1, -1), (5, -1), (0, -1), (-2,), (2**62, 2**62, -1), (13,), (2**70, -1)])
def test_shapes_that_elements_do_not_fit(pool, shape):
    with pytest.raises(cenote.ArgumentError):
        pool.alloc((3, 4)).reshape(shape)


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


def test_elements_are_looked_for_as_in_numpy(pool):
    tensor = pool.alloc((2, 3), "int32")
    tensor[...] = [[1, 2, 3], [4, 5, 6]]
    assert 6 in tensor and 7 not in tensor and 2.0 in tensor and [1, 2, 3] in tensor
    assert not tensor.lent


def test_assignment_is_that_of_numpy(pool):
    tensor = pool.alloc((4, 4), "float32")
    tensor.fill(2)
    tensor[1] = [1, 2, 3, 4]
    tensor[tensor.numpy() > 3] = 0
    assert tensor.tolist()[1] == [1, 2, 3, 0]
    assert tensor[0, 0].item() == 2
    with pytest.raises(ValueError, match="broadcast"):
        tensor[...] = [1, 2, 3]
    assert not tensor.lent


def test_what_was_sent_cannot_be_written_by_anything(pool):
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
        lambda: np.asarray(Interface(tensor)).__setitem__(..., 1),
        lambda: np.asarray(Interface(tensor)).setflags(write=True),
    ):
        with pytest.raises(ValueError):
            attempt()
    with pytest.raises(cenote.ReadOnlyError, match=r"`copy\(\)`"):
        tensor.fill(1)
    with pytest.raises(TypeError, match="read-only"):
        memoryview(tensor)[0, 0] = 1
    with pytest.raises((TypeError, BufferError)):
        (ctypes.c_float * 16).from_buffer(tensor)
    # numpy asks what keeps an array's memory before it lets that be written.
    with pytest.raises((TypeError, BufferError)):
        (ctypes.c_float * 16).from_buffer(array.base)


def test_arrays_of_what_was_sent_keep_it(pool):
    tensor = pool.alloc((4,), "uint8")
    tensor[...] = 7
    array = sent(tensor).numpy()[1:]
    del tensor
    gc.collect()
    noise = [pool.alloc((4,), "uint8") for _ in range(20)]
    for each in noise:
        each.fill(9)
    assert array.tolist() == [7, 7, 7]


def test_an_object_that_keeps_its_own_array_is_collected():
    class Frame(cenote.Tensor):
        pass

    for make in (lambda: Frame((4,)), lambda: sent(Frame((4,)))):
        frame = make()
        frame.array = frame.numpy()
        gone = weakref.ref(frame)
        del frame
        gc.collect()
        assert gone() is None


NUMBERS = "bool_ int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 complex128"


@pytest.mark.parametrize("name", [*NUMBERS.split(), "intc", "longlong", "ulonglong", "intp"])
def test_scalar_types_of_numpy_are_dtypes(pool, name):
    scalar = getattr(np, name)
    for given in (scalar, np.dtype(scalar), np.zeros(1, scalar).dtype):
        assert pool.alloc((2,), given).dtype == np.dtype(scalar)
    assert pool.alloc((2,), ml_dtypes.bfloat16).dtype == np.dtype(ml_dtypes.bfloat16)


class Interface:
    def __init__(self, tensor):
        self.__array_interface__ = tensor.__array_interface__
        self.tensor = tensor


def test_an_array_that_writes_is_counted_until_it_and_its_views_are_gone(pool):
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
        lambda tensor: (ctypes.c_char * 16).from_buffer(tensor.numpy()), lambda tensor: np.asarray(Data(tensor.numpy())),
        lambda tensor: np.nditer(tensor.numpy(), op_flags=["readwrite"]), lambda tensor: tensor.numpy().flat,
        lambda tensor: np.ctypeslib.as_ctypes(tensor.numpy()), lambda tensor: memoryview(tensor.numpy()).cast("B")[3:],
    ],
)  # fmt: skip
def test_whatever_can_write_is_counted(pool, export):
    tensor = pool.alloc((4, 4), "uint8")
    exported = export(tensor)
    assert tensor.lent
    with pytest.raises(cenote.ReadOnlyError):
        tensor.descriptor()
    del exported
    assert not tensor.lent


@pytest.mark.parametrize("read", [bytes, lambda tensor: tensor.tobytes(), lambda tensor: tensor.tolist(), repr, hash, np.mean])
def test_what_only_reads_is_not_counted(pool, read):
    tensor = pool.alloc((4, 4), "uint8")
    kept = read(tensor)
    assert not tensor.lent, kept


class Data:
    """Has numpy take a buffer, give it back, and keep the pointer."""

    def __init__(self, buffer):
        self.__array_interface__ = {"version": 3, "shape": (16,), "typestr": "|u1", "data": buffer}


@pytest.mark.parametrize("make", [
    np.asarray, memoryview, lambda tensor: tensor.__array__(), lambda tensor: np.frombuffer(tensor, "uint8"),
    lambda tensor: np.frombuffer(memoryview(tensor), "uint8"), lambda tensor: np.asarray(memoryview(tensor)),
    lambda tensor: np.ndarray((4, 4), "uint8", buffer=tensor), lambda tensor: np.ndarray((4, 4), "uint8", buffer=memoryview(tensor)),
    lambda tensor: np.ndarray((4, 4), "uint8", buffer=memoryview(tensor).obj), lambda tensor: np.asarray(Interface(tensor)),
    lambda tensor: np.recarray((16,), dtype=[("x", "u1")], buf=tensor), lambda tensor: np.asarray(Data(tensor)),
    lambda tensor: np.asarray(Data(memoryview(tensor))), lambda tensor: pickle.PickleBuffer(tensor).raw(),
    lambda tensor: memoryview(tensor).cast("B")[3:], lambda tensor: np.asarray(pickle.PickleBuffer(tensor)),
])  # fmt: skip
def test_buffers_only_read_so_that_none_writes_uncounted(pool, make):
    tensor = pool.alloc((4, 4), "uint8")
    tensor[...] = 7
    made = make(tensor)
    assert not tensor.lent
    base = getattr(made, "base", None)
    if isinstance(base, memoryview):
        # numpy does not keep it from being released, and goes on using the memory.
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


def test_who_asks_a_buffer_to_write_is_refused(pool):
    tensor = pool.alloc((4, 4), "uint8")
    with pytest.raises((TypeError, BufferError)):
        (ctypes.c_char * 16).from_buffer(tensor)
    with pytest.raises(TypeError):
        io.BytesIO(bytes(16)).readinto(tensor)
    if hasattr(tensor, "__buffer__"):  # from Python 3.12 on
        with pytest.raises(BufferError, match="numpy"):
            tensor.__buffer__(inspect.BufferFlags.FULL)
        assert tensor.__buffer__(inspect.BufferFlags.FULL_RO).readonly
    assert io.BytesIO(bytes([3] * 16)).readinto(tensor.numpy()) == 16
    assert not tensor.lent and tensor.tobytes() == bytes([3] * 16)


def test_calculating_into_a_tensor_leaves_nothing_behind(pool):
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
    address = tensor.__array_interface__["data"][0]

    def where(array):
        return array.__array_interface__["data"][0]

    assert where(np.asarray(tensor)) == where(np.asarray(tensor, copy=False)) == address
    assert where(tensor.__array__()) == address
    assert np.asarray(tensor, "float64").tolist() == [1, 2, 3, 4]
    with pytest.raises(ValueError):
        np.asarray(tensor, "float64", copy=False)
    assert where(tensor.__array__(copy=False)) == address
    assert where(tensor.__array__(np.int32)) == address
    assert where(tensor.__array__(copy=True)) != address
    assert where(np.array(tensor)) != address
    assert tensor.__array__("float64").tolist() == [1, 2, 3, 4]
    with pytest.raises(ValueError):
        tensor.__array__("float64", copy=False)
    assert (np.asarray(tensor) + tensor).tolist() == [2, 4, 6, 8]


def test_bfloat16_is_an_array_of_ml_dtypes(pool):
    tensor = pool.alloc((4,), "bfloat16")
    tensor[...] = [1, 2, 3, 4]
    assert tensor.dtype == ml_dtypes.bfloat16
    assert np.asarray(tensor).dtype == ml_dtypes.bfloat16
    assert not np.asarray(tensor).flags.writeable and tensor.numpy().flags.writeable
    with pytest.raises(BufferError, match="numpy"):
        memoryview(tensor)
    assert not hasattr(tensor, "__array_interface__")


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
def test_arrays_of_all_kinds_are_copied_in(array):
    tensor = cenote.Tensor.from_numpy(array)
    assert tensor.dtype == np.asarray(array).dtype
    assert tensor.tolist() == np.asarray(array).tolist()
    assert tensor.writable
    tensor.descriptor()


@pytest.mark.parametrize("array", [np.zeros((0, 3)), np.zeros(3, ">f8"), np.array(["a"]), np.array([object()])])
def test_arrays_that_cannot_be_copied_in(array):
    with pytest.raises((TypeError, ValueError)):
        cenote.Tensor.from_numpy(array)


def test_pickle_and_copy_copy(pool):
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


def test_descriptors(pool):
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


def test_a_pool_opened_by_name_reads_only(pool):
    other = cenote.TensorPool.open(pool.name)
    assert not other.is_owner and other.is_alive
    with pytest.raises(cenote.Error, match="owner"):
        other.alloc((1,))
    with pytest.raises(cenote.NotFound):
        cenote.TensorPool.open("nobody-has-this")
    assert pool.name in repr(other)
