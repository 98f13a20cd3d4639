"""Code for mypy and pyright to check. It is never run."""

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
    bytes(tensor)
    assert_type(int(tensor[0]) + tensor[1].__index__(), int)
    assert_type(float(tensor[0]), float)
    assert_type(3 in tensor, bool)
    assert_type(tensor.reshape(3, -1).squeeze().flip(-1).transpose(np.int64(1), 0), cenote.Tensor)
    assert_type(cenote.recall(older_than=60), int)
    assert_type(cenote.Tensor((2, 3), np.float32).descriptor(), bytes)
    cenote.Tensor.from_descriptor(bytearray(96))
    with cenote.TensorPool(1, size_mb=64) as other:
        assert_type(other, cenote.TensorPool)


def domains(tensor: cenote.Tensor) -> None:
    image = cenote.Image(640, 480, "rgb8", frame_id="camera")
    image.seq = 7
    np.multiply(1, 2, out=image.numpy())
    assert_type(image.roi(0, 0, 8, 8), cenote.Image)
    assert_type(image.format, str)
    assert_type(cenote.Image.from_tensor(tensor, "bgr8").copy(), cenote.Image)
    cloud = cenote.PointCloud(100, fields=[("x", "f4"), ("ring", "u2")])
    assert_type(cloud["x"], cenote.Tensor)
    depth = cenote.DepthImage.from_numpy(np.ones((4, 4), "float32"))
    depth.intrinsics = (1.0, 1.0, 2.0, 2.0)
    assert_type(depth.to_point_cloud(), cenote.PointCloud)


def topics(image: cenote.Image, maybe: float | None, kind: type[cenote.DepthImage]) -> None:
    with cenote.Topic("camera.rgb", cenote.Image, depth=4, policy="block", timeout=0.5) as topic:
        assert_type(topic, cenote.Topic[cenote.Image])
        topic.send(image)
        topic.send(3)  # type: ignore
        assert_type(topic.recv(timeout=1.5), cenote.Image | None)
        assert_type(topic.recv(), cenote.Image)
        assert_type(topic.recv(None), cenote.Image)
        assert_type(topic.recv(maybe), cenote.Image | None)
        assert_type(topic.latest(), cenote.Image | None)
        assert_type(topic.stats()["copies"], dict[str, tuple[int, int]])
        assert_type(topic.last_loss(), Exception | None)
        for received in topic:
            assert_type(received, cenote.Image)
    assert_type(cenote.Topic("any"), cenote.Topic[cenote.Tensor])
    assert_type(cenote.Topic("any", type=kind), cenote.Topic[cenote.DepthImage])
    cenote.Topic("any", int)  # type: ignore


async def awaiting(topic: cenote.Topic[cenote.DepthImage]) -> None:
    assert_type(await topic.recv_async(), cenote.DepthImage)
    async for depth in topic:
        assert_type(depth, cenote.DepthImage)


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
        cenote.TensorPool.open("no-such-pool")
    except cenote.NotFound as error:
        assert_type(error, cenote.NotFound)
        raised: LookupError = error
        print(raised)


tensors("no pool")  # type: ignore
cenote.Tensor((1,), memory=3)  # type: ignore
cenote.get_memory_pool().release(3)  # type: ignore
