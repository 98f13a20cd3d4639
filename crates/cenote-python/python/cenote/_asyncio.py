"""Receiving in asyncio: the event loop waits for the topic's descriptor."""

import asyncio
import os
from typing import Any


async def recv(topic: Any) -> Any:
    """The next message of a topic."""
    while (message := topic.recv(timeout=0)) is None:
        await _readable(topic.fileno())
    return message


async def next_of(topic: Any) -> Any:
    """The next message of a topic, for ``async for``, which ends when the topic is closed."""
    if topic.closed:
        raise StopAsyncIteration
    # Others have their turn, however many messages are there.
    await asyncio.sleep(0)
    return await recv(topic)


async def _readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    # One of its own, for a loop tells one of those who wait for the same descriptor.
    own = os.dup(descriptor)
    try:
        loop.add_reader(own, _wake, ready)
        try:
            await ready
        finally:
            loop.remove_reader(own)
    finally:
        os.close(own)


def _wake(ready: "asyncio.Future[None]") -> None:
    if not ready.done():
        ready.set_result(None)
