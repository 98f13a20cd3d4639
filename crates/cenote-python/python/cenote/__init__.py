"""Memory for tensors, shared between processes without copying.

>>> import cenote, numpy
>>> topic = cenote.Topic("camera.rgb", cenote.Image)
>>> image = topic.image(1920, 1080, "rgb8")
>>> image[...] = 128                                # or numpy.add(a, b, out=image.numpy())
>>> topic.send(image)                               # to all processes; no pixel is copied
>>> received = topic.recv(timeout=5)                # there: for image in cenote.Topic("camera.rgb", cenote.Image)
>>> received
<cenote.Image 1920x1080 rgb8, shm, read-only>
>>> received.numpy().mean()
np.float64(128.0)
>>> topic.close()

Topic       sends images, point clouds, depth images and tensors to other processes, and receives them
Image, PointCloud, DepthImage
            tensors with a type and a header (frame, time, number)
Tensor      an array in memory that other processes can map. numpy, and libraries with DLPack or buffers, use it
            without a copy; ``torch()`` shares it until it is sent, ``jax()`` after that
TensorPool  allocates tensors in nanoseconds, and lists the processes that hold them
MemoryPool  reuses buffers of this process; ``get_memory_pool()`` is the pool that all code shares
UnifiedBuffer
            an array with a host side and a device side, copied when the older side is used
topics, pools
            the topics and pools that exist, with publishers, subscribers, owners and holders
copies      what this process has copied so far, and why
in_transit  how many tensors are in queues of ``multiprocessing``; ``recall`` releases them

All errors are subclasses of ``cenote.Error``; most are also a ``ValueError``, an ``IndexError`` and so on.

A tensor is writable until it is sent. Then it and its arrays are read-only, in all processes. If an object that can
write it is alive when it is sent, such as an array of ``numpy()``, a copy is sent, and counted.

The environment variable ``CENOTE_DIR`` sets the directory in which processes find each other, and ``CENOTE_NAMESPACE``
a part of it.
"""

from . import _multiprocessing as _multiprocessing
from ._cenote import (
    DepthImage,
    Image,
    MemoryPool,
    PointCloud,
    Tensor,
    TensorPool,
    Topic,
    UnifiedBuffer,
    __version__,
    copies,
    get_memory_pool,
    in_transit,
    pools,
    recall,
    topics,
)
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
    "DepthImage",
    "Error",
    "Forked",
    "Image",
    "MemoryPool",
    "NotFound",
    "OsError",
    "OutOfMemory",
    "OutOfRange",
    "PeerError",
    "PointCloud",
    "PoolExists",
    "PoolFull",
    "ReadOnlyError",
    "Stale",
    "Tensor",
    "TensorPool",
    "Timeout",
    "Topic",
    "TypeMismatch",
    "UnifiedBuffer",
    "__version__",
    "copies",
    "get_memory_pool",
    "in_transit",
    "pools",
    "recall",
    "topics",
]
