"""Memory for tensors, shared between processes without copying.

>>> import cenote, numpy
>>> topic = cenote.Topic("camera.rgb", cenote.Image)
>>> image = topic.image(1920, 1080, "rgb8")
>>> image[...] = 128                                # or numpy.add(a, b, out=image.numpy())
>>> topic.send(image)                               # to every process; no pixel is copied
>>> received = topic.recv(timeout=5)                # there: for image in cenote.Topic("camera.rgb", cenote.Image)
>>> received
<cenote.Image 1920x1080 rgb8, shm, read-only>
>>> received.numpy().mean()
np.float64(128.0)
>>> topic.close()

Topic       sends images, point clouds, depth images and tensors to other processes, and receives them
Image, PointCloud, DepthImage
            tensors of which it is known what they are, and where and when they were recorded
Tensor      an array in memory that other processes can see; numpy and whatever knows DLPack or buffers use it
            without a copy, ``torch()`` does until it is sent, ``jax()`` from then on
TensorPool  allocates tensors in nanoseconds, and tells who holds them
MemoryPool  buffers of this process that are used again; ``get_memory_pool()`` is the one that all code shares
UnifiedBuffer  an array with a host side and a device side, copied when the side that is behind is used
topics, pools
            which there are, and who publishes, subscribes, owns and holds
copies      what was copied so far, and why
in_transit  what was put into queues of ``multiprocessing`` and not taken out yet; ``recall`` lets go of it

Whatever goes wrong is a ``cenote.Error``; the classes below it are also ``ValueError``, ``IndexError`` and so on.

A tensor can be written until it was sent. From then on nobody can, here or elsewhere, and arrays of it are
read-only. If something that can write it is still alive when it is sent, such as an array of ``numpy()``, a copy
is sent, and counted.

Where processes meet, and in which part of it, say the environment variables ``CENOTE_DIR`` and
``CENOTE_NAMESPACE``.
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
