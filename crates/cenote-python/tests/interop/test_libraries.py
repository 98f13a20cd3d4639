"""jax, torch, onnxruntime, OpenCV and numpy use the same memory, read-only where it is."""

import gc
import importlib.util
import pathlib
import subprocess
import sys

import cenote
import cv2
import numpy as np
import onnx
import onnxruntime
import pytest
from processes import eventually


@pytest.fixture
def jax():
    # Imported late: it starts threads, and forking a process with threads can deadlock.
    import jax

    return jax


def address(tensor):
    # Not by `__array_interface__`, which has no bfloat16.
    return tensor.numpy().ctypes.data


def image(pool, shape=(480, 640, 3)):
    tensor = pool.alloc(shape, "uint8")
    tensor[...] = np.arange(tensor.size, dtype="uint32").reshape(shape) % 251
    return tensor


def test_jax_gets_a_copy_of_a_writable_tensor(jax, pool):
    tensor = image(pool)
    array = tensor.jax()
    expected = np.array(tensor)
    assert array.unsafe_buffer_pointer() != address(tensor)
    tensor[...] = 0
    assert (np.asarray(array) == expected).all()
    assert not tensor.lent
    with pytest.raises(BufferError, match="copy"):
        tensor.jax(copy=False)


def test_jax_gets_a_copy_of_memory_that_another_library_can_write(jax):
    # The alignment is one that jax supports, so that it is no reason for a copy.
    owner = cenote.Tensor((64, 64), "float32", memory="mem").numpy()
    owner[...] = 1
    tensor = cenote.Tensor.from_dlpack(owner)
    assert not tensor.writable
    array = tensor.jax()
    assert array.unsafe_buffer_pointer() != address(tensor)
    owner[...] = 2
    assert (np.asarray(array) == 1).all() and (tensor.numpy() == 2).all()
    with pytest.raises(BufferError, match="copy"):
        tensor.jax(copy=False)


def test_jax_shares_the_memory_of_a_sent_tensor(jax, pool):
    tensor = image(pool)
    descriptor, content = tensor.descriptor(), np.array(tensor)
    array = tensor.jax()
    assert array.unsafe_buffer_pointer() == address(tensor)
    assert tensor.jax(copy=True).unsafe_buffer_pointer() != address(tensor)
    del tensor
    assert pool.stats()["slots_in_use"] == 1
    # A computation that may reuse the memory of its argument does not write it.
    again = cenote.Tensor.from_descriptor(descriptor)
    doubled = jax.jit(lambda x: x + x, donate_argnums=0)(array)
    assert int(np.asarray(doubled).sum(dtype="int64")) == int((content + content).sum(dtype="int64"))
    assert doubled.unsafe_buffer_pointer() != address(again)
    assert (again.numpy() == content).all()
    del doubled, array, again
    # jax releases donated memory later.
    assert eventually(lambda: pool.stats()["slots_in_use"] == 0)


RECEIVER = """
import sys, cenote, jax, numpy as np
tensor = cenote.Tensor.from_descriptor(bytes.fromhex(sys.argv[1]))
array = tensor.jax()
assert array.unsafe_buffer_pointer() == tensor.__array_interface__["data"][0]
print(int(jax.jit(lambda x: (x + 1).sum(), donate_argnums=0)(array)))
print(int(tensor.numpy().sum()))
print(tensor.numpy().flags.writeable, np.from_dlpack(tensor).flags.writeable, np.asarray(tensor).flags.writeable)
"""


