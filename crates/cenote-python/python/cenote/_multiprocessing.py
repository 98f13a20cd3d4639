"""Tensors in queues and pipes of ``multiprocessing``: only a descriptor is sent, not the elements.

Plain ``pickle`` does not use this: it copies the elements.
"""

import os
import threading
from collections.abc import Callable
from multiprocessing import parent_process, util
from multiprocessing.reduction import ForkingPickler
from typing import Any

from ._cenote import (
    DepthImage,
    Image,
    PointCloud,
    Tensor,
    _acknowledge,
    _after_fork,
    _hold,
    _release,
    _wait_until_received,
)
from ._errors import NotFound, Stale

# How many seconds a child process waits at its end for receivers to take its tensors out of their queues.
_EXIT_TIMEOUT = 5.0


class _Pickling(threading.local):
    """The tokens of the tensors in the object that this thread is pickling."""

    def __init__(self) -> None:
        self.tokens: list[bytes] = []


_pickling = _Pickling()


def _rebuild(cls: type[Any], descriptor: bytes, address: bytes, token: bytes) -> Any:
    """Leases the tensor in the receiver."""
    try:
        return cls.from_descriptor(descriptor)
    except Stale:
        raise
    except NotFound as error:
        why = "the process that made the tensor ended, or closed its pool, before the tensor was taken out of the queue"
        raise NotFound(f"{why} ({error})") from None
    finally:
        # Also after a failure: no other process can take this item out of the queue.
        _acknowledge(address, token)


def _reduce(value: Any) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    descriptor, address, token = _hold(value)
    _pickling.tokens.append(token)
    return _rebuild, (type(value), descriptor, address, token)


def _dump(pickler: ForkingPickler, obj: Any) -> None:
    """Pickles an object. If another part of it cannot be pickled, releases its tensors."""
    before, _pickling.tokens = _pickling.tokens, []
    try:
        super(ForkingPickler, pickler).dump(obj)
    except BaseException:
        for token in _pickling.tokens:
            _release(token)
        raise
    finally:
        _pickling.tokens = before


def _wait_at_exit(_: object = None) -> None:
    """Has a child process wait at its end: one that ends right after ``queue.put(tensor)`` would take its pool along."""
    # Lower priorities run later. Queues write their last items at priority -5.
    util.Finalize(None, _wait_if_child, exitpriority=-10)


def _wait_if_child() -> None:
    # Not known earlier: a spawned child imports its main module before it sets its parent.
    if parent_process() is not None:
        _wait_until_received(_EXIT_TIMEOUT)


def register(*classes: type[Any]) -> None:
    """Makes ``multiprocessing`` send objects of these classes by descriptor."""
    for cls in classes:
        ForkingPickler.register(cls, _reduce)


register(Tensor, Image, PointCloud, DepthImage)
setattr(ForkingPickler, "dump", _dump)

# For this process, which may be a spawned child, and for each child that it forks.
_wait_at_exit()
util.register_after_fork(_wait_at_exit, _wait_at_exit)
os.register_at_fork(after_in_child=_after_fork)
