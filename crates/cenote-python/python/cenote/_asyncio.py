"""Receiving in asyncio: the event loop waits for the topic's descriptor, and for the topic to be closed."""

import asyncio
import contextlib
import os
from typing import Any
from weakref import WeakKeyDictionary

from ._errors import Error

# Who waits, by topic.
_waiting: "WeakKeyDictionary[Any, set[asyncio.Future[None]]]" = WeakKeyDictionary()


async def recv(topic: Any) -> Any:
    """The next message of a topic."""
    while (message := topic.recv(timeout=0)) is None:
        await _readable(topic)
    return message


async def next_of(topic: Any) -> Any:
    """The next message of a topic, for ``async for``, which ends when the topic is closed."""
    # Others have their turn, however many messages are there.
    await asyncio.sleep(0)
    try:
        return await recv(topic)
    except Error as error:
        # None of its kinds, which tell of something else.
        if topic.closed and type(error) is Error:
            raise StopAsyncIteration from None
        raise


def wake(topic: Any) -> None:
    """Has all who wait look again: the topic was closed, by any thread."""
    for ready in list(_waiting.get(topic, ())):
        # A loop that was closed has nobody to tell.
        with contextlib.suppress(RuntimeError):
            ready.get_loop().call_soon_threadsafe(_wake, ready)


async def _readable(topic: Any) -> None:
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    # One of its own, for a loop tells one of those who wait for the same descriptor.
    own = topic._dup()
    waiting = _waiting.setdefault(topic, set())
    try:
        waiting.add(ready)
        loop.add_reader(own, _wake, ready)
        try:
            # Closed before it was added, it would not be told.
            if not topic.closed:
                await ready
        finally:
            loop.remove_reader(own)
    finally:
        waiting.discard(ready)
        os.close(own)


def _wake(ready: "asyncio.Future[None]") -> None:
    if not ready.done():
        ready.set_result(None)
