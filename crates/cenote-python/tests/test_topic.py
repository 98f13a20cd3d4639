"""Topics: between threads, processes, and Python and Rust."""

import asyncio
import contextlib
import gc
import os
import pathlib
import selectors
import signal
import subprocess
import threading
import time
import weakref

import cenote
import cv2
import numpy as np
import pytest
from test_process import Child, descriptors, eventually, resident

LONG = 60  # seconds that no test takes


@pytest.fixture
def topic(name):
    with cenote.Topic(name, cenote.Image) as topic:
        topic.subscribe()
        yield topic


def an_image(value=7, size=(64, 48), **header):
    image = cenote.Image(*size, "rgb8", **header)
    image.fill(value)
    return image


def is_all(message, value):
    return bool((message.numpy() == value).all())


@pytest.mark.parametrize(
    "make",
    [
        lambda: cenote.Tensor.from_numpy(np.arange(24.0).reshape(2, 3, 4)),
        lambda: cenote.Image.from_numpy(np.arange(72, dtype="uint8").reshape(4, 6, 3), frame_id="c", seq=3),
        lambda: cenote.PointCloud(9, fields=[("x", "f4"), ("ring", "u2")], frame_id="l"),
        lambda: cenote.PointCloud(0, 3),
        lambda: cenote.DepthImage(4, 6, intrinsics=(1.0, 2.0, 3.0, 4.0), stamp_ns=5),
    ],
)
def test_what_is_sent_is_received(name, make):
    message = make()
    with cenote.Topic(name, type(message)) as topic:
        assert topic.recv(timeout=0) is None
        topic.send(message)
        received = topic.recv()
        assert type(received) is type(message)
        np.testing.assert_array_equal(received.numpy(), message.numpy())
        for part in ("frame_id", "stamp_ns", "seq", "intrinsics", "fields", "format"):
            assert getattr(received, part, None) == getattr(message, part, None)
        assert not received.writable and not received.numpy().flags.writeable and not message.writable
        assert topic.stats() == {
            "sent": 1, "received": 1, "missed": 0, "publishers": 0, "subscribers": 0, "copies": {},
        }


def test_the_example_of_the_package_that_this_took_after(name):
    img = cenote.Image(640, 480, "rgb8")
    img.fill((255, 0, 0))
    topic = cenote.Topic("camera.rgb", cenote.Image)
    topic.subscribe()
    topic.send(img)
    if (img := topic.recv(timeout=0)) is not None:
        assert img.pixel(0, 0) == (255, 0, 0)
    assert img is not None
    pc = cenote.PointCloud(10000, 3, "float32")
    depth = cenote.DepthImage(480, 640, "float32")
    assert pc.shape == (10000, 3) and depth.shape == (480, 640)

    tensors = cenote.Topic("camera.tensors", cenote.Tensor)
    tensors.subscribe()
    handle = tensors.alloc_tensor((1080, 1920, 3), "uint8")
    handle[...] = 5
    tensors.send(handle)
    received = tensors.recv(timeout=0)
    assert received.shape == (1080, 1920, 3) and received.dtype == np.uint8 and is_all(received, 5)

    pool = cenote.TensorPool(pool_id=1, size_mb=1024, max_slots=1024)
    handle = pool.alloc(shape=(1080, 1920, 3), dtype="float32")
    handle.fill(1.5)
    tensors.send(handle)
    assert is_all(tensors.recv(timeout=0), 1.5) and tensors.stats()["copies"] == {}
    for each in (topic, tensors, pool):
        each.close()


def test_what_can_still_be_written_is_copied_and_counted(topic):
    image = an_image(1)
    view = image.numpy()[3:9, 2]
    topic.send(image)
    view[...] = 2
    received = topic.recv()
    assert is_all(received, 1) and image.writable
    assert topic.stats()["copies"] == {"Lent": (1, 64 * 48 * 3)}
    del view
    topic.send(image)
    assert topic.stats()["copies"] == {"Lent": (1, 64 * 48 * 3)}
    assert not image.writable
    with pytest.raises(cenote.ReadOnlyError):
        image.fill(3)