def test_jax_shares_received_memory_that_is_mapped_read_only(jax, pool):
    tensor = pool.alloc((1024, 1024), "int32")
    tensor[...] = 1
    command = [sys.executable, "-c", RECEIVER, tensor.descriptor().hex()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[:3] == [str(2 << 20), str(1 << 20), "False False False"]


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int32", "uint8", "bool", "complex64"])
def test_tensors_go_to_jax_and_back(jax, pool, dtype):
    tensor = pool.alloc((8, 16), dtype)
    tensor[...] = np.arange(128).reshape(8, 16) % 2
    tensor.descriptor()
    array = tensor.jax()
    assert array.dtype == tensor.dtype
    again = cenote.Tensor.from_dlpack(array)
    assert again.tolist() == tensor.tolist() and not again.writable
    # `jax.dlpack.from_dlpack` of a writable tensor: while jax shares the memory, the tensor is lent.
    other = tensor.copy()
    taken = jax.dlpack.from_dlpack(other)
    assert np.asarray(taken).tolist() == other.tolist()
    assert other.lent == (taken.unsafe_buffer_pointer() == address(other))
    del taken
    assert not other.lent


def test_from_dlpack_of_jax_respects_the_read_only_flag_or_is_refused(jax, pool):
    tensor = image(pool)
    tensor.descriptor()
    try:
        array = jax.dlpack.from_dlpack(tensor)
    except BufferError as refused:  # jax before 0.11
        assert "jax()" in str(refused)
    else:
        assert array.unsafe_buffer_pointer() == address(tensor)


@pytest.fixture
def torch(monkeypatch):
    """A module that replaces torch, which is too large to install for tests."""
    spec = importlib.util.spec_from_file_location("torch", pathlib.Path(__file__).with_name("torch_stand_in.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setitem(sys.modules, "torch", module)
    return module


def test_torch_shares_the_memory_of_a_writable_tensor(torch, pool):
    tensor = image(pool)
    taken = tensor.torch()
    assert taken.address == address(tensor) and (taken.array == np.asarray(tensor)).all()
    assert tensor.lent
    taken.fill_(3)
    assert (np.asarray(tensor) == 3).all()
    with pytest.raises(cenote.ReadOnlyError):
        tensor.descriptor()
    copied = tensor.torch(copy=True)
    assert copied.address != address(tensor)
    copied.fill_(4)
    del taken
    assert not tensor.lent and (np.asarray(tensor) == 3).all()
    view = tensor[10:20, ::2].torch()
    assert view.array.shape == (10, 320, 3) and view.address == address(tensor[10:20, ::2])


def test_torch_gets_a_copy_of_a_read_only_tensor(torch, pool):
    tensor = image(pool)
    descriptor, content = tensor.descriptor(), np.array(tensor)
    for source in (tensor, cenote.Tensor.from_descriptor(descriptor), cenote.Tensor.from_dlpack(content)):
        taken = source.torch()
        assert taken.address != address(source) and (taken.array == content).all()
        taken.fill_(9)
        assert (np.asarray(source) == content).all()
        with pytest.raises(BufferError, match="torch would write it"):
            source.torch(copy=False)
    # `torch.from_dlpack` ignores the read-only flag, so it is refused.
    with pytest.raises(BufferError, match=r"torch\(\)"):
        torch.from_dlpack(tensor)
    assert (np.asarray(tensor) == content).all()


def test_memory_that_torch_uses_outlives_tensor_and_pool(torch, name):
    with cenote.TensorPool(name, size_mb=64) as pool:
        taken = image(pool).torch()
    gc.collect()
    taken.fill_(5)
    assert (taken.array == 5).all()


def model():
    """y = x + x"""
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Add", ["x", "x"], ["y"])],
        "double",
        [value("x", onnx.TensorProto.FLOAT, [None, None])],
        [value("y", onnx.TensorProto.FLOAT, [None, None])],
    )
    made = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(made.SerializeToString(), options, providers=["CPUExecutionProvider"])


def test_onnxruntime_reads_and_writes_tensors_in_place(pool):
    session = model()
    x, y = pool.alloc((300, 200)), pool.alloc((300, 200))
    x[...] = np.arange(60000).reshape(300, 200)
    assert (session.run(None, {"x": x.numpy()})[0] == x.numpy() * 2).all()
    binding = session.io_binding()
    for bind, name, tensor in ((binding.bind_input, "x", x), (binding.bind_output, "y", y)):
        bind(name, "cpu", 0, np.float32, tensor.shape, address(tensor))
    session.run_with_iobinding(binding)
    assert (y.numpy() == x.numpy() * 2).all()


def test_onnxruntime_reads_read_only_tensors(pool):
    session = model()
    x = pool.alloc((300, 200))
    x.fill(2)
    x.descriptor()
    assert (session.run(None, {"x": x.numpy()})[0] == 4).all()
    value = onnxruntime.OrtValue.ortvalue_from_numpy(x.numpy())
    assert (session.run_with_ort_values(None, {"x": value})[0].numpy() == 4).all()


def test_onnxruntime_takes_tensors_by_dlpack(pool):
    x = pool.alloc((300, 200))
    x.fill(2)
    from_dlpack = onnxruntime.capi.onnxruntime_pybind11_state.OrtValue.from_dlpack
    value = onnxruntime.OrtValue(from_dlpack(x.__dlpack__(), False))
    assert value.data_ptr() == address(x)
    assert x.lent
    assert (model().run_with_ort_values(None, {"x": value})[0].numpy() == 4).all()
    del value
    assert not x.lent
    x.descriptor()
    with pytest.raises(BufferError):
        x.__dlpack__()


def test_opencv_writes_into_a_tensor_and_leaves_it_not_lent(pool):
    source, target = image(pool), pool.alloc((240, 320, 3), "uint8")
    cv2.resize(source.numpy(), (320, 240), dst=target.numpy())
    assert not target.lent
    assert (target.numpy() == cv2.resize(np.array(source), (320, 240))).all()
    target.descriptor()
    with pytest.raises(cv2.error):
        cv2.resize(source.numpy(), (320, 240), dst=target.numpy())


def test_numpy_cannot_write_a_sent_tensor(pool, tmp_path):
    tensor = image(pool)
    tensor.descriptor()
    before = tensor.tobytes()
    np.save(tmp_path / "image.npy", tensor)
    assert (np.load(tmp_path / "image.npy") == tensor.numpy()).all()
    for write in (np.ndarray.sort, np.ndarray.partition, np.ndarray.byteswap):
        arguments = {"partition": (1,), "byteswap": (True,)}.get(write.__name__, ())
        with pytest.raises(ValueError):
            write(tensor.numpy(), *arguments)
    with pytest.raises(ValueError):
        np.copyto(tensor.numpy(), 0)
    with pytest.raises((ValueError, TypeError, BufferError)):
        open("/dev/zero", "rb").readinto(tensor)
    assert tensor.tobytes() == before
