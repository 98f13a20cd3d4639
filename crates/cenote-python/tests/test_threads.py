"""What takes long lets other threads run meanwhile."""

import threading
import time

import cenote
import numpy as np
import pytest

SIZE = 192 << 20


def runs_meanwhile(call):
    """Whether another thread gets anything done while a call lasts."""
    stop, ticks = threading.Event(), []

    def tick():
        while not stop.is_set():
            ticks.append(time.monotonic())
            time.sleep(0.0005)

    thread = threading.Thread(target=tick)
    thread.start()
    try:
        start = time.monotonic()
        call()
        end = time.monotonic()
    finally:
        stop.set()
        thread.join()
    # Before it has begun, and after it was done, the other thread may run in any case.
    edge = (end - start) / 4
    return any(start + edge < tick < end - edge for tick in ticks)


def large():
    return cenote.Tensor(SIZE, "uint8", memory="mem")


def buffer():
    made = cenote.MemoryPool().acquire(SIZE, "uint8")
    made.zeros()
    return made


@pytest.mark.parametrize(
    "make, call",
    [
        (large, lambda tensor: tensor.tobytes()),
        (large, lambda tensor: tensor.copy()),
        (large, lambda tensor: tensor.__dlpack__(copy=True)),
        (lambda: np.ones(SIZE, "uint8"), cenote.Tensor.from_numpy),
        (buffer, lambda buffer: buffer.synchronize()),
        (buffer, lambda buffer: buffer.device),
    ],
    ids=["tobytes", "copy", "dlpack", "from_numpy", "synchronize", "device"],
)
def test_others_run_while_much_is_copied(make, call):
    # A busy machine may let nobody run for a while; what holds the interpreter never does.
    for _ in range(10):
        if runs_meanwhile(lambda made=make(): call(made)):
            return
    raise AssertionError("nobody else ran")


def test_a_buffer_can_be_used_by_many_threads_at_a_time():
    shared, seen, wrong = cenote.MemoryPool().acquire(4 << 20, "uint8"), [], []
    shared.zeros()

    def use(value):
        for _ in range(20):
            shared.device = value
            array = shared.device
            before = array[0]
            shared.synchronize()
            repr(shared), shared.state, shared.nbytes
            if not (array == before).all():
                wrong.append(value)
            seen.append(before)

    threads = [threading.Thread(target=use, args=(value,)) for value in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 80 and set(seen) <= {1, 2, 3, 4}
    assert not wrong
