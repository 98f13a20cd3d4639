"""Measures messages and memory in Python, with cenote and with other packages. The program `compare` runs it.

    python peers.py --compare PROGRAM --parent PID --rounds N --take MS

Prints JSON: series with the nanoseconds of every call. In each round, every subject has a short take, one after the
other. The other side of an echo is a separate process. It polls during its take, and sleeps while other subjects are
measured. `compare floor` measures the floor before and after every take of an echo.

Every message is a 1080p image, and its receiver makes an array of it. cenote and horus-robotics send an existing image,
iceoryx2 loans a new one. The pixels are copied into the shared memory of `multiprocessing`, and pickled for a queue.
"""

import argparse
import contextlib
import ctypes
import functools
import importlib.metadata
import json
import multiprocessing
import multiprocessing.shared_memory
import os
import platform
import signal
import subprocess
import sys
import time

import numpy as np

SHAPE = HEIGHT, WIDTH, CHANNELS = (1080, 1920, 3)
LENGTH = HEIGHT * WIDTH * CHANNELS
# The most samples of a take.
MAX_SAMPLES = 20_000
NANOSECONDS = time.perf_counter_ns
PR_SET_PDEATHSIG = 1  # linux/prctl.h
# A process with threads must not fork.
PROCESSES = multiprocessing.get_context("spawn")


# ---- both sides of an echo ------------------------------------------------------------------------
#
# A link sends (`send`), receives (`recv`, None if there is no message) and makes an array of a message (`array`). A
# message of one pixel or byte ends the take of the other side (`send_stop`, `is_stop`).


class Cenote:
    def __init__(self, name, here):
        import cenote

        self.cenote = cenote
        there, back = (cenote.Topic(f"{name}.{way}", cenote.Image) for way in ("there", "back"))
        self.to, self.source = (there, back) if here else (back, there)
        self.to.advertise()
        self.source.subscribe()
        self.image = self.to.image(WIDTH, HEIGHT) if here else None
        self.recv = functools.partial(self.source.recv, 0)

    def connect(self):
        self.to.wait_for_subscribers(1)

    def send(self):
        self.to.send(self.image)

    def echo(self, image):
        self.to.send(image)

    def array(self, image):
        return image.numpy()

    def send_stop(self):
        self.to.send(self.cenote.Image(1, 1))

    def is_stop(self, image):
        return image.width == 1


class Horus:
    def __init__(self, name, here):
        import horus

        self.horus = horus
        there, back = (horus.Topic(horus.Image, endpoint=f"{name}_{way}".replace(".", "_")) for way in ("there", "back"))
        self.to, self.source = (there, back) if here else (back, there)
        self.image = horus.Image(HEIGHT, WIDTH, "rgb8") if here else None
        self.recv = self.source.recv

    def connect(self):
        pass

    def send(self):
        self.to.send(self.image)

    def echo(self, image):
        self.to.send(image)

    def array(self, image):
        return image.to_numpy()

    def send_stop(self):
        self.to.send(self.horus.Image(1, 1, "rgb8"))

    def is_stop(self, image):
        return image.width == 1


class Iceoryx2:
    """A new frame in each direction, because a received one cannot be sent."""

    def __init__(self, name, here):
        import iceoryx2 as iox2

        iox2.set_log_level(iox2.LogLevel.Fatal)
        self.node = iox2.NodeBuilder.new().create(iox2.ServiceType.Ipc)
        there, back = (self.service(iox2, f"{name}.{way}") for way in ("there", "back"))
        to, source = (there, back) if here else (back, there)
        self.to = to.publisher_builder().initial_max_slice_len(LENGTH).create()
        self.recv = source.subscriber_builder().create().receive

    def service(self, iox2, name):
        named = self.node.service_builder(iox2.ServiceName.new(name))
        return named.publish_subscribe(iox2.Slice[ctypes.c_uint8]).max_subscribers(1).open_or_create()

    def connect(self):
        pass

    def send(self):
        self.to.loan_slice_uninit(LENGTH).assume_init().send()

    def echo(self, _):
        self.send()

    def array(self, sample):
        return np.asarray(sample.payload().as_memory_view()).reshape(SHAPE)

    def send_stop(self):
        self.to.loan_slice_uninit(1).assume_init().send()

    def is_stop(self, sample):
        return sample.payload().len() == 1


