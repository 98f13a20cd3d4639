"""How tensors travel through queues and pipes of ``multiprocessing``: by descriptor.

Plain ``pickle`` knows nothing of this and copies.
"""

import os
import threading
from collections.abc import Callable
from multiprocessing import parent_process, util
from multiprocessing.reduction import ForkingPickler
from typing import Any

from ._cenote import DepthImage, Image, PointCloud, Tensor, _arrived, _depart, _failed, _forked, _linger
from ._errors import NotFound, Stale

# How many seconds a process that is done waits for others to take what it put into their queues.
_PATIENCE = 5.0


class _Pickling(threading.local):
    """What this thread has pickled so far of something that is not pickled yet."""

    def __init__(self) -> None:
        self.tokens: list[bytes] = []


_pickling = _Pickling()


def _rebuild(cls: type[Any], descriptor: bytes, address: bytes, token: bytes) -> Any:
    try:
        return cls.from_descriptor(descriptor)
    except Stale:
        raise
    except NotFound as error:
        why = "who made the tensor has ended, or closed its pool, before it was taken out of the queue"
        raise NotFound(f"{why} ({error})") from None
    finally:
        # Also if it failed: nobody else will take it out of the queue.
        _arrived(address, token)


def _reduce(what: Any) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    descriptor, address, token = _depart(what)
    _pickling.tokens.append(token)
    return _rebuild, (type(what), descriptor, address, token)


def _dump(pickler: ForkingPickler, obj: Any) -> None:
    """Pickles, and lets go of the tensors if that fails: it may be something else that cannot be."""
    before, _pickling.tokens = _pickling.tokens, []
    try:
        super(ForkingPickler, pickler).dump(obj)
    except BaseException:
        for token in _pickling.tokens:
            _failed(token)
        raise
    finally:
        _pickling.tokens = before


def _linger_at_exit(_: object = None) -> None:
    """A child that returns right after ``queue.put(tensor)`` would take the tensor with it."""
    # After -5, with which queues have their last items written.
    util.Finalize(None, _linger_if_child, exitpriority=-10)


def _linger_if_child() -> None:
    # Asked only now: a child that is spawned imports its main module before it knows its parent.
    if parent_process() is not None:
        _linger(_PATIENCE)


def register(*classes: type[Any]) -> None:
    for cls in classes:
        ForkingPickler.register(cls, _reduce)


register(Tensor, Image, PointCloud, DepthImage)
setattr(ForkingPickler, "dump", _dump)

# In a child that was spawned, and in one that will be forked.
_linger_at_exit()
util.register_after_fork(_linger_at_exit, _linger_at_exit)
os.register_at_fork(after_in_child=_forked)
