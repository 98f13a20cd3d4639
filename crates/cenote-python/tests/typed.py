"""Read by mypy, not run: what type checkers make of cenote."""

from typing import Any, assert_type

import cenote
import numpy as np
import numpy.typing as npt


def tensors(pool: cenote.TensorPool) -> None:
    tensor = pool.alloc((480, 640, 3), "uint8", timeout=1.5)
    assert_type(tensor, cenote.Tensor)
    assert_type(tensor.shape, tuple[int, ...])
    assert_type(tensor.numpy(), npt.NDArray[Any])
    assert_type(tensor[0, 1:, ..., None], cenote.Tensor)
    assert_type([view for view in tensor], list[cenote.Tensor])
    assert_type(pool.stats()["in_transit"], int)
    tensor[...] = 1
    tensor[tensor.numpy() > 3] = np.zeros(4)
    np.multiply(1, 2, out=tensor.numpy())
    np.from_dlpack(tensor)
    cenote.Tensor.from_dlpack(np.zeros(3))
    memoryview(tensor)
    assert_type(cenote.Tensor((2, 3), np.float32).descriptor(), bytes)
    with cenote.TensorPool(1, size_mb=64) as other:
        assert_type(other, cenote.TensorPool)


def buffers(pool: cenote.MemoryPool) -> None:
    buffer = pool.acquire((1024,), dtype=np.float32, pinned=True)
    assert_type(buffer, cenote.UnifiedBuffer)
    assert_type(buffer.host, npt.NDArray[Any])
    buffer.host[:] = 1
    buffer.device = [1, 2, 3]
    buffer.copy_from(np.zeros(1024))
    buffer.copy_to(cenote.Tensor((1024,)))
    np.asarray(buffer)
    pool.release(buffer)
    with cenote.get_memory_pool().pooled((3, 4), "uint8") as other:
        assert_type(other, cenote.UnifiedBuffer)
    assert_type(pool.stats()["cache_hits"], int)
    pool.max_retained_bytes = 1 << 20


def errors() -> None:
    try:
        cenote.TensorPool.open("nobody")
    except cenote.NotFound as error:
        assert_type(error, cenote.NotFound)
        raised: LookupError = error
        print(raised)


tensors("no pool")  # type: ignore[arg-type]
cenote.Tensor((1,), memory=3)  # type: ignore[arg-type]
cenote.get_memory_pool().release(3)  # type: ignore[arg-type]
