"""Measures single calls on tensors, and tensors in queues: `python crates/cenote-python/benches/tensor.py`.

Each line is the best of several runs. Lines that start with `-` are alternatives for the same purpose.
"""

import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
import timeit
from multiprocessing import shared_memory

import numpy as np

SHAPE = (1080, 1920, 3)


def best(statement, names, number=20000):
    return min(timeit.repeat(statement, globals=names, number=number, repeat=7)) / number


def show(name, seconds):
    print(f"{name:58} {seconds * 1e6:10.3f} µs", flush=True)


def single(cenote):
    pool = cenote.TensorPool("bench", size_mb=256)
    fresh, sent, small = pool.alloc(SHAPE, "uint8"), pool.alloc(SHAPE, "uint8"), pool.alloc((4,), "uint8")
    descriptor = sent.descriptor()
    names = {**globals(), **locals()}
    show("pool.alloc of a 1080p frame", best("pool.alloc(SHAPE, 'uint8')", names))
    show("- numpy.empty of the same", best("np.empty(SHAPE, 'uint8')", names))
    show("tensor.numpy(), writable", best("fresh.numpy()", names))
    show("tensor.numpy(), read-only", best("sent.numpy()", names))
    show("tensor.numpy() of 4 bytes", best("small.numpy()", names))
    show("numpy.asarray(tensor)", best("np.asarray(fresh)", names))
    show("numpy.from_dlpack(tensor)", best("np.from_dlpack(fresh)", names))
    show("tensor[...] = 1, of 4 bytes", best("small[...] = 1", names))
    show("Tensor.from_descriptor", best("cenote.Tensor.from_descriptor(descriptor)", names))
    block = shared_memory.SharedMemory(create=True, size=fresh.nbytes)
    names["name"] = block.name
    show("- SharedMemory(name) of the standard library, and close", best("shared_memory.SharedMemory(name).close()", names, 2000))
    block.close()
    block.unlink()


def echo(inbox, outbox):
    """Answers each frame with its first byte."""
    while (frame := inbox.get()) is not None:
        outbox.put(int(np.asarray(frame)[0, 0, 0]))


def through_queue(make, rounds=50):
    context = multiprocessing.get_context("spawn")
    inbox, outbox = context.Queue(), context.Queue()
    process = context.Process(target=echo, args=(inbox, outbox))
    process.start()
    taken = []
    for _ in range(rounds):
        frame = make()
        start = time.perf_counter()
        inbox.put(frame)
        outbox.get()
        taken.append(time.perf_counter() - start)
    inbox.put(None)
    process.join()
    return statistics.median(taken)


def main():
    import cenote

    single(cenote)
    pool = cenote.TensorPool("bench-queue", size_mb=256)

    def tensor():
        frame = pool.alloc(SHAPE, "uint8")
        frame[0, 0] = 1
        return frame

    show("a 1080p frame through a Queue and an answer back: tensor", through_queue(tensor))
    show("- numpy array, pickled", through_queue(lambda: np.ones(SHAPE, "uint8")))


if __name__ == "__main__":
    if "CENOTE_BENCH" in os.environ:
        main()
    else:
        # Another process runs the benchmark: its pools end with it, so that the directory can be removed.
        with tempfile.TemporaryDirectory(prefix="cenote-bench-") as directory:
            environment = dict(os.environ, CENOTE_DIR=directory, CENOTE_BENCH="1")
            subprocess.run([sys.executable, *sys.argv], env=environment, check=True)
