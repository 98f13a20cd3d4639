"""Measures sending and receiving in one process, and an echo between two processes, compared with other packages.

    python crates/cenote-python/benches/echo.py [rounds]

Each message is an image of the given size, and the receiver makes an array of it. cenote sends a frame that was
written once, as a camera's driver does. For `multiprocessing.shared_memory` the pixels are copied into the shared
memory, and a queue pickles them. Both sides of the echo poll: on fewer than two free cores the echo measures the
scheduler. The packages iceoryx2 and horus-robotics are measured if they are installed.

Times are in microseconds: the median and the 99th percentile of single calls, without the time of reading the clock.
"""

import importlib.util
import multiprocessing
import multiprocessing.shared_memory
import os
import statistics
import subprocess
import sys
import tempfile
import time

import cenote
import numpy as np

SIZES = {"VGA": (480, 640, 3), "1080p": (1080, 1920, 3), "4K": (2160, 3840, 3)}
QUICK, SLOW = 20_000, 50
# Forking a process with threads can deadlock.
PROCESSES = multiprocessing.get_context("spawn")
NANOSECONDS = time.perf_counter_ns


def clock_cost():
    return statistics.median(-(NANOSECONDS() - NANOSECONDS()) for _ in range(10_000))


def report(name, size, times):
    clock = clock_cost()
    times = sorted(max(0, each - clock) / 1000 for each in times)
    middle, late = times[len(times) // 2], times[len(times) * 99 // 100]
    print(f"{name:<44} {size:>6} {middle:>11.2f} {late:>11.2f}", flush=True)


def timed(rounds, call):
    times = []
    for _ in range(rounds):
        start = NANOSECONDS()
        call()
        times.append(NANOSECONDS() - start)
    return times[rounds // 10 :]


# ---- one process ----------------------------------------------------------------------------------


def in_process(size, shape, rounds):
    """Sends, then receives and makes an array."""
    height, width, _ = shape
    with cenote.Topic(f"bench.{size}", cenote.Image) as topic:
        topic.subscribe()
        image = topic.image(width, height)
        sends, receives = [], []
        for _ in range(rounds):
            start = NANOSECONDS()
            topic.send(image)
            sent = NANOSECONDS()
            array = topic.recv(0).numpy()
            received = NANOSECONDS()
            sends.append(sent - start)
            receives.append(received - sent)
            del array
        assert topic.stats()["copies"] == {}
    report("cenote: send", size, sends[rounds // 10 :])
    report("cenote: recv and numpy", size, receives[rounds // 10 :])


def fresh_frames(size, shape, rounds):
    """Allocates, writes one pixel and sends, as a producer does for each frame."""
    height, width, _ = shape
    with cenote.Topic(f"bench.fresh.{size}", cenote.Image) as topic:

        def produce():
            image = topic.image(width, height)
            image.numpy()[0, 0, 0] = 1
            topic.send(image)

        report("cenote: image, numpy, one pixel, send", size, timed(rounds, produce))


# ---- two processes --------------------------------------------------------------------------------


def cenote_echo(name):
    there = cenote.Topic(f"{name}.there", cenote.Image)
    back = cenote.Topic(f"{name}.back", cenote.Image)
    back.advertise()
    recv, send = there.recv, back.send
    while True:
        while (image := recv(0)) is None:
            pass
        if image.seq == 1:
            return
        send(image)


def cenote_round_trips(size, shape, rounds):
    height, width, _ = shape
    name = f"bench.echo.{size}"
    with cenote.Topic(f"{name}.there", cenote.Image) as there, cenote.Topic(f"{name}.back", cenote.Image) as back:
        back.subscribe()
        with child("cenote", name) as other:
            there.wait_for_subscribers(1)
            image = there.image(width, height)
            recv, send = back.recv, there.send

            def round_trip():
                send(image)
                while (answer := recv(0)) is None:
                    pass
                answer.numpy()

            report("cenote: echo", size, timed(rounds, round_trip))
            send(cenote.Image(1, 1, seq=1))
            other.wait()


def memory_echo(name, count, queues):
    memory = multiprocessing.shared_memory.SharedMemory(name)
    inbox, outbox = queues
    while (shape := inbox.get()) is not None:
        np.ndarray(shape, "uint8", memory.buf)
        outbox.put(shape)
    memory.close()


def memory_round_trips(size, shape, rounds):
    """Copies the pixels into shared memory, and sends the shape through a queue."""
    pixels = np.zeros(shape, "uint8")
    memory = multiprocessing.shared_memory.SharedMemory(create=True, size=pixels.nbytes)
    there, back = PROCESSES.SimpleQueue(), PROCESSES.SimpleQueue()
    process = PROCESSES.Process(target=memory_echo, args=(memory.name, rounds, (there, back)))
    process.start()
    shared = np.ndarray(shape, "uint8", memory.buf)

    def round_trip():
        shared[...] = pixels
        there.put(shape)
        np.ndarray(back.get(), "uint8", memory.buf)

    report("multiprocessing.shared_memory and a queue", size, timed(rounds, round_trip))
    there.put(None)
    process.join()
    del shared
    memory.close()
    memory.unlink()


def queue_echo(inbox, outbox):
    while (array := inbox.get()) is not None:
        outbox.put(array)


def queue_round_trips(size, shape, rounds):
    """Sends the pixels, pickled, through a queue and back."""
    pixels = np.zeros(shape, "uint8")
    there, back = PROCESSES.Queue(), PROCESSES.Queue()
    process = PROCESSES.Process(target=queue_echo, args=(there, back))
    process.start()

    def round_trip():
        there.put(pixels)
        back.get()

    report("multiprocessing.Queue, pickled", size, timed(rounds, round_trip))
    there.put(None)
    process.join()


# ---- other packages -------------------------------------------------------------------------------


def iceoryx2_ports(name):
    """A node, and its two services for bytes."""
    import ctypes

    import iceoryx2 as iox2

    iox2.set_log_level(iox2.LogLevel.Fatal)
    node = iox2.NodeBuilder.new().create(iox2.ServiceType.Ipc)

    def service(suffix):
        named = node.service_builder(iox2.ServiceName.new(f"{name}.{suffix}"))
        return named.publish_subscribe(iox2.Slice[ctypes.c_uint8]).open_or_create()

    return node, service("there"), service("back")


def iceoryx2_publisher(service, shape):
    return service.publisher_builder().initial_max_slice_len(int(np.prod(shape))).create()


def iceoryx2_echo(name, *shape):
    shape = tuple(map(int, shape))
    _node, there, back = iceoryx2_ports(name)
    subscriber, publisher = there.subscriber_builder().create(), iceoryx2_publisher(back, shape)
    print("ready", flush=True)
    while True:
        while (sample := subscriber.receive()) is None:
            pass
        length = sample.payload().len()
        if length == 1:
            return
        publisher.loan_slice_uninit(length).assume_init().send()


def iceoryx2_round_trips(size, shape, rounds):
    name = f"bench.iceoryx2.{size}.{os.getpid()}"
    _node, there, back = iceoryx2_ports(name)
    subscriber, publisher = back.subscriber_builder().create(), iceoryx2_publisher(there, shape)
    length = int(np.prod(shape))
    with child("iceoryx2", name, *shape) as other:
        other.stdout.readline()

        def round_trip():
            publisher.loan_slice_uninit(length).assume_init().send()
            while (sample := subscriber.receive()) is None:
                pass
            sample.payload()

        report("iceoryx2: echo, nothing written", size, timed(rounds, round_trip))
        publisher.loan_slice_uninit(1).assume_init().send()
        other.wait()


def horus_echo(name):
    import horus

    there, back = horus.Topic(horus.Image, endpoint=f"{name}_there"), horus.Topic(horus.Image, endpoint=f"{name}_back")
    print("ready", flush=True)
    while True:
        while (image := there.recv()) is None:
            pass
        if image.width == 1:
            return
        back.send(image)


def horus_round_trips(size, shape, rounds):
    import horus

    height, width, _ = shape
    name = f"bench_{size}_{os.getpid()}"
    there, back = horus.Topic(horus.Image, endpoint=f"{name}_there"), horus.Topic(horus.Image, endpoint=f"{name}_back")
    image = horus.Image(height, width, "rgb8")
    with child("horus", name) as other:
        other.stdout.readline()

        def round_trip():
            there.send(image)
            while (answer := back.recv()) is None:
                pass
            answer.to_numpy()

        report("horus-robotics: echo", size, timed(rounds, round_trip))
        there.send(horus.Image(1, 1, "rgb8"))
        other.wait()


ECHOES = {"cenote": cenote_echo, "iceoryx2": iceoryx2_echo, "horus": horus_echo}
OTHERS = {"iceoryx2": iceoryx2_round_trips, "horus": horus_round_trips}


class child:
    """The other side of an echo, in another process."""

    def __init__(self, which, *arguments):
        command = [sys.executable, __file__, "--echo", which, *map(str, arguments)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def __enter__(self):
        return self.process

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()


def others(size, shape, rounds):
    for package, round_trips in OTHERS.items():
        if importlib.util.find_spec(package) is None:
            continue
        try:
            round_trips(size, shape, rounds)
        except Exception as error:  # an error of another package must not end the benchmark
            print(f"{package}: {type(error).__name__}: {error}", flush=True)


def main():
    if sys.argv[1:2] == ["--echo"]:
        ECHOES[sys.argv[2]](*sys.argv[3:])
        return
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else QUICK
    slow = max(10, min(rounds, SLOW))
    print(f"{'':<44} {'':>6} {'median µs':>11} {'99 % µs':>11}")
    for size, shape in SIZES.items():
        in_process(size, shape, rounds)
        fresh_frames(size, shape, rounds)
    for size, shape in SIZES.items():
        cenote_round_trips(size, shape, rounds)
        others(size, shape, rounds)
        memory_round_trips(size, shape, slow)
        queue_round_trips(size, shape, slow)


if __name__ == "__main__":
    if "CENOTE_BENCH" in os.environ:
        main()
    else:
        # Another process runs the benchmark: its pools end with it, so that the directory can be removed.
        with tempfile.TemporaryDirectory(prefix="cenote-bench-") as directory:
            environment = dict(os.environ, CENOTE_DIR=directory, CENOTE_BENCH="1")
            subprocess.run([sys.executable, *sys.argv], env=environment, check=True)
