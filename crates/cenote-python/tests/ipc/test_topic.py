"""Topics in one process: messages, copies, options, policies, errors."""

import contextlib
import gc
import os
import threading
import time
import weakref

import cenote
import cv2
import numpy as np
import pytest
from processes import Child, eventually
from topics import LONG, SUBSCRIBER, an_image, is_all


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
def test_a_message_is_received_as_it_was_sent(name, make):
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


def test_a_program_with_all_kinds_of_messages(name):
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


def test_a_lent_message_is_copied_and_counted(topic):
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


def test_writing_into_a_message_leaves_it_not_lent(topic):
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


def test_messages_outside_of_shared_memory_are_copied(name):
    with cenote.Topic(name) as topic:
        topic.subscribe()
        topic.send(cenote.Tensor((4,), "uint8", memory="mem"))
        array = np.arange(4, dtype="uint8")
        topic.send(cenote.Tensor.from_dlpack(array))
        array[0] = 9
        assert topic.recv().tolist() == [0] * 4 and topic.recv().tolist() == [0, 1, 2, 3]
        assert topic.stats()["copies"] == {"Heap": (2, 8)}


def test_messages_of_another_type_are_refused(topic, name):
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


def test_receiving_from_a_publisher_of_another_type_fails(topic, name):
    topic.advertise()
    with cenote.Topic(name, cenote.DepthImage) as other, pytest.raises(cenote.TypeMismatch, match="Image"):
        other.recv(timeout=LONG)
    with cenote.Topic(name, cenote.Tensor) as any_tensor:
        any_tensor.subscribe()
        assert topic.wait_for_subscribers(1, LONG) == 1
        topic.send(an_image())
        assert any_tensor.recv(timeout=LONG).shape == (48, 64, 3)


def test_last_error_reports_an_error_once(topic, name):
    assert topic.last_error() is None
    with cenote.Topic(name, cenote.DepthImage) as wrong:
        wrong.advertise()
        errors = []
        # `stats` looks for new publishers.
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
def test_invalid_options_raise_argument_error(name, options):
    with pytest.raises(cenote.ArgumentError):
        cenote.Topic(name, cenote.Image, **options)


def test_invalid_names_and_timeouts_raise_value_error(topic):
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


def test_keep_last_overwrites_the_oldest_messages(name):
    with cenote.Topic(name, depth=3) as topic:
        topic.subscribe()
        for value in range(10):
            topic.send(cenote.Tensor.from_numpy([value]))
        assert [topic.recv(timeout=0).item() for _ in range(3)] == [7, 8, 9]
        assert topic.recv(timeout=0) is None and topic.missed == topic.stats()["missed"] == 7


def test_latest_skips_older_messages(name):
    with cenote.Topic(name) as topic:
        assert topic.latest() is None
        for value in range(5):
            topic.send(cenote.Tensor.from_numpy([value]))
        assert topic.latest().item() == 4
        assert topic.latest() is None and topic.recv(timeout=0) is None and topic.missed == 0


def test_reject_and_block_with_a_slow_subscriber(name):
    tensor = cenote.Tensor((4,), "uint8", memory="mem")
    with cenote.Topic(name, depth=2, policy="reject") as topic:
        topic.subscribe()
        assert topic.try_send(tensor) and topic.try_send(tensor) and not topic.try_send(tensor)
        with pytest.raises(cenote.Timeout, match="this very topic"):
            topic.send(tensor)
        assert topic.recv() is not None and topic.try_send(tensor)
        # A message that is not sent is not copied.
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
        topic.send(tensor)  # waits without a timeout
        assert slow.recv(timeout=LONG).shape == (4,)
        assert topic.stats()["copies"]["Heap"] == (2, 8)


def test_history_and_ignore_own(name):
    with cenote.Topic(name, ignore_own=True) as topic:
        for value in range(5):
            topic.send(cenote.Tensor.from_numpy([value]))
        assert topic.recv(timeout=0) is None
        with cenote.Topic(name, history=3) as late:
            assert [late.recv(timeout=LONG).item() for _ in range(3)] == [2, 3, 4]
            assert late.recv(timeout=0) is None and late.stats()["publishers"] == 1


def test_several_objects_of_one_topic_receive_from_each_other(name):
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


def test_repr_type_annotations_and_weak_references(name):
    topic = cenote.Topic(name, cenote.Image)
    assert repr(topic) == f'<cenote.Topic "{name}" of Image>'
    assert cenote.Topic[cenote.Image].__origin__ is cenote.Topic
    gone = weakref.ref(topic)
    del topic
    gc.collect()
    assert gone() is None


def find_topic(name):
    return next((topic for topic in cenote.topics() if topic["name"] == name), None)


def test_topics_are_listed_with_publishers_and_subscribers(name):
    assert find_topic(name) is None
    with cenote.Topic(name, cenote.Image, depth=3, policy="reject") as topic, Child(SUBSCRIBER, name) as subscriber:
        assert subscriber.line() == "ready"
        assert topic.wait_for_subscribers(1, LONG) == 1
        image = an_image(seq=4)
        array = image.numpy()
        topic.send(image)
        assert subscriber.line() == "4 7 7"
        found = find_topic(name)
        (publisher,) = found["publishers"]
        assert found["waiting"] == [] and (publisher["pid"], publisher["carries"]) == (os.getpid(), "Image")
        assert (publisher["sent"], publisher["depth"], publisher["waits"], publisher["closed"]) == (1, 3, True, False)
        assert publisher["copies"] == topic.stats()["copies"] == {"Lent": (1, array.nbytes)}
        (reader,) = publisher["subscribers"]
        assert (reader["pid"], reader["behind"]) == (subscriber.pid, 0) and "python" in reader["program"]
    assert find_topic(name) is None or not find_topic(name)["publishers"]