def test_writing_leaves_nothing_behind(topic):
    source = np.random.default_rng(1).integers(0, 255, (96, 128, 3), "uint8")
    image = topic.image(64, 48, "bgr8")
    cv2.resize(source, (64, 48), dst=image.numpy())
    topic.send(image)
    image = cenote.Image(64, 48)
    np.add(image.numpy(), 3, out=image.numpy())
    topic.send(image)
    image = cenote.Image(64, 48)
    memoryview(image.numpy())[0, 0, 0] = 4
    topic.send(image)
    assert topic.stats()["copies"] == {}
    assert (topic.recv().numpy() == cv2.resize(source, (64, 48))).all()
    assert is_all(topic.recv(), 3) and topic.recv().numpy()[0, 0].tolist() == [4, 0, 0]


def test_memory_of_others_is_copied(name):
    with cenote.Topic(name) as topic:
        topic.subscribe()
        topic.send(cenote.Tensor((4,), "uint8", memory="mem"))
        array = np.arange(4, dtype="uint8")
        topic.send(cenote.Tensor.from_dlpack(array))
        array[0] = 9
        assert topic.recv().tolist() == [0] * 4 and topic.recv().tolist() == [0, 1, 2, 3]
        assert topic.stats()["copies"] == {"Heap": (2, 8)}


def test_only_what_the_topic_carries_is_sent(topic, name):
    for wrong in (None, 3, np.zeros((4, 6, 3), "uint8"), cenote.Tensor((4, 6, 3), "uint8"), cenote.DepthImage(4, 6)):
        with pytest.raises(TypeError):
            topic.send(wrong)
        with pytest.raises(TypeError):
            topic.try_send(wrong)
    with cenote.Topic(name + ".any", cenote.Tensor) as any_tensor:
        any_tensor.subscribe()
        any_tensor.send(an_image())
        assert type(any_tensor.recv()) is cenote.Tensor
    for bad in (int, "Image", cenote.TensorPool, cenote.Image(4, 4)):
        with pytest.raises(TypeError):
            cenote.Topic(name, bad)


def test_a_topic_that_carries_something_else_is_an_error(topic, name):
    topic.advertise()
    with cenote.Topic(name, cenote.DepthImage) as other, pytest.raises(cenote.TypeMismatch, match="Image"):
        other.recv(timeout=LONG)
    with cenote.Topic(name, cenote.Tensor) as any_tensor:
        any_tensor.subscribe()
        assert topic.wait_for_subscribers(1, LONG) == 1
        topic.send(an_image())
        assert any_tensor.recv(timeout=LONG).shape == (48, 64, 3)


def test_what_is_wrong_is_told_once_to_who_does_not_receive(topic, name):
    assert topic.last_error() is None
    with cenote.Topic(name, cenote.DepthImage) as wrong:
        wrong.advertise()
        errors = []
        # Whoever asks how many publish has those looked at who came.
        assert eventually(lambda: errors or topic.stats()["publishers"] or errors.extend(filter(None, [topic.last_error()])))
        assert type(errors[0]) is cenote.TypeMismatch and "DepthImage" in str(errors[0])
        assert topic.last_error() is None and topic.recv(timeout=0) is None


@pytest.mark.parametrize(
    "options",
    [
        {"depth": 0}, {"depth": 1 << 20}, {"policy": "best"}, {"policy": "reject", "timeout": 1},
        {"policy": "block", "timeout": -1}, {"size_mb": 1 << 60}, {"max_slots": 0}, {"depth": -1}, {"history": -1}, {"size_mb": -1}, {"max_slots": 1 << 70},
    ],
)
def test_bad_options(name, options):
    with pytest.raises(cenote.ArgumentError):
        cenote.Topic(name, cenote.Image, **options)


