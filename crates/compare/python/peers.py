"""What messages and memory cost in Python, beside other packages. The program `compare` runs this.

    python peers.py --compare PROGRAM --rounds N --take MS

Writes JSON: series with the nanoseconds of every single call. Who takes part takes turns: a short take
in each round. The other side of an echo is a program of its own, which polls while its take lasts and sleeps
while others are measured. Every take of an echo is between two measurements of the floor, by `compare floor`.

Every message is a 1080p image, and its receiver makes an array of it. cenote, horus-robotics and iceoryx2 send
frames that are there already, or take a new one; shared memory of `multiprocessing` has the pixels copied in, and
a queue pickles them.
"""

import argparse
import contextlib
import ctypes
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
MOST = 20_000
NANOSECONDS = time.perf_counter_ns
PR_SET_PDEATHSIG = 1  # linux/prctl.h
# Forking a process with threads is no good habit.
PROCESSES = multiprocessing.get_context("spawn")


# ---- both sides of an echo ------------------------------------------------------------------------
#
# A link sends (`send`), looks if something came (`recv`, None if not) and makes an array of it (`array`). What
# tells the other side to rest is a message that is no frame (`send_rest`, `is_rest`).


class Cenote:
    def __init__(self, name, here):
        import cenote

        self.cenote = cenote
        there, back = (cenote.Topic(f"{name}.{way}", cenote.Image) for way in ("there", "back"))
        self.to, self.source = (there, back) if here else (back, there)
        self.to.advertise()
        self.source.subscribe()
        self.image = self.to.image(WIDTH, HEIGHT) if here else None
        self.poll = self.source.recv

    def meet(self):
        self.to.wait_for_subscribers(1)

    def send(self):
        self.to.send(self.image)

    def recv(self):
        return self.poll(0)

    def echo(self, image):
        self.to.send(image)

    def array(self, image):
        return image.numpy()

    def send_rest(self):
        self.to.send(self.cenote.Image(1, 1))

    def is_rest(self, image):
        return image.width == 1


class Horus:
    def __init__(self, name, here):
        import horus

        self.horus = horus
        there, back = (horus.Topic(horus.Image, endpoint=f"{name}_{way}".replace(".", "_")) for way in ("there", "back"))
        self.to, self.source = (there, back) if here else (back, there)
        self.image = horus.Image(HEIGHT, WIDTH, "rgb8") if here else None
        self.recv = self.source.recv

    def meet(self):
        pass

    def send(self):
        self.to.send(self.image)

    def echo(self, image):
        self.to.send(image)

    def array(self, image):
        return image.to_numpy()

    def send_rest(self):
        self.to.send(self.horus.Image(1, 1, "rgb8"))

    def is_rest(self, image):
        return image.width == 1


class Iceoryx2:
    """A frame of its own each way: what was received cannot be sent on."""

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

    def meet(self):
        pass

    def send(self):
        self.to.loan_slice_uninit(LENGTH).assume_init().send()

    def echo(self, _):
        self.send()

    def array(self, sample):
        return np.asarray(sample.payload().as_memory_view()).reshape(SHAPE)

    def send_rest(self):
        self.to.loan_slice_uninit(1).assume_init().send()

    def is_rest(self, sample):
        return sample.payload().len() == 1


POLLING = {"cenote": Cenote, "iceoryx2": Iceoryx2, "horus-robotics": Horus}


def other(who, name):
    """The other side: for each line of the input it serves until told to rest."""
    link = POLLING[who](name, False)
    print("ready", flush=True)
    for _ in sys.stdin:
        print("serving", flush=True)
        recv, echo, is_rest = link.recv, link.echo, link.is_rest
        while True:
            while (message := recv()) is None:
                pass
            if is_rest(message):
                break
            echo(message)


class Echo:
    """This side of it, with the other one running."""

    def __init__(self, who, name):
        command = [sys.executable, __file__, "--other", str(os.getpid()), who, name]
        self.link = POLLING[who](name, True)
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.expect("ready")
        self.link.meet()

    def expect(self, word):
        line = self.process.stdout.readline()
        if line.strip() != word:
            raise RuntimeError(f"the other side said {line!r} instead of {word}")

    def __enter__(self):
        self.process.stdin.write("serve\n")
        self.process.stdin.flush()
        self.expect("serving")

    def __exit__(self, *_):
        self.link.send_rest()

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
    """Has the kernel end this process when that one ends, its parent, which may have ended already."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit("the parent has ended")


def memory_side(name, inbox, outbox):
    die_with(multiprocessing.parent_process().pid)
    memory = multiprocessing.shared_memory.SharedMemory(name)
    while (shape := inbox.get()) is not None:
        np.ndarray(shape, "uint8", memory.buf)
        outbox.put(shape)
    memory.close()


class SharedMemory:
    """Pixels copied into shared memory, whose shape goes through a queue."""

    def __init__(self):
        self.pixels = np.zeros(SHAPE, "uint8")
        self.memory = multiprocessing.shared_memory.SharedMemory(create=True, size=LENGTH)
        self.there, self.back = PROCESSES.SimpleQueue(), PROCESSES.SimpleQueue()
        self.process = PROCESSES.Process(target=memory_side, args=(self.memory.name, self.there, self.back))
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
    """Pixels pickled through a queue, and back."""

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
    """Calls that receive what was just sent, and make an array of it; sending is not timed."""
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
        """Single calls for as long as a take is, less what reading the clock takes."""
        end = NANOSECONDS() + self.options.take * 1_000_000
        samples = []
        while not samples or (len(samples) < MOST and NANOSECONDS() < end):
            samples.append(max(0, once() - self.clock))
        return samples

    def run(self, work, subjects, echo=False):
        """`subjects` are those who do it, by name: a call, and for an echo what has to be entered before."""
        found = {who: [] for who in subjects}
        for round in range(-1, self.options.rounds):
            for who, (once, session) in subjects.items():
                before = self.floor() if echo else None
                with session:
                    samples = self.take(once)
                floors = {"before": before, "after": self.floor()} if echo else None
                # The first one warms up.
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
    costs = sorted(-(NANOSECONDS() - NANOSECONDS()) for _ in range(10_001))
    return costs[5_000]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--compare", required=True)
    parser.add_argument("--parent", type=int, required=True, help="the process that this one dies with")
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
        other(*sys.argv[3:])
    else:
        main()
