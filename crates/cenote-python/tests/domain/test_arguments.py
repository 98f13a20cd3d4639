"""Errors for arguments that are out of range."""

import cenote
import numpy as np
import pytest


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: cenote.Image(-1, 4), lambda: cenote.Image(2**70, 4), lambda: cenote.Image(0, 4),
        lambda: cenote.Image(4, 4, stamp_ns=-1), lambda: cenote.Image(4, 4, seq=2**64),
        lambda: setattr(cenote.Image(4, 4), "seq", -1), lambda: setattr(cenote.Image(4, 4), "stamp_ns", 2**64),
        lambda: cenote.PointCloud(-1), lambda: cenote.PointCloud(4, -1), lambda: cenote.DepthImage(4, -1),
    ],
)  # fmt: skip
def test_numbers_out_of_range_raise_argument_error(wrong):
    with pytest.raises(cenote.ArgumentError) as raised:
        wrong()
    assert isinstance(raised.value, ValueError)


def test_a_number_that_python_refuses_to_print_raises_argument_error():
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


def test_pixels_outside_the_image_raise_out_of_range():
    image, depth = cenote.Image(4, 4), cenote.DepthImage(4, 4)
    for wrong in (
        lambda: image.pixel(-1, 0), lambda: image.roi(-1, 0, 2, 2), lambda: depth.depth_at(0, -1),
        lambda: depth.roi(0, -1, 2, 2), lambda: image.pixel(4, 0), lambda: image.pixel(2**70, 0),
        lambda: depth.depth_at(4, 0), lambda: depth.depth_at(0, 4), lambda: depth.depth_at(-1, 0),
    ):  # fmt: skip
        with pytest.raises(cenote.OutOfRange):
            wrong()


def test_sizes_can_be_integers_of_numpy():
    image = cenote.Image(np.int32(6), np.uint8(4), seq=np.uint64(3))
    assert (image.width, image.height, image.seq) == (6, 4, 3)
    assert cenote.DepthImage(np.int64(2), 3).roi(np.int8(1), 0, 2, 2).shape == (2, 2)
    with pytest.raises(TypeError):
        cenote.Image(6.0, 4)


def test_errors_use_the_names_of_python():
    with pytest.raises(cenote.DTypeError, match="float32.*uint16.*not int8"):
        cenote.DepthImage(4, 4, "int8")
    with pytest.raises(cenote.DTypeError, match="rgb8 has uint8 .* int32"):
        cenote.Image.from_tensor(cenote.Tensor((4, 4, 3), "int32"), "rgb8")
    with pytest.raises(cenote.ArgumentError, match=r"uint8 of shape \(2, 2, 7\)"):
        cenote.Image.from_numpy(np.zeros((2, 2, 7), "uint8"))
    with pytest.raises(cenote.ArgumentError, match="depth.intrinsics = "):
        cenote.DepthImage(4, 4).to_point_cloud()