def test_bad_names_and_timeouts(topic):
    for bad in ("", "..", "a b\n", "x" * 1000):
        with pytest.raises(cenote.ArgumentError):
            cenote.Topic(bad, cenote.Image)
    for bad in (-1, float("nan"), float("-inf")):
        with pytest.raises(ValueError):
            topic.recv(timeout=bad)
        with pytest.raises(ValueError):
            topic.wait_for_subscribers(1, timeout=bad)
    with pytest.raises(cenote.ArgumentError):
        topic.wait_for_subscribers(-1)
    topic.send(an_image(seq=3))
    assert topic.recv(timeout=float("inf")).seq == 3
    topic.send(an_image(seq=4))
    assert topic.recv(timeout=1e300).seq == 4
    assert cenote.Topic("/camera/rgb").name == "camera.rgb"


def test_the_last_ones_are_kept(name):
    with cenote.Topic(name, depth=3) as topic:
        topic.subscribe()
        for value in range(10):
            topic.send(cenote.Tensor.from_numpy([value]))
        assert [topic.recv(timeout=0).item() for _ in range(3)] == [7, 8, 9]
        assert topic.recv(timeout=0) is None and topic.missed == topic.stats()["missed"] == 7


def test_the_latest(name):
    with cenote.Topic(name) as topic:
        assert topic.latest() is None
        for value in range(5):
            topic.send(cenote.Tensor.from_numpy([value]))
        assert topic.latest().item() == 4
        assert topic.latest() is None and topic.recv(timeout=0) is None and topic.missed == 0


def test_a_slow_subscriber(name):
    tensor = cenote.Tensor((4,), "uint8", memory="mem")
    with cenote.Topic(name, depth=2, policy="reject") as topic:
        topic.subscribe()
        assert topic.try_send(tensor) and topic.try_send(tensor) and not topic.try_send(tensor)
        with pytest.raises(cenote.Timeout, match="this very topic"):
            topic.send(tensor)
        assert topic.recv() is not None and topic.try_send(tensor)
        # Nothing is copied in vain.
        assert topic.stats()["copies"] == {"Heap": (3, 12)}
    with cenote.Topic(name, depth=1, policy="block", timeout=0.3, ignore_own=True) as topic:
        with cenote.Topic(name) as slow:
            slow.subscribe()
            assert topic.wait_for_subscribers(1, LONG) == 1
            topic.send(tensor)
            assert not topic.try_send(tensor)
            start = time.monotonic()
            with pytest.raises(cenote.Timeout, match=rf"{os.getpid()}\b.*\b300ms"):
                topic.send(tensor)
            assert time.monotonic() - start >= 0.3
    with cenote.Topic(name, depth=1, policy="block") as topic, cenote.Topic(name) as slow:
        slow.subscribe()
        assert topic.wait_for_subscribers(timeout=LONG) == 1
        topic.send(tensor)
        threading.Timer(0.3, slow.recv).start()
        topic.send(tensor)  # waits for as long as it takes
        assert slow.recv(timeout=LONG).shape == (4,)
        assert topic.stats()["copies"]["Heap"] == (2, 8)


def test_history_and_own(name):
    with cenote.Topic(name, ignore_own=True) as topic:
        for value in range(5):
            topic.send(cenote.Tensor.from_numpy([value]))
        assert topic.recv(timeout=0) is None
        with cenote.Topic(name, history=3) as late:
            assert [late.recv(timeout=LONG).item() for _ in range(3)] == [2, 3, 4]
            assert late.recv(timeout=0) is None and late.stats()["publishers"] == 1


def test_many_topics_meet(name):
    with contextlib.ExitStack() as stack:
        ones = [stack.enter_context(cenote.Topic(name, ignore_own=True)) for _ in range(3)]
        for one in ones:
            one.subscribe()
            one.advertise()
        assert [one.wait_for_subscribers(2, LONG) for one in ones] == [2, 2, 2]
        for number, one in enumerate(ones):
            one.send(cenote.Tensor.from_numpy([number]))
        for number, one in enumerate(ones):
            assert sorted(one.recv(timeout=LONG).item() for _ in range(2)) == sorted({0, 1, 2} - {number})


def test_other_threads_run_while_one_waits(topic):
    threading.Timer(0.2, lambda: topic.send(an_image(seq=5))).start()
    assert topic.recv().seq == 5
    start = time.monotonic()
    assert topic.recv(timeout=0.2) is None
    assert 0.2 <= time.monotonic() - start < LONG
    assert topic.wait_for_subscribers(1, timeout=0.1) == 0


