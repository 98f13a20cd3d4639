"""Images, point clouds and depth images."""

import multiprocessing
import pickle
import struct
import zlib

import cenote
import cv2
import numpy as np
import pytest


def a_cloud(points=100):
    fields = [("x", "f4"), ("y", "f4"), ("z", "f4"), ("ring", "u2"), ("time", "f8"), ("rgb", "u1", 3)]
    cloud = cenote.PointCloud(points, fields=fields, frame_id="lidar", stamp_ns=5, seq=6)
    if points:
        cloud["z"] = np.arange(points)
        cloud["ring"] = 3
        cloud["rgb"] = (1, 2, 3)
    return cloud


def an_image():
    image = cenote.Image(6, 4, "bgr8", frame_id="camera", stamp_ns=1 << 63, seq=9)
    image[...] = np.arange(72).reshape(4, 6, 3)
    return image


def a_depth():
    depth = cenote.DepthImage(4, 6, "uint16", intrinsics=(2.0, 3.0, 1.0, 1.5), frame_id="tof")
    depth[...] = np.arange(24).reshape(4, 6)
    return depth


def same(one, other):
    assert type(one) is type(other)
    assert (one.frame_id, one.stamp_ns, one.seq) == (other.frame_id, other.stamp_ns, other.seq)
    assert one.numpy().dtype == other.numpy().dtype
    np.testing.assert_array_equal(one.numpy(), other.numpy())
    for name in ("format", "fields", "intrinsics"):
        assert getattr(one, name, None) == getattr(other, name, None)


MAKERS = pytest.mark.parametrize("make", [an_image, a_cloud, a_depth])


@MAKERS
def test_each_is_a_tensor_and_says_what_it_is(make):
    it = make()
    assert isinstance(it, cenote.Tensor)
    assert repr(it).startswith(f"<cenote.{type(it).__name__} ") and f'frame_id="{it.frame_id}"' in repr(it)
    assert it.memory == "shm" and it.writable and not it.lent
    assert it.nbytes == it.numpy().nbytes


@MAKERS
def test_metadata_can_be_set(make):
    it = make()
    it.frame_id, it.stamp_ns, it.seq = "é" * 24, (1 << 64) - 1, 0
    assert (it.frame_id, it.stamp_ns, it.seq) == ("é" * 24, (1 << 64) - 1, 0)
    with pytest.raises(cenote.ArgumentError, match="frame id"):
        it.frame_id = "é" * 25
    for bad in (-1, 1 << 64):
        with pytest.raises(cenote.ArgumentError):
            it.seq = bad
    with pytest.raises(TypeError):
        it.stamp_ns = "now"
    assert it.frame_id == "é" * 24


@MAKERS
def test_copies_pickles_and_descriptors_keep_everything(make):
    it = make()
    same(it.copy(), it)
    assert it.copy().writable
    same(pickle.loads(pickle.dumps(it)), it)
    there = type(it).from_descriptor(it.descriptor())
    same(there, it)
    assert not there.writable and not there.numpy().flags.writeable and not it.writable
    assert type(cenote.Tensor.from_descriptor(it.descriptor())) is cenote.Tensor
    others = {cenote.Image, cenote.PointCloud, cenote.DepthImage} - {type(it)}
    for other in others:
        with pytest.raises(cenote.TypeMismatch):
            other.from_descriptor(it.descriptor())


@MAKERS
def test_queues_carry_them_as_descriptors(make):
    queue = multiprocessing.get_context("spawn").SimpleQueue()
    it = make()
    queue.put({"it": it})
    assert cenote.in_transit() == 1
    same(queue.get()["it"], it)
    assert cenote.in_transit() == 0 and not it.writable


def test_an_image_by_size_and_format(pool):
    image = cenote.Image(640, 480)
    assert (image.width, image.height, image.format, image.step, image.channels) == (640, 480, "rgb8", 1920, 3)
    assert image.shape == (480, 640, 3) and not image.numpy().any()
    there = cenote.Image(640, 480, "nv12", pool=pool)
    assert pool.stats()["slots_in_use"] == 1 and there.format == "nv12"
    for bad in ((0, 480, "rgb8"), (640, 480, "rgb9"), (1 << 40, 1 << 40, "rgb8")):
        with pytest.raises((cenote.ArgumentError, cenote.PoolFull, cenote.OutOfMemory)):
            cenote.Image(*bad)


