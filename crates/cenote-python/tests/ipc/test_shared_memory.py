"""Tensors that several processes map; owners and readers that are killed."""

import cenote
import numpy as np
import pytest
from processes import Child, eventually, open_descriptors, resident_bytes

READER = """
import sys, cenote
tensors = [cenote.Tensor.from_descriptor(bytes.fromhex(sys.argv[1]))]
arrays = [tensors[0].numpy()]
print(int(arrays[0].sum()))
for line in sys.stdin:
    print(int(arrays[0].sum()))
"""

OWNER = """
import sys, cenote, numpy as np
pool = cenote.TensorPool(sys.argv[1], size_mb=64)
tensor = pool.alloc((1000,), "int64")
tensor[...] = np.arange(1000)
print(tensor.descriptor().hex())
sys.stdin.read()
"""


def test_the_leases_of_a_killed_reader_are_released(pool):
    tensor = pool.alloc((1000,), "int64")
    tensor[...] = 3
    with Child(READER, tensor.descriptor().hex()) as reader:
        assert reader.line() == "3000"
        del tensor
        assert pool.stats()["retired"] == 1
        assert [holder["pid"] for holder in pool.holders() if holder["retired_slots"]] == [reader.pid]
        reader.kill()
        assert eventually(lambda: pool.stats()["retired"] == 0)


def test_memory_that_another_process_reads_is_not_reused(pool):
    tensor = pool.alloc((1000,), "int64")
    tensor[...] = 3
    with Child(READER, tensor.descriptor().hex()) as reader:
        assert reader.line() == "3000"
        del tensor
        for value in range(200):
            other = pool.alloc((1000,), "int64")
            other[...] = value
            del other
        reader.process.stdin.write("again\n")
        reader.process.stdin.flush()
        assert reader.line() == "3000"


def test_arrays_outlive_the_owner_of_their_memory(name):
    with Child(OWNER, name) as owner:
        descriptor = bytes.fromhex(owner.line())
        tensor = cenote.Tensor.from_descriptor(descriptor)
        array = tensor.numpy()
        pool = cenote.TensorPool.open(name)
        assert pool.is_alive
        owner.kill()
    assert eventually(lambda: not pool.is_alive)
    assert array.sum() == 499500
    assert tensor.copy().numpy().sum() == 499500
    assert not array.flags.writeable
    with pytest.raises(cenote.Error):
        cenote.TensorPool.open(name)
    # The name is free again.
    cenote.TensorPool(name, size_mb=64).close()
    del tensor
    assert array.sum() == 499500


def test_memory_of_another_process_cannot_be_written(name):
    with Child(OWNER, name) as owner:
        array = cenote.Tensor.from_descriptor(bytes.fromhex(owner.line())).numpy()
        for attempt in (
            lambda: array.setflags(write=True),
            lambda: array.view("uint8").setflags(write=True),
            lambda: np.lib.stride_tricks.as_strided(array, writeable=True).__setitem__(0, 1),
            lambda: array.byteswap(inplace=True),
            lambda: array.put(0, 1),
            lambda: np.copyto(array, 1),
        ):
            with pytest.raises(ValueError):
                attempt()
        assert array.sum() == 499500


def test_tensors_leak_neither_memory_nor_descriptors(pool):
    def use(times):
        for _ in range(times):
            tensor = pool.alloc((16, 16), "float32")
            array = tensor.numpy()
            array[0] = 1
            memoryview(tensor), np.from_dlpack(tensor), tensor.__dlpack__(), tensor[1:, 0], tensor.T
            del array
            received = cenote.Tensor.from_descriptor(tensor.descriptor())
            received.numpy(), np.asarray(received), cenote.Tensor.from_dlpack(received.numpy())
            try:
                received[0] = 1
            except cenote.ReadOnlyError:
                pass

    use(2000)
    before, open_before = resident_bytes(), open_descriptors()
    use(20000)
    assert resident_bytes() - before < 4 << 20
    # Descriptors of earlier tests may be closed meanwhile.
    assert eventually(lambda: open_descriptors() <= open_before)
    assert pool.stats()["slots_in_use"] + pool.stats()["retired"] == 0