def test_iteration_ends_when_the_topic_is_closed(topic):
    for seq in range(3):
        topic.send(an_image(seq=seq))
    threading.Timer(0.3, topic.close).start()
    assert [image.seq for image in topic] == [0, 1, 2]
    assert topic.closed and repr(topic).endswith("closed>") and list(topic) == []
    for call in (topic.recv, topic.latest, topic.fileno, topic.stats, lambda: topic.send(an_image())):
        with pytest.raises(cenote.Error, match="closed"):
            call()
    topic.close()


def test_what_a_signal_handler_raises_is_raised_though_it_closed_the_topic(topic):
    def close(*_):
        topic.close()
        raise SystemExit(3)

    before = signal.signal(signal.SIGALRM, close)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(SystemExit):
            for _ in topic:
                pass
    finally:
        signal.signal(signal.SIGALRM, before)


def test_iteration_in_asyncio_ends_when_the_topic_is_closed(topic):
    async def receive():
        topic.send(an_image())
        found = []
        async for image in topic:
            found.append(image)
            topic.close()
        return len(found)

    assert asyncio.run(receive()) == 1


def full(name):
    """A topic whose subscriber takes nothing, so that sending waits for ever."""
    topic, slow = cenote.Topic(name, depth=1, policy="block", ignore_own=True), cenote.Topic(name)
    slow.subscribe()
    assert topic.wait_for_subscribers(1, LONG) == 1
    topic.send(cenote.Tensor(1))
    return topic, slow


@pytest.mark.parametrize(
    "wait",
    [
        lambda topic: topic.recv(),
        lambda topic: topic.recv(timeout=LONG),
        lambda topic: topic.send(cenote.Tensor(1)),
        lambda topic: topic.wait_for_subscribers(9),
        lambda topic: topic.wait_for_subscribers(9, LONG),
        lambda topic: asyncio.run(topic.recv_async()),
    ],
)
def test_closing_wakes_whoever_waits(name, wait):
    topic, slow = full(name)
    start = time.monotonic()
    threading.Timer(0.2, topic.close).start()
    with pytest.raises(cenote.Error, match="closed"):
        wait(topic)
    assert topic.closed and 0.2 <= time.monotonic() - start < LONG / 2
    slow.close()


def test_closing_ends_every_asynchronous_iteration(topic):
    seen = []

    async def count():
        mine = [seen.append(image) async for image in topic]
        return len(mine)

    async def both():
        tasks = [asyncio.create_task(count()) for _ in range(3)]
        await asyncio.sleep(0.1)
        topic.send(an_image())
        while not seen:
            await asyncio.sleep(0.001)
        await asyncio.to_thread(topic.close)  # by another thread
        return await asyncio.wait_for(asyncio.gather(*tasks), LONG)

    assert sorted(asyncio.run(asyncio.wait_for(both(), LONG))) == [0, 0, 1]


def test_a_closed_topic_tells_loops_that_are_gone_nothing(topic):
    async def give_up():
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(topic.recv_async(), 0.05)

    asyncio.run(give_up())
    topic.close()
    with pytest.raises(cenote.Error, match="closed"):
        asyncio.run(topic.recv_async())


def test_asyncio(name):
    async def consume(topic, count):
        seen = []
        async for tensor in topic:
            seen.append(tensor.item())
            if len(seen) == count:
                return seen

    async def both():
        with cenote.Topic(name, policy="block", depth=4) as topic, cenote.Topic(name) as other:
            topic.advertise()
            tasks = [asyncio.create_task(consume(each, 20)) for each in (topic, other)]
            while topic.stats()["subscribers"] < 1:
                await asyncio.sleep(0.01)
            for value in range(20):
                while not topic.try_send(cenote.Tensor.from_numpy([value])):
                    await asyncio.sleep(0.001)
            assert await asyncio.gather(*tasks) == [list(range(20))] * 2

            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(topic.recv_async(), 0.1)
            # Two that wait for the same topic.
            tasks = [asyncio.create_task(other.recv_async()) for _ in range(2)]
            await asyncio.sleep(0.05)
            for value in (5, 6):
                topic.send(cenote.Tensor.from_numpy([value]))
            assert sorted(tensor.item() for tensor in await asyncio.gather(*tasks)) == [5, 6]

    before = descriptors()
    asyncio.run(asyncio.wait_for(both(), LONG))
    assert eventually(lambda: descriptors() <= before + 8)