def test_an_image_of_an_array():
    pixels = np.random.default_rng(1).integers(0, 255, (48, 64, 3), "uint8")
    image = cenote.Image.from_numpy(pixels, "bgr8", frame_id="c", stamp_ns=1, seq=2)
    np.testing.assert_array_equal(image.numpy(), pixels)
    assert (image.format, image.frame_id, image.stamp_ns, image.seq) == ("bgr8", "c", 1, 2)
    # What does not lie side by side.
    np.testing.assert_array_equal(cenote.Image.from_numpy(pixels[::2, ::-1]).numpy(), pixels[::2, ::-1])
    for shape, dtype, form in (
        ((4, 6), "uint8", "grey"),
        ((4, 6, 4), "uint8", "rgba8"),
        ((4, 6), "uint16", "mono16"),
        ((4, 6), "float32", "mono32f"),
        ((4, 6, 3), "float32", "rgb32f"),
    ):
        assert cenote.Image.from_numpy(np.zeros(shape, dtype)).format == form
    for shape, dtype in (((4, 6, 5), "uint8"), ((6,), "uint8"), ((4, 6, 3), "int64")):
        with pytest.raises(cenote.ArgumentError, match="cannot guess the pixel format"):
            cenote.Image.from_numpy(np.zeros(shape, dtype))
    with pytest.raises(cenote.Error):
        cenote.Image.from_numpy(np.zeros((4, 6), "uint8"), "rgb8")


def test_an_image_of_a_tensor_shares_its_memory(pool):
    tensor = pool.alloc((48, 64, 3), "uint8")
    image = cenote.Image.from_tensor(tensor, "bgr8")
    image.fill((1, 2, 3))
    assert tensor[0, 0].tolist() == [1, 2, 3] and image.pixel(63, 47) == (1, 2, 3)
    with pytest.raises(IndexError):
        image.pixel(64, 0)


def test_a_part_of_an_image_is_no_copy():
    image = cenote.Image(64, 48, seq=3)
    part = image.roi(10, 20, 4, 5)
    part.fill((0, 255, 0))
    assert (part.width, part.height, part.seq) == (4, 5, 3)
    assert image.numpy()[20:25, 10:14, 1].min() == 255 and image.numpy().sum() == 20 * 255
    with pytest.raises(cenote.Error):
        image.roi(62, 0, 4, 4)


def test_planes_of_an_image_are_no_copies():
    image = cenote.Image(8, 4, "nv12")
    assert (image.plane_count, image.plane(0).shape, image.plane(1).shape) == (2, (4, 8), (2, 4, 2))
    image.plane(0)[3, 5] = 9
    image.plane(1)[1, 2] = (7, 8)
    assert image.pixel(5, 3) == (9, 7, 8)
    assert cenote.Image(8, 4).plane(0).shape == (4, 8, 3)
    for wrong in (2, 2**63, 2**70, -1):
        with pytest.raises(cenote.OutOfRange):
            image.plane(wrong)


def test_opencv_writes_into_an_image():
    source = np.random.default_rng(2).integers(0, 255, (96, 128, 3), "uint8")
    image = cenote.Image(64, 48, "bgr8")
    cv2.resize(source, (64, 48), dst=image.numpy())
    np.testing.assert_array_equal(image.numpy(), cv2.resize(source, (64, 48)))
    assert not image.lent