POLLING = {"cenote": Cenote, "iceoryx2": Iceoryx2, "horus-robotics": Horus}


def other_side(who, name):
    """The other process. For each line of its input, it echoes messages until one ends the take."""
    link = POLLING[who](name, False)
    print("ready", flush=True)
    for _ in sys.stdin:
        print("echoing", flush=True)
        recv, echo, is_stop = link.recv, link.echo, link.is_stop
        while True:
            while (message := recv()) is None:
                pass
            if is_stop(message):
                break
            echo(message)


class Echo:
    """This side of an echo. The other side runs in a process."""

    def __init__(self, who, name):
        command = [sys.executable, __file__, "--other", str(os.getpid()), who, name]
        self.link = POLLING[who](name, True)
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.expect("ready")
        self.link.connect()

    def expect(self, word):
        line = self.process.stdout.readline()
        if line.strip() != word:
            raise RuntimeError(f"the other side printed {line!r} instead of {word}")

    def __enter__(self):
        self.process.stdin.write("echo\n")
        self.process.stdin.flush()
        self.expect("echoing")

    def __exit__(self, *_):
        self.link.send_stop()

    def call(self):
        link = self.link
        link.send()
        recv = link.recv
        while (message := recv()) is None:
            pass
        link.array(message)

    def close(self):
        self.process.stdin.close()
        self.process.wait(10)


