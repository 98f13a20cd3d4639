"""What cenote raises: one class of exceptions, and below it those that can be told apart.

Each is also one of Python's own where that fits, so ``except ValueError`` works as with numpy.
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
    """Whatever went wrong in cenote."""


class ArgumentError(Error, ValueError):
    """A shape, name, size or format that cannot be."""


class OutOfRange(Error, IndexError):
    """An index, axis, plane or pixel that is not there."""


class DTypeError(Error, TypeError):
    """An unknown dtype, or not the one that the elements have."""


class ReadOnlyError(Error, ValueError):
    """Memory that cannot be written any more, or not from here."""


class OutOfMemory(Error, MemoryError):
    """Memory that the machine or the control group does not have."""


class PoolFull(Error, MemoryError):
    """A pool without room; the message says who holds it."""


class NotFound(Error, LookupError):
    """Something of that name is not there."""


class Stale(NotFound):
    """A descriptor of a tensor that is gone: its memory was used again."""


class PoolExists(Error, ValueError):
    """A living process owns a pool of that name."""


class Timeout(Error, TimeoutError):
    """Somebody else did not do his part in time."""


class Forked(Error, RuntimeError):
    """Something that was inherited through fork and belongs to the parent: make or open it anew."""


class PeerError(Error, ConnectionError):
    """Another process is gone, refused, or sent nonsense."""


class TypeMismatch(Error, TypeError):
    """Something of another type was sent than was to be received."""


class OsError(Error, OSError):
    """What the operating system said; ``errno`` is set."""


for _name in __all__:
    globals()[_name].__module__ = "cenote"