def unpng(png):
    """The pixels of a PNG of 8-bit RGB, by the book."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    decoded = cv2.imdecode(np.frombuffer(png, "uint8"), cv2.IMREAD_COLOR)
    length, kind = struct.unpack(">I4s", png[8:16])
    assert kind == b"IHDR" and zlib.crc32(png[12 : 16 + length]) == struct.unpack(">I", png[16 + length : 20 + length])[0]
    return decoded[:, :, ::-1]


def test_notebooks_show_an_image():
    image = cenote.Image(6, 4, "rgb8")
    image[...] = np.arange(72).reshape(4, 6, 3)
    np.testing.assert_array_equal(unpng(image._repr_png_()), image.numpy())
    blue = cenote.Image(6, 4, "bgr8")
    blue.fill((255, 0, 0))
    assert unpng(blue.to_png())[0, 0].tolist() == [0, 0, 255]


def test_a_cloud_of_values_alike(pool):
    cloud = cenote.PointCloud(10000, 3, "float32")
    assert len(cloud) == cloud.capacity == 10000 and cloud.numpy().shape == (10000, 3)
    cloud.numpy()[:] = (1, 2, 3)
    assert cloud["y"].numpy().sum() == 20000 and cloud.xyz().shape == (10000, 3)
    assert [field[0] for field in cenote.PointCloud(1, 5).fields] == ["x", "y", "z", "intensity", "f4"]
    assert cenote.PointCloud(7, 4, "float64", pool=pool).numpy().shape == (7, 4)
    assert pool.stats()["allocations"] == 1
    with pytest.raises(cenote.NotFound, match="intensity"):
        cloud["intensity"]
    with pytest.raises(cenote.Error):
        cenote.PointCloud(10, 0)


def test_a_cloud_of_values_of_several_kinds():
    cloud = a_cloud()
    points = cloud.numpy()
    assert points.shape == (100,) and points.dtype.names == ("x", "y", "z", "ring", "time", "rgb")
    assert points["z"].tolist() == list(range(100)) and points["rgb"][5].tolist() == [1, 2, 3]
    points["time"][7] = 0.5
    assert cloud["time"].numpy()[7] == 0.5 and cloud.lent
    cloud[3] = (9, 8, 7, 6, 5, (4, 3, 2))
    assert points[3]["x"] == 9 and points[3]["rgb"].tolist() == [4, 3, 2]
    np.testing.assert_array_equal(np.asarray(cloud), points)
    with pytest.raises(BufferError):
        memoryview(cloud)
    with pytest.raises(cenote.ArgumentError):
        cenote.PointCloud(3, fields="float32")


def test_a_cloud_of_an_array():
    points = np.random.default_rng(3).random((50, 4), "float32")
    same(cenote.PointCloud.from_numpy(points, seq=1).copy(), cenote.PointCloud.from_numpy(points, seq=1))
    np.testing.assert_array_equal(np.asarray(cenote.PointCloud.from_numpy(points[::3])), points[::3])
    packed = np.zeros(5, [("x", "f4"), ("ring", "u2"), ("t", "f8")])
    packed["t"] = np.arange(5)
    cloud = cenote.PointCloud.from_numpy(packed)
    assert [field[3] for field in cloud.fields] == [0, 4, 8]  # aligned
    assert all(cloud.numpy()[name].tolist() == packed[name].tolist() for name in packed.dtype.names)
    alike = np.array([(1, 2), (3, 4)], [("a", "i4"), ("b", "i4")])
    assert cenote.PointCloud.from_numpy(alike).numpy().tolist() == [[1, 2], [3, 4]]
    for bad in (np.zeros(3), np.zeros((3, 3, 3)), np.zeros((3, 17), "float32"), np.zeros((2, 2), packed.dtype)):
        with pytest.raises(cenote.Error):
            cenote.PointCloud.from_numpy(bad)


@pytest.mark.parametrize("make", [lambda: cenote.PointCloud(0), lambda: a_cloud(0), lambda: cenote.PointCloud.from_numpy(np.zeros((0, 3), "float32"))])
def test_a_cloud_may_be_empty(make):
    cloud = make()
    assert len(cloud) == 0 and cloud.numpy().shape[0] == 0 and np.asarray(cloud).shape[0] == 0
    same(pickle.loads(pickle.dumps(cloud)), cloud)
    same(cenote.PointCloud.from_descriptor(cloud.descriptor()), cloud)
    with pytest.raises(cenote.Error):
        cloud.column("x")


def test_a_depth_image():
    depth = cenote.DepthImage(480, 640)
    assert (depth.width, depth.height, depth.step, depth.intrinsics) == (640, 480, 2560, None)
    assert depth.dtype == np.float32 and depth.stats() is None and depth.depth_at(0, 0) is None
    depth[10, 20] = 2.5
    assert depth.depth_at(20, 10) == 2.5
    assert depth.stats() == {"valid": 1, "min": 2.5, "max": 2.5, "mean": 2.5}
    with pytest.raises(cenote.Error):
        depth.to_point_cloud()
    depth.intrinsics = (10.0, 10.0, 20.0, 10.0)
    cloud = depth.to_point_cloud()
    assert cloud.numpy().tolist() == [[0, 0, 2.5]]
    part = depth.roi(16, 8, 8, 8)
    assert part.intrinsics == (10.0, 10.0, 4.0, 2.0) and part.depth_at(4, 2) == 2.5
    with pytest.raises(cenote.ArgumentError):
        depth.intrinsics = (0.0, 1.0, 1.0, 1.0)
    depth.intrinsics = None
    assert depth.intrinsics is None


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    "camera",
    [
        (0, 1, 1, 1), (1, 0.0, 1, 1), (-1, 1, 1, 1), (1, -0.5, 1, 1), (NAN, 1, 1, 1), (1, NAN, 1, 1), (1, 1, NAN, 1),
        (1, 1, 1, NAN), (INF, 1, 1, 1), (1, INF, 1, 1), (1, 1, INF, 1), (1, 1, 1, -INF),
    ],
)  # fmt: skip
def test_what_is_no_camera_is_refused(camera):
    tensor, array = cenote.Tensor((4, 6)), np.zeros((4, 6), "float32")
    depth = cenote.DepthImage(4, 6, intrinsics=(1, 1, -2.5, 0))
    for make in (
        lambda: cenote.DepthImage(4, 6, intrinsics=camera), lambda: setattr(depth, "intrinsics", camera),
        lambda: cenote.DepthImage.from_tensor(tensor, intrinsics=camera),
        lambda: cenote.DepthImage.from_numpy(array, intrinsics=camera),
    ):  # fmt: skip
        with pytest.raises(cenote.ArgumentError):
            make()
    assert depth.intrinsics == (1, 1, -2.5, 0)


def test_a_camera_is_four_numbers_of_any_kind():
    class Focus:
        def __float__(self):
            return 2.5

    assert cenote.DepthImage(4, 6, intrinsics=(Focus(), np.float32(2), 3, np.int8(4))).intrinsics == (2.5, 2, 3, 4)
    for wrong in ((1, 1, 1), (1, 1, 1, 1, 1), (1, 1, 1, "1"), (1, None, 1, 1), [1, 1, 1, 1], 1, "1234"):
        with pytest.raises((TypeError, ValueError)):
            cenote.DepthImage(4, 6, intrinsics=wrong)
    with pytest.raises(OverflowError):
        cenote.DepthImage(4, 6, intrinsics=(10**400, 1, 1, 1))


def test_a_depth_image_of_an_array():
    millimetres = np.arange(24, dtype="uint16").reshape(4, 6)
    depth = cenote.DepthImage.from_numpy(millimetres, seq=4)
    assert depth.depth_at(5, 3) == pytest.approx(0.023) and depth.seq == 4
    np.testing.assert_array_equal(depth.numpy(), millimetres)
    with pytest.raises(cenote.DTypeError):
        cenote.DepthImage.from_numpy(np.zeros((4, 6)))
    with pytest.raises(cenote.Error):
        cenote.DepthImage.from_numpy(np.zeros((4, 6, 2), "float32"))


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: cenote.Image(-1, 4), lambda: cenote.Image(2**70, 4), lambda: cenote.Image(0, 4),
        lambda: cenote.Image(4, 4, stamp_ns=-1), lambda: cenote.Image(4, 4, seq=2**64),
        lambda: setattr(cenote.Image(4, 4), "seq", -1), lambda: setattr(cenote.Image(4, 4), "stamp_ns", 2**64),
        lambda: cenote.PointCloud(-1), lambda: cenote.PointCloud(4, -1), lambda: cenote.DepthImage(4, -1),
    ],
)  # fmt: skip
def test_numbers_out_of_range_are_value_errors_of_cenote(wrong):
    with pytest.raises(cenote.ArgumentError) as raised:
        wrong()
    assert isinstance(raised.value, ValueError)


def test_a_number_too_long_to_be_printed_is_refused_as_any_other():
    for wrong in (lambda: cenote.Image(10**5000, 4), lambda: cenote.Image(-(10**5000), 4)):
        with pytest.raises(cenote.ArgumentError, match="a number that long"):
            wrong()


@pytest.mark.parametrize(
    "wrong, named",
    [
        (lambda: cenote.Image(-1, 4), "width must be 0 or more, not -1"),
        (lambda: cenote.Image(4, 2**64), f"height must be {2**64 - 1} at most, not {2**64}"),
        (lambda: cenote.Image(4, 4, stamp_ns=-1), "stamp_ns must be 0 or more"),
        (lambda: setattr(cenote.Image(4, 4), "seq", -2), "seq must be 0 or more, not -2"),
        (lambda: cenote.PointCloud(4, -1), "values must be 0 or more"),
        (lambda: cenote.DepthImage(4, 4).roi(0, 0, 2, -1), "height must be 0 or more"),
        (lambda: cenote.Topic("numbers", depth=-1), "depth must be 0 or more, not -1"),
        (lambda: cenote.TensorPool(-1), "pool_id must be 0 or more, not -1"),
        (lambda: cenote.TensorPool(2**32), f"pool_id must be {2**32 - 1} at most, not {2**32}"),
        (lambda: cenote.TensorPool("numbers", max_leases=-1), "max_leases must be 0 or more"),
        (lambda: cenote.TensorPool("numbers", group=2**32), f"group must be {2**32 - 1} at most"),
        (lambda: cenote.MemoryPool(max_retained_bytes=-1), "max_retained_bytes must be 0 or more"),
        (lambda: cenote.Tensor((4, -1)), "a length must be 0 or more, not -1"),
    ],
)  # fmt: skip
def test_errors_name_the_argument(wrong, named):
    with pytest.raises(cenote.ArgumentError, match=f"^{named}"):
        wrong()


def test_errors_name_the_field():
    for name, shown in (("é" * 40, "é" * 16), ("intensity_of_light", "intensity_of_lig")):
        with pytest.raises(cenote.ArgumentError, match=rf'"{shown}"\.\.\. has {len(name.encode())} bytes; the limit is 16$'):
            cenote.PointCloud(3, fields=[("x", "f4"), (name, "f4")])
    assert cenote.PointCloud(3, fields=[("é" * 8, "f4")]).fields[0][0] == "é" * 8


def test_there_are_no_pixels_outside():
    image, depth = cenote.Image(4, 4), cenote.DepthImage(4, 4)
    for wrong in (
        lambda: image.pixel(-1, 0), lambda: image.roi(-1, 0, 2, 2), lambda: depth.depth_at(0, -1),
        lambda: depth.roi(0, -1, 2, 2), lambda: image.pixel(4, 0), lambda: image.pixel(2**70, 0),
        lambda: depth.depth_at(4, 0), lambda: depth.depth_at(0, 4), lambda: depth.depth_at(-1, 0),
    ):  # fmt: skip
        with pytest.raises(cenote.OutOfRange):
            wrong()


def test_sizes_can_be_numbers_of_numpy():
    image = cenote.Image(np.int32(6), np.uint8(4), seq=np.uint64(3))
    assert (image.width, image.height, image.seq) == (6, 4, 3)
    assert cenote.DepthImage(np.int64(2), 3).roi(np.int8(1), 0, 2, 2).shape == (2, 2)
    with pytest.raises(TypeError):
        cenote.Image(6.0, 4)


def test_errors_name_dtypes_as_python_does():
    with pytest.raises(cenote.DTypeError, match="float32.*uint16.*not int8"):
        cenote.DepthImage(4, 4, "int8")
    with pytest.raises(cenote.DTypeError, match="rgb8 has uint8 .* int32"):
        cenote.Image.from_tensor(cenote.Tensor((4, 4, 3), "int32"), "rgb8")
    with pytest.raises(cenote.ArgumentError, match=r"uint8 of shape \(2, 2, 7\)"):
        cenote.Image.from_numpy(np.zeros((2, 2, 7), "uint8"))
    with pytest.raises(cenote.ArgumentError, match="depth.intrinsics = "):
        cenote.DepthImage(4, 4).to_point_cloud()
