"""Memory for tensors, shared between processes without copying.

>>> import cenote, numpy
>>> pool = cenote.TensorPool("frames", size_mb=64)
>>> frame = pool.alloc((1080, 1920, 3), "uint8")
>>> frame[...] = 128                                # or frame.numpy()[...] = 128
>>> descriptor = frame.descriptor()                 # some hundred bytes, for any process of this user
>>> cenote.Tensor.from_descriptor(descriptor)       # there
<cenote.Tensor (1080, 1920, 3) uint8, shm, read-only>

Tensor      an array in memory that other processes can see; numpy, jax, torch and whatever knows DLPack or
            buffers use it without a copy
TensorPool  allocates tensors in nanoseconds, and tells who holds them
MemoryPool  buffers of this process that are used again; ``get_memory_pool()`` is the one that all code shares
UnifiedBuffer  an array with a host side and a device side, copied when the side that is behind is used
copies      what was copied so far, and why
in_transit  what was put into queues of ``multiprocessing`` and not taken out yet

Whatever goes wrong is a ``cenote.Error``; the classes below it are also ``ValueError``, ``IndexError`` and so on.

A tensor can be written until it was sent. From then on nobody can, here or elsewhere, and arrays of it are
read-only. If something that can write it is still alive when it is sent, such as an array of ``numpy()``, a copy
is sent, and counted.

Where processes meet, and in which part of it, say the environment variables ``CENOTE_DIR`` and
``CENOTE_NAMESPACE``.
"""

from . import _multiprocessing as _multiprocessing
from ._cenote import MemoryPool, Tensor, TensorPool, UnifiedBuffer, __version__, copies, get_memory_pool, in_transit
from ._errors import (
    ArgumentError,
    DTypeError,
    Error,
    Forked,
    NotFound,
    OsError,
    OutOfMemory,
    OutOfRange,
    PeerError,
    PoolExists,
    PoolFull,
    ReadOnlyError,
    Stale,
    Timeout,
    TypeMismatch,
)

__all__ = [
    "ArgumentError",
    "DTypeError",
    "Error",
    "Forked",
    "MemoryPool",
    "NotFound",
    "OsError",
    "OutOfMemory",
    "OutOfRange",
    "PeerError",
    "PoolExists",
    "PoolFull",
    "ReadOnlyError",
    "Stale",
    "Tensor",
    "TensorPool",
    "Timeout",
    "TypeMismatch",
    "UnifiedBuffer",
    "__version__",
    "copies",
    "get_memory_pool",
    "in_transit",
]
