"""Other processes, which come and go, or are killed."""

import os
import select
import signal
import subprocess
import sys
import threading
import time

import cenote
import numpy as np
import pytest


class Child:
    """Runs code in another process, which answers line by line."""

    def __init__(self, code, *arguments):
        command = [sys.executable, "-u", "-c", code, *map(str, arguments)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.pid = self.process.pid

    def line(self):
        # A child that says nothing must not keep us waiting for ever.
        assert select.select([self.process.stdout], [], [], 120)[0], "the child says nothing"
        line = self.process.stdout.readline()
        assert line, f"the child ended: {self.process.wait()}"
        return line.strip()

    def kill(self):
        os.kill(self.pid, signal.SIGKILL)
        self.process.communicate()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.kill()


def eventually(true, seconds=60):
    end = time.monotonic() + seconds
    while not true() and time.monotonic() < end:
        time.sleep(0.002)
    return true()


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


def test_a_killed_reader_gives_back_what_it_held(pool):
    tensor = pool.alloc((1000,), "int64")
    tensor[...] = 3
    with Child(READER, tensor.descriptor().hex()) as reader:
        assert reader.line() == "3000"
        del tensor
        assert pool.stats()["retired"] == 1
        assert [holder["pid"] for holder in pool.holders() if holder["retired_slots"]] == [reader.pid]
        reader.kill()
        assert eventually(lambda: pool.stats()["retired"] == 0)


def test_what_is_reused_is_not_what_another_process_reads(pool):
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
    # Its name is free.
    cenote.TensorPool(name, size_mb=64).close()
    del tensor
    assert array.sum() == 499500


def test_memory_of_another_process_is_never_written(name):
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


def test_other_threads_run_while_one_waits_for_room(name):
    with cenote.TensorPool(name, size_mb=64, max_slots=1) as pool:
        held = [pool.alloc((4,))]
        threading.Timer(0.2, held.clear).start()
        assert pool.alloc((4,), timeout=60).shape == (4,)


def test_waiting_ends_when_the_time_is_over_or_would_be_in_vain(name):
    with cenote.TensorPool(name, size_mb=64, max_slots=1) as pool:
        held = pool.alloc((4,))
        start = time.monotonic()
        with pytest.raises(cenote.PoolFull, match="holds 1"):
            pool.alloc((4,), timeout=0.3)
        assert time.monotonic() - start >= 0.3
        with pytest.raises(cenote.PoolFull, match="more than the whole pool"):
            pool.alloc((1 << 30,), timeout=600)
        for bad in (-1, float("nan"), float("-inf")):
            with pytest.raises(ValueError):
                pool.alloc((4,), timeout=bad)
        del held


INTERRUPTED = """
import sys, cenote
pool = cenote.TensorPool(sys.argv[1], size_mb=64, max_slots=1)
held = pool.alloc((4,))
try:
    print("waiting")
    pool.alloc((4,), timeout=600)
except KeyboardInterrupt:
    print("interrupted")
"""


def test_ctrl_c_ends_waiting(name):
    with Child(INTERRUPTED, name) as child:
        assert child.line() == "waiting"
        time.sleep(0.2)
        os.kill(child.pid, signal.SIGINT)
        assert child.line() == "interrupted"
        assert child.process.wait(60) == 0


def resident():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096


def descriptors():
    return len(os.listdir("/proc/self/fd"))


def test_nothing_leaks(pool):
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
    before, open_before = resident(), descriptors()
    use(20000)
    assert resident() - before < 4 << 20
    # What tests before this one had open may go meanwhile.
    assert eventually(lambda: descriptors() <= open_before)
    assert pool.stats()["slots_in_use"] + pool.stats()["retired"] == 0
