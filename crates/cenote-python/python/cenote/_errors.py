"""The exceptions that cenote raises: ``Error`` and its subclasses.

Most subclasses also extend a built-in exception, so ``except ValueError`` works as with numpy.
"""

__all__ = [
    "ArgumentError",
    "DTypeError",
    "Error",
    "Forked",
    "NotFound",
    "OsError",
    "OutOfMemory",
    "OutOfRange",
    "PeerError",
    "PoolExists",
    "PoolFull",
    "ReadOnlyError",
    "Stale",
    "Timeout",
    "TypeMismatch",
]


class Error(Exception):
    """The base class of all errors of cenote."""


class ArgumentError(Error, ValueError):
    """An argument is invalid: a shape, name, size, format or configuration."""


class OutOfRange(Error, IndexError):
    """An index, axis, plane or pixel does not exist."""


class DTypeError(Error, TypeError):
    """The dtype is unknown, or the elements have another one."""


class ReadOnlyError(Error, ValueError):
    """The memory is read-only: it was sent or received, or another object can still write it."""


class OutOfMemory(Error, MemoryError):
    """The machine or its control group has not enough memory."""


class PoolFull(Error, MemoryError):
    """The pool has no room. The message names the processes that hold its tensors."""


class NotFound(Error, LookupError):
    """There is no pool or field of that name."""


class Stale(NotFound):
    """The tensor of a descriptor is gone: its memory was reused."""


class PoolExists(Error, ValueError):
    """Another pool of that name exists, and its owner is alive."""


class Timeout(Error, TimeoutError):
    """Another process did not answer or receive in time."""


class Forked(Error, RuntimeError):
    """The object was inherited by a forked process and belongs to the parent. Make or open it again in the child."""


class PeerError(Error, ConnectionError):
    """Another process is dead, refused the connection, or sent invalid data."""


class TypeMismatch(Error, TypeError):
    """A message or descriptor has another type than expected."""


class OsError(Error, OSError):
    """A system call failed; ``errno`` is set."""


for _name in __all__:
    globals()[_name].__module__ = "cenote"
