"""Sample images, point clouds and depth images."""

import cenote
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


def assert_same(one, other):
    assert type(one) is type(other)
    assert (one.frame_id, one.stamp_ns, one.seq) == (other.frame_id, other.stamp_ns, other.seq)
    assert one.numpy().dtype == other.numpy().dtype
    np.testing.assert_array_equal(one.numpy(), other.numpy())
    for name in ("format", "fields", "intrinsics"):
        assert getattr(one, name, None) == getattr(other, name, None)


MAKERS = pytest.mark.parametrize("make", [an_image, a_cloud, a_depth])
