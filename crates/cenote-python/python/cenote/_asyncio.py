"""Receiving in asyncio: the event loop waits until the topic's descriptor is readable, or the topic is closed."""

import asyncio
import contextlib
import os
from typing import Any
from weakref import WeakKeyDictionary

from ._errors import Error

# The futures of the tasks that wait for a message, by topic.
_waiting: "WeakKeyDictionary[Any, set[asyncio.Future[None]]]" = WeakKeyDictionary()


async def recv(topic: Any) -> Any:
    """The next message of a topic."""
    while (message := topic.recv(timeout=0)) is None:
        await _readable(topic)
    return message


async def next_of(topic: Any) -> Any:
    """The next message of a topic, for ``async for``, which ends when the topic is closed."""
    # Lets other tasks run, however many messages are waiting.
    await asyncio.sleep(0)
    try:
        return await recv(topic)
    except Error as error:
        # A closed topic raises ``Error`` itself. A subclass has another cause.
        if topic.closed and type(error) is Error:
            raise StopAsyncIteration from None
        raise


def wake(topic: Any) -> None:
    """Wakes all tasks that wait for a message: a thread has closed the topic."""
    for ready in list(_waiting.get(topic, ())):
        # A closed event loop has no task to wake.
        with contextlib.suppress(RuntimeError):
            ready.get_loop().call_soon_threadsafe(_wake, ready)


async def _readable(topic: Any) -> None:
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    # Each task needs a separate descriptor: a loop calls only one reader of a descriptor.
    fd = topic._dup()
    waiting = _waiting.setdefault(topic, set())
    try:
        waiting.add(ready)
        loop.add_reader(fd, _wake, ready)
        try:
            # If the topic was closed before the line above, ``wake`` did not see this future.
            if not topic.closed:
                await ready
        finally:
            loop.remove_reader(fd)
    finally:
        waiting.discard(ready)
        os.close(fd)


def _wake(ready: "asyncio.Future[None]") -> None:
    if not ready.done():
        ready.set_result(None)