def test_select(topic):
    with selectors.DefaultSelector() as selector:
        selector.register(topic.fileno(), selectors.EVENT_READ)
        while selector.select(0):  # what there was before
            assert topic.recv(timeout=0) is None
        topic.send(an_image(seq=4))
        assert selector.select(LONG)
        assert topic.recv(timeout=0).seq == 4
        while selector.select(0):
            assert topic.recv(timeout=0) is None


def test_topics_can_be_referred_to_and_annotated(name):
    topic = cenote.Topic(name, cenote.Image)
    assert repr(topic) == f'<cenote.Topic "{name}" of Image>'
    assert cenote.Topic[cenote.Image].__origin__ is cenote.Topic
    gone = weakref.ref(topic)
    del topic
    gc.collect()
    assert gone() is None


PUBLISHER = """
import sys, cenote
topic = cenote.Topic(sys.argv[1], cenote.Image)
assert topic.wait_for_subscribers(1, timeout=60) == 1
print("ready")
for line in sys.stdin:
    seq = int(line)
    image = topic.image(640, 480)
    image.fill(seq % 256)
    image.seq = seq
    topic.send(image)
    print(topic.stats()["copies"])
"""

SUBSCRIBER = """
import sys, cenote
topic = cenote.Topic(sys.argv[1], cenote.Image)
topic.subscribe()
print("ready")
held = []
for image in topic:
    held.append(image.numpy())
    print(image.seq, held[-1].min(), held[-1].max(), image.frame_id)
"""


def tell(child, what):
    child.process.stdin.write(f"{what}\n")
    child.process.stdin.flush()


def test_another_process_publishes_until_it_is_killed(name):
    with cenote.Topic(name, cenote.Image) as topic, Child(PUBLISHER, name) as publisher:
        topic.subscribe()
        assert publisher.line() == "ready"
        images = []
        for seq in (3, 300):
            tell(publisher, seq)
            images.append(topic.recv(timeout=LONG))
            assert images[-1].seq == seq and publisher.line() == "{}"
        tell(publisher, 5)
        assert publisher.line() == "{}"
        publisher.kill()
        # What it sent is still there, and stays.
        images.append(topic.recv(timeout=LONG))
        assert [image.seq for image in images] == [3, 300, 5]
        assert is_all(images[0], 3) and is_all(images[1], 44) and is_all(images[2], 5)
        assert topic.recv(timeout=0.2) is None and eventually(lambda: topic.stats()["publishers"] == 0)
        with Child(PUBLISHER, name) as another:
            assert another.line() == "ready"
            tell(another, 8)
            assert topic.recv(timeout=LONG).seq == 8
        # Forwarding what came from a dead process takes a copy.
        topic.send(images[0])
        assert is_all(topic.recv(timeout=LONG), 3) and topic.stats()["copies"] == {"OwnerGone": (1, 640 * 480 * 3)}


RELAY = """
import sys, cenote
with cenote.Topic(sys.argv[1], cenote.Image) as source, cenote.Topic(sys.argv[2], cenote.Image) as target:
    source.subscribe()
    assert target.wait_for_subscribers(1, 60) == 1
    print("ready")
    target.send(source.recv())
    print(target.stats()["copies"])
    sys.stdin.read()
"""


