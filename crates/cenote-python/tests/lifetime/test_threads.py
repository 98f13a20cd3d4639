"""Calls that take long let other threads run, and threads can race."""

import threading
import time

import cenote
import numpy as np
import pytest
from programs import run_program

SIZE = 192 << 20


def lets_others_run(call):
    """Whether another thread runs during a call."""
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
    # The other thread may run shortly before and after the call in any case, so these times do not count.
    edge = (end - start) / 4
    return any(start + edge < tick < end - edge for tick in ticks)


def large_tensor():
    return cenote.Tensor(SIZE, "uint8", memory="mem")


def large_buffer():
    made = cenote.MemoryPool().acquire(SIZE, "uint8")
    made.zeros()
    return made


@pytest.mark.parametrize(
    "make, call",
    [
        (large_tensor, lambda tensor: tensor.tobytes()),
        (large_tensor, lambda tensor: tensor.copy()),
        (large_tensor, lambda tensor: tensor.__dlpack__(copy=True)),
        (lambda: np.ones(SIZE, "uint8"), cenote.Tensor.from_numpy),
        (large_buffer, lambda buffer: buffer.synchronize()),
        (large_buffer, lambda buffer: buffer.device),
    ],
    ids=["tobytes", "copy", "dlpack", "from_numpy", "synchronize", "device"],
)
def test_other_threads_run_during_large_copies(make, call):
    # A busy machine may delay the other thread, so one success of ten is enough. A call that keeps the GIL never
    # succeeds.
    for _ in range(10):
        if lets_others_run(lambda made=make(): call(made)):
            return
    raise AssertionError("no other thread ran")


def test_a_published_tensor_does_not_change_while_threads_try_to_write_it():
    run_program("""
    pool = cenote.TensorPool(name, size_mb=64, max_slots=128)
    end, wrong = time.monotonic() + 2, []
    def publish():
        while time.monotonic() < end:
            tensor = pool.alloc((64,), "int64")
            writer = threading.Thread(target=write, args=(tensor,))
            writer.start()
            try:
                tensor.descriptor()
            except cenote.ReadOnlyError:
                writer.join()
                continue
            before = tensor.tobytes()
            writer.join()
            if tensor.tobytes() != before:
                wrong.append(before)
    def write(tensor):
        try:
            for value in range(20):
                tensor[...] = value
        except cenote.ReadOnlyError:
            pass
        array = tensor.numpy()
        if array.flags.writeable:
            np.add(array, 1, out=array)
    threads = [threading.Thread(target=publish) for _ in range(2)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert not wrong
    """)
