"""Waiting for messages: threads, signals, asyncio, select; and closing a topic meanwhile."""

import asyncio
import os
import selectors
import signal
import threading
import time

import cenote
import pytest
from processes import Child, eventually, open_descriptors
from topics import LONG, an_image


def test_other_threads_run_while_recv_waits(topic):
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


def test_an_exception_of_a_signal_handler_that_closes_the_topic_is_raised(topic):
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


def full_topic(name):
    """A topic with a subscriber that receives nothing, so that `send` waits forever."""
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
def test_closing_ends_every_waiting_call(name, wait):
    topic, slow = full_topic(name)
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
        await asyncio.to_thread(topic.close)  # in another thread
        return await asyncio.wait_for(asyncio.gather(*tasks), LONG)

    assert sorted(asyncio.run(asyncio.wait_for(both(), LONG))) == [0, 0, 1]


def test_closing_ignores_event_loops_that_have_ended(topic):
    async def give_up():
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(topic.recv_async(), 0.05)

    asyncio.run(give_up())
    topic.close()
    with pytest.raises(cenote.Error, match="closed"):
        asyncio.run(topic.recv_async())


def test_tasks_of_asyncio_receive(name):
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
            # Two tasks wait for the same topic.
            tasks = [asyncio.create_task(other.recv_async()) for _ in range(2)]
            await asyncio.sleep(0.05)
            for value in (5, 6):
                topic.send(cenote.Tensor.from_numpy([value]))
            assert sorted(tensor.item() for tensor in await asyncio.gather(*tasks)) == [5, 6]

    before = open_descriptors()
    asyncio.run(asyncio.wait_for(both(), LONG))
    assert eventually(lambda: open_descriptors() <= before + 8)


def test_select_reports_new_messages(topic):
    with selectors.DefaultSelector() as selector:
        selector.register(topic.fileno(), selectors.EVENT_READ)
        while selector.select(0):  # events from before the message
            assert topic.recv(timeout=0) is None
        topic.send(an_image(seq=4))
        assert selector.select(LONG)
        assert topic.recv(timeout=0).seq == 4
        while selector.select(0):
            assert topic.recv(timeout=0) is None


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
def test_ctrl_c_ends_every_waiting_call(name, how):
    with Child(INTERRUPTED, name, how) as child:
        assert child.line() == "waiting"
        time.sleep(0.2)
        os.kill(child.pid, signal.SIGINT)
        assert child.line() == "interrupted"
        assert child.process.wait(LONG) == 0