def test_why_a_message_was_missed_is_told_once(name):
    with cenote.Topic(f"{name}.there", cenote.Image) as topic, Child(PUBLISHER, name) as origin:
        topic.subscribe()
        with Child(RELAY, name, topic.name) as relay:
            assert relay.line() == "ready" and origin.line() == "ready"
            tell(origin, 3)
            assert origin.line() == "{}" and relay.line() == "{}" and topic.last_loss() is None
            # Nobody has looked at it yet, so nobody has attached to the pool that it is in.
            origin.kill()
            assert eventually(lambda: topic.recv(timeout=0) is None and topic.missed == 1)
            loss = topic.last_loss()
            assert type(loss) is cenote.NotFound and "pool" in str(loss)
            assert topic.last_loss() is None and topic.last_error() is None


def test_another_process_subscribes_until_it_is_killed(name, pool):
    with cenote.Topic(name, cenote.Image, ignore_own=True, depth=1) as topic:
        with Child(SUBSCRIBER, name) as subscriber:
            assert subscriber.line() == "ready"
            assert topic.wait_for_subscribers(1, LONG) == 1
            for seq in range(5):
                image = cenote.Image(640, 480, seq=seq, frame_id="f", pool=pool)
                image.fill(seq)
                topic.send(image)
                assert subscriber.line() == f"{seq} {seq} {seq} f"
            del image
            # It holds all of them; the topic the last one.
            assert eventually(lambda: pool.stats()["retired"] == 4) and topic.stats()["copies"] == {}
            subscriber.kill()
        assert eventually(lambda: pool.stats()["retired"] == 0)
        assert eventually(lambda: topic.stats()["subscribers"] == 0)
        topic.send(an_image())


@pytest.fixture(scope="session")
def example():
    """The Rust program of `cargo run --example topic`."""
    given = os.environ.get("CENOTE_TEST_EXAMPLE")
    if given is None:
        root = pathlib.Path(__file__).parents[3]
        build = ["cargo", "build", "--quiet", "--release", "--package", "cenote", "--all-features", "--example", "topic"]
        subprocess.run(build, cwd=root, check=True)
        given = root / os.environ.get("CARGO_TARGET_DIR", "target") / "release" / "examples" / "topic"
    return str(given)


