"""Topics between processes, and between Python and Rust."""

import contextlib
import os
import pathlib
import signal
import subprocess

import cenote
import pytest
from processes import Child, eventually, open_descriptors, resident_bytes
from topics import LONG, PUBLISHER, SUBSCRIBER, an_image, is_all, write_line


def test_another_process_publishes_until_it_is_killed(name):
    with cenote.Topic(name, cenote.Image) as topic, Child(PUBLISHER, name) as publisher:
        topic.subscribe()
        assert publisher.line() == "ready"
        images = []
        for seq in (3, 300):
            write_line(publisher, seq)
            images.append(topic.recv(timeout=LONG))
            assert images[-1].seq == seq and publisher.line() == "{}"
        write_line(publisher, 5)
        assert publisher.line() == "{}"
        publisher.kill()
        # The messages that it sent can still be received, and stay valid.
        images.append(topic.recv(timeout=LONG))
        assert [image.seq for image in images] == [3, 300, 5]
        assert is_all(images[0], 3) and is_all(images[1], 44) and is_all(images[2], 5)
        assert topic.recv(timeout=0.2) is None and eventually(lambda: topic.stats()["publishers"] == 0)
        with Child(PUBLISHER, name) as another:
            assert another.line() == "ready"
            write_line(another, 8)
            assert topic.recv(timeout=LONG).seq == 8
        # Forwarding a message of a dead process copies it.
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


def test_last_loss_reports_a_reason_once(name):
    with cenote.Topic(f"{name}.there", cenote.Image) as topic, Child(PUBLISHER, name) as origin:
        topic.subscribe()
        with Child(RELAY, name, topic.name) as relay:
            assert relay.line() == "ready" and origin.line() == "ready"
            write_line(origin, 3)
            assert origin.line() == "{}" and relay.line() == "{}" and topic.last_loss() is None
            # This process has not received the message yet, so it is not attached to the message's pool.
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
            # The subscriber holds all images, and the topic holds the last one, too.
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
        root = pathlib.Path(__file__).parents[4]
        build = ["cargo", "build", "--quiet", "--release", "--package", "cenote", "--all-features", "--example", "topic"]
        subprocess.run(build, cwd=root, check=True)
        given = root / os.environ.get("CARGO_TARGET_DIR", "target") / "release" / "examples" / "topic"
    return str(given)


@contextlib.contextmanager
def running_example(program, role, directory):
    """Runs the Rust program until the end of the `with` statement."""
    environment = dict(os.environ, CENOTE_DIR=str(directory))
    process = subprocess.Popen([program, role], env=environment, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_python_receives_from_rust(example):
    directory = os.environ["CENOTE_DIR"]
    with cenote.Topic("camera.rgb", cenote.Image) as topic, running_example(example, "camera", directory) as camera:
        frames = [topic.recv(timeout=LONG) for _ in range(10)]
        assert camera.wait(LONG) == 0
        assert [frame.seq for frame in frames] == list(range(10))
        assert all(is_all(frame, frame.seq) and frame.shape == (1080, 1920, 3) for frame in frames)
        assert topic.recv(timeout=0) is None and topic.missed == 0


def test_rust_receives_from_python(example):
    directory = os.environ["CENOTE_DIR"]
    with cenote.Topic("camera.rgb", cenote.Image) as topic, running_example(example, "viewer", directory) as viewer:
        assert topic.wait_for_subscribers(1, LONG) == 1
        for shade in range(10):
            frame = topic.image(1920, 1080)
            frame.fill(shade)
            frame.seq = shade
            topic.send(frame)
        # The viewer checks sizes, numbers and pixels.
        assert viewer.wait(LONG) == 0 and topic.stats()["copies"] == {}


def test_python_survives_killed_rust_processes(example):
    directory = os.environ["CENOTE_DIR"]
    with cenote.Topic("camera.rgb", cenote.Image) as topic:
        with running_example(example, "viewer", directory) as viewer:
            assert topic.wait_for_subscribers(1, LONG) == 1
            os.kill(viewer.pid, signal.SIGKILL)
            assert eventually(lambda: topic.stats()["subscribers"] == 0)
        topic.subscribe()
        with running_example(example, "camera", directory) as camera:
            first = topic.recv(timeout=LONG)
            os.kill(camera.pid, signal.SIGKILL)
            camera.wait(LONG)
            assert is_all(first, 0)
            while (frame := topic.recv(timeout=0.2)) is not None:
                assert is_all(frame, frame.seq)
            assert is_all(first, 0)


ECHO = """
import sys, cenote
there = cenote.Topic(sys.argv[1] + ".there", cenote.Image)
back = cenote.Topic(sys.argv[1] + ".back", cenote.Image)
for image in there:
    back.send(image)
"""


def shared_bytes():
    """The bytes of shared memory that this process has mapped."""
    with open("/proc/self/smaps_rollup") as lines:
        return sum(int(line.split()[1]) for line in lines if line.startswith("Pss_Shmem")) * 1024


def test_a_hundred_thousand_messages_leak_neither_memory_nor_descriptors(name):
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

        def echo_bytes():
            with open(f"/proc/{echo.pid}/statm") as statm:
                return int(statm.read().split()[1]) * 4096

        def open_files():
            return open_descriptors(), len(os.listdir(f"/proc/{echo.pid}/fd"))

        exchange(4_000)
        before, open_before = (resident_bytes(), echo_bytes(), shared_bytes()), open_files()
        exchange(50_000)  # each is sent and echoed
        after = resident_bytes(), echo_bytes(), shared_bytes()
        assert after[0] - before[0] < 4 << 20 and after[1] - before[1] < 4 << 20
        assert after[2] - before[2] < 1 << 20
        # Descriptors of earlier tests may be closed meanwhile.
        assert eventually(lambda: all(now <= then for now, then in zip(open_files(), open_before, strict=True)))
        assert there.stats()["copies"] == {}