def die_with(parent):
    """Makes the kernel kill this process when its parent ends. Exits if the parent has ended already."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit("the parent has ended")


def shared_memory_side(name, inbox, outbox):
    die_with(multiprocessing.parent_process().pid)
    memory = multiprocessing.shared_memory.SharedMemory(name)
    while (shape := inbox.get()) is not None:
        np.ndarray(shape, "uint8", memory.buf)
        outbox.put(shape)
    memory.close()


class SharedMemory:
    """Pixels are copied into shared memory; their shape goes through a queue."""

    def __init__(self):
        self.pixels = np.zeros(SHAPE, "uint8")
        self.memory = multiprocessing.shared_memory.SharedMemory(create=True, size=LENGTH)
        self.there, self.back = PROCESSES.SimpleQueue(), PROCESSES.SimpleQueue()
        self.process = PROCESSES.Process(target=shared_memory_side, args=(self.memory.name, self.there, self.back))
        self.process.start()

    def __enter__(self):
        pass

    def __exit__(self, *_):
        pass

    def call(self):
        np.ndarray(SHAPE, "uint8", self.memory.buf)[...] = self.pixels
        self.there.put(SHAPE)
        np.ndarray(self.back.get(), "uint8", self.memory.buf)

    def close(self):
        self.there.put(None)
        self.process.join(10)
        self.memory.close()
        self.memory.unlink()


def queue_side(inbox, outbox):
    die_with(multiprocessing.parent_process().pid)
    while (array := inbox.get()) is not None:
        outbox.put(array)


class Pickled:
    """Pixels are pickled through a queue in both directions."""

    def __init__(self):
        self.pixels = np.zeros(SHAPE, "uint8")
        self.there, self.back = PROCESSES.Queue(), PROCESSES.Queue()
        self.process = PROCESSES.Process(target=queue_side, args=(self.there, self.back))
        self.process.start()

    __enter__, __exit__ = SharedMemory.__enter__, SharedMemory.__exit__

    def call(self):
        self.there.put(self.pixels)
        self.back.get()

    def close(self):
        self.there.put(None)
        self.process.join(10)


# ---- one process ----------------------------------------------------------------------------------


def receiving(who, name):
    """A call that sends a message, and times only receiving it and making an array of it."""
    link, subscriber = POLLING[who](name, True), POLLING[who](name, False)

    def once():
        link.send()
        start = NANOSECONDS()
        while (message := subscriber.recv()) is None:
            pass
        subscriber.array(message)
        return NANOSECONDS() - start

    return once


def timed(call):
    """A call that returns its own time in nanoseconds."""

    def once():
        start = NANOSECONDS()
        call()
        return NANOSECONDS() - start

    return once


def allocating(who, name):
    if who == "cenote":
        import cenote

        pool = cenote.TensorPool("compare.python", size_mb=256)
        return timed(lambda: pool.alloc(SHAPE, "uint8"))
    if who == "horus-robotics":
        import horus

        return timed(lambda: horus.Image(HEIGHT, WIDTH, "rgb8"))
    link = Iceoryx2(name, True)
    return timed(lambda: link.to.loan_slice_uninit(LENGTH).delete())


def touch(array):
    array.reshape(-1).view(np.uint8)[::4096] = 1


def pooled(touching):
    import cenote

    pool = cenote.MemoryPool()

    def once():
        buffer = pool.acquire(SHAPE, np.float32)
        if touching:
            touch(buffer.host)
        pool.release(buffer)

    return timed(once)


def empty(touching):
    def once():
        array = np.empty(SHAPE, np.float32)
        if touching:
            touch(array)

    return timed(once)


# ---- rounds ---------------------------------------------------------------------------------------


class Rounds:
    def __init__(self, options):
        self.options, self.series, self.clock = options, [], clock_cost()

    def floor(self):
        return float(subprocess.run([self.options.compare, "floor"], check=True, capture_output=True).stdout)

    def take(self, once):
        """Times single calls for the length of a take. The cost of reading the clock is subtracted."""
        end = NANOSECONDS() + self.options.take * 1_000_000
        samples = []
        while not samples or (len(samples) < MAX_SAMPLES and NANOSECONDS() < end):
            samples.append(max(0, once() - self.clock))
        return samples

    def run(self, work, subjects, echo=False):
        """Measures a workload. `subjects` maps a name to a timed call and a context in which it is called."""
        found = {who: [] for who in subjects}
        for round in range(-1, self.options.rounds):
            for who, (once, session) in subjects.items():
                before = self.floor() if echo else None
                with session:
                    samples = self.take(once)
                floors = {"before": before, "after": self.floor()} if echo else None
                # The round before round 0 warms up.
                if round >= 0:
                    found[who].append({"round": round, "floors": floors, "samples": samples})
        for who, takes in found.items():
            self.series.append({"group": "python", "work": work, "who": who, "takes": takes})

    def echoes(self):
        names = {who: f"compare.{os.getpid()}.{number}" for number, who in enumerate(POLLING)}
        echoes = {who: Echo(who, name) for who, name in names.items()}
        echoes["multiprocessing.shared_memory, SimpleQueue"] = SharedMemory()
        echoes["multiprocessing.Queue, pickled"] = Pickled()
        self.run("image echo, 1080p", {who: (timed(each.call), each) for who, each in echoes.items()}, echo=True)
        for each in echoes.values():
            each.close()

    def alone(self):
        def all_of(make):
            calls = {who: make(who, f"compare.{os.getpid()}.{make.__name__}.{n}") for n, who in enumerate(POLLING)}
            return {who: (call, contextlib.nullcontext()) for who, call in calls.items()}

        def pair(touching):
            calls = {"cenote.MemoryPool": pooled(touching), "numpy.empty": empty(touching)}
            return {who: (call, contextlib.nullcontext()) for who, call in calls.items()}

        self.run("recv + numpy, 1080p", all_of(receiving))
        allocations = all_of(allocating)
        allocations["numpy.empty"] = (timed(lambda: np.empty(SHAPE, "uint8")), contextlib.nullcontext())
        self.run("alloc + release, 1080p", allocations)
        self.run("acquire + release, 1080p float32", pair(False))
        self.run("acquire, touch pages, release, 1080p float32", pair(True))


def clock_cost():
    """The median time between two readings of the clock, in nanoseconds."""
    costs = sorted(-(NANOSECONDS() - NANOSECONDS()) for _ in range(10_001))
    return costs[5_000]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--compare", required=True)
    parser.add_argument("--parent", type=int, required=True, help="the parent process; this one is killed when it ends")
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--take", type=float, required=True, help="milliseconds")
    options = parser.parse_args()
    die_with(options.parent)
    rounds = Rounds(options)
    rounds.echoes()
    rounds.alone()
    packages = ["numpy", "iceoryx2", "horus-robotics"]
    versions = [{"name": f"{each} (Python)", "version": importlib.metadata.version(each)} for each in packages]
    versions.append({"name": "CPython", "version": platform.python_version()})
    json.dump({"series": rounds.series, "versions": versions}, sys.stdout)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--other"]:
        die_with(int(sys.argv[2]))
        other_side(*sys.argv[3:])
    else:
        main()