@contextlib.contextmanager
def running(program, role, directory):
    environment = dict(os.environ, CENOTE_DIR=str(directory))
    process = subprocess.Popen([program, role], env=environment, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_from_rust_to_python(example):
    directory = os.environ["CENOTE_DIR"]
    with cenote.Topic("camera.rgb", cenote.Image) as topic, running(example, "camera", directory) as camera:
        frames = [topic.recv(timeout=LONG) for _ in range(10)]
        assert camera.wait(LONG) == 0
        assert [frame.seq for frame in frames] == list(range(10))
        assert all(is_all(frame, frame.seq) and frame.shape == (1080, 1920, 3) for frame in frames)
        assert topic.recv(timeout=0) is None and topic.missed == 0


def test_from_python_to_rust(example):
    directory = os.environ["CENOTE_DIR"]
    with cenote.Topic("camera.rgb", cenote.Image) as topic, running(example, "viewer", directory) as viewer:
        assert topic.wait_for_subscribers(1, LONG) == 1
        for shade in range(10):
            frame = topic.image(1920, 1080)
            frame.fill(shade)
            frame.seq = shade
            topic.send(frame)
        # It checks size, numbers and pixels.
        assert viewer.wait(LONG) == 0 and topic.stats()["copies"] == {}


def test_killed_rust_processes_harm_nobody(example):
    directory = os.environ["CENOTE_DIR"]
    with cenote.Topic("camera.rgb", cenote.Image) as topic:
        with running(example, "viewer", directory) as viewer:
            assert topic.wait_for_subscribers(1, LONG) == 1
            os.kill(viewer.pid, signal.SIGKILL)
            assert eventually(lambda: topic.stats()["subscribers"] == 0)
        topic.subscribe()
        with running(example, "camera", directory) as camera:
            first = topic.recv(timeout=LONG)
            os.kill(camera.pid, signal.SIGKILL)
            camera.wait(LONG)
            assert is_all(first, 0)
            while (frame := topic.recv(timeout=0.2)) is not None:
                assert is_all(frame, frame.seq)
            assert is_all(first, 0)


INTERRUPTED = """
import sys, cenote
topic = cenote.Topic(sys.argv[1], cenote.Image, depth=1, policy="block")
topic.subscribe()
topic.send(cenote.Image(4, 4))
wait = {
    "recv": lambda: (topic.recv(), topic.recv()),
    "next": lambda: [None for _ in topic],
    "send": lambda: topic.send(cenote.Image(4, 4)),
    "wait": lambda: topic.wait_for_subscribers(1),
}[sys.argv[2]]
try:
    print("waiting")
    wait()
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.parametrize("how", ["recv", "next", "send", "wait"])
def test_ctrl_c_ends_waiting(name, how):
    with Child(INTERRUPTED, name, how) as child:
        assert child.line() == "waiting"
        time.sleep(0.2)
        os.kill(child.pid, signal.SIGINT)
        assert child.line() == "interrupted"
        assert child.process.wait(LONG) == 0


ECHO = """
import sys, cenote
there = cenote.Topic(sys.argv[1] + ".there", cenote.Image)
back = cenote.Topic(sys.argv[1] + ".back", cenote.Image)
for image in there:
    back.send(image)
"""


def shared_bytes():
    """Of the memory that this process has mapped and others can see."""
    with open("/proc/self/smaps_rollup") as lines:
        return sum(int(line.split()[1]) for line in lines if line.startswith("Pss_Shmem")) * 1024


def test_nothing_leaks_in_a_hundred_thousand_messages(name):
    there = cenote.Topic(name + ".there", cenote.Image, ignore_own=True)
    back = cenote.Topic(name + ".back", cenote.Image)
    back.subscribe()

    def exchange(messages):
        for first in range(0, messages, 8):
            for seq in range(first, first + 8):
                image = there.image(64, 48)
                image.numpy()[0, 0, 0] = seq % 256
                image.seq = seq
                there.send(image)
            for seq in range(first, first + 8):
                answer = back.recv(timeout=LONG)
                assert answer.seq == seq and answer.numpy()[0, 0, 0] == seq % 256

    with Child(ECHO, name) as echo, there, back:
        assert there.wait_for_subscribers(1, LONG) == 1

        def theirs():
            with open(f"/proc/{echo.pid}/statm") as statm:
                return int(statm.read().split()[1]) * 4096

        def open_files():
            return descriptors(), len(os.listdir(f"/proc/{echo.pid}/fd"))

        exchange(4_000)
        before, open_before = (resident(), theirs(), shared_bytes()), open_files()
        exchange(50_000)  # there and back
        after = resident(), theirs(), shared_bytes()
        assert after[0] - before[0] < 4 << 20 and after[1] - before[1] < 4 << 20
        assert after[2] - before[2] < 1 << 20
        # What tests before this one had open may go meanwhile.
        assert eventually(lambda: all(now <= then for now, then in zip(open_files(), open_before, strict=True)))
        assert there.stats()["copies"] == {}


def listed(name):
    return next((topic for topic in cenote.topics() if topic["name"] == name), None)


def test_topics_are_listed_with_who_publishes_and_subscribes(name):
    assert listed(name) is None
    with cenote.Topic(name, cenote.Image, depth=3, policy="reject") as topic, Child(SUBSCRIBER, name) as subscriber:
        assert subscriber.line() == "ready"
        assert topic.wait_for_subscribers(1, LONG) == 1
        image = an_image(seq=4)
        array = image.numpy()
        topic.send(image)
        assert subscriber.line() == "4 7 7"
        found = listed(name)
        (publisher,) = found["publishers"]
        assert found["waiting"] == [] and (publisher["pid"], publisher["carries"]) == (os.getpid(), "Image")
        assert (publisher["sent"], publisher["depth"], publisher["waits"], publisher["closed"]) == (1, 3, True, False)
        assert publisher["copies"] == topic.stats()["copies"] == {"Lent": (1, array.nbytes)}
        (reader,) = publisher["subscribers"]
        assert (reader["pid"], reader["behind"]) == (subscriber.pid, 0) and "python" in reader["program"]
    assert listed(name) is None or not listed(name)["publishers"]
