"""Depth images."""

import cenote
import numpy as np
import pytest

NAN, INF = float("nan"), float("inf")


def test_depths_statistics_intrinsics_and_points():
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


@pytest.mark.parametrize(
    "camera",
    [
        (0, 1, 1, 1), (1, 0.0, 1, 1), (-1, 1, 1, 1), (1, -0.5, 1, 1), (NAN, 1, 1, 1), (1, NAN, 1, 1), (1, 1, NAN, 1),
        (1, 1, 1, NAN), (INF, 1, 1, 1), (1, INF, 1, 1), (1, 1, INF, 1), (1, 1, 1, -INF),
    ],
)  # fmt: skip
def test_invalid_intrinsics_are_refused(camera):
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


def test_intrinsics_are_four_numbers_of_any_type():
    class Focus:
        def __float__(self):
            return 2.5

    assert cenote.DepthImage(4, 6, intrinsics=(Focus(), np.float32(2), 3, np.int8(4))).intrinsics == (2.5, 2, 3, 4)
    for wrong in ((1, 1, 1), (1, 1, 1, 1, 1), (1, 1, 1, "1"), (1, None, 1, 1), [1, 1, 1, 1], 1, "1234"):
        with pytest.raises((TypeError, ValueError)):
            cenote.DepthImage(4, 6, intrinsics=wrong)
    with pytest.raises(OverflowError):
        cenote.DepthImage(4, 6, intrinsics=(10**400, 1, 1, 1))


def test_from_numpy_copies_an_array_of_metres_or_millimetres():
    millimetres = np.arange(24, dtype="uint16").reshape(4, 6)
    depth = cenote.DepthImage.from_numpy(millimetres, seq=4)
    assert depth.depth_at(5, 3) == pytest.approx(0.023) and depth.seq == 4
    np.testing.assert_array_equal(depth.numpy(), millimetres)
    with pytest.raises(cenote.DTypeError):
        cenote.DepthImage.from_numpy(np.zeros((4, 6)))
    with pytest.raises(cenote.Error):
        cenote.DepthImage.from_numpy(np.zeros((4, 6, 2), "float32"))
