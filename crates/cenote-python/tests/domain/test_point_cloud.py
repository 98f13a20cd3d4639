"""Point clouds."""

import pickle

import cenote
import numpy as np
import pytest
from samples import a_cloud, assert_same


def test_a_cloud_with_fields_of_one_dtype(pool):
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


def test_a_cloud_with_fields_of_different_dtypes():
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


def test_from_numpy_copies_plain_and_structured_arrays():
    points = np.random.default_rng(3).random((50, 4), "float32")
    assert_same(cenote.PointCloud.from_numpy(points, seq=1).copy(), cenote.PointCloud.from_numpy(points, seq=1))
    np.testing.assert_array_equal(np.asarray(cenote.PointCloud.from_numpy(points[::3])), points[::3])
    packed = np.zeros(5, [("x", "f4"), ("ring", "u2"), ("t", "f8")])
    packed["t"] = np.arange(5)
    cloud = cenote.PointCloud.from_numpy(packed)
    assert [field[3] for field in cloud.fields] == [0, 4, 8]  # aligned
    assert all(cloud.numpy()[name].tolist() == packed[name].tolist() for name in packed.dtype.names)
    uniform = np.array([(1, 2), (3, 4)], [("a", "i4"), ("b", "i4")])
    assert cenote.PointCloud.from_numpy(uniform).numpy().tolist() == [[1, 2], [3, 4]]
    for bad in (np.zeros(3), np.zeros((3, 3, 3)), np.zeros((3, 17), "float32"), np.zeros((2, 2), packed.dtype)):
        with pytest.raises(cenote.Error):
            cenote.PointCloud.from_numpy(bad)


@pytest.mark.parametrize("make", [lambda: cenote.PointCloud(0), lambda: a_cloud(0), lambda: cenote.PointCloud.from_numpy(np.zeros((0, 3), "float32"))])
def test_a_cloud_can_be_empty(make):
    cloud = make()
    assert len(cloud) == 0 and cloud.numpy().shape[0] == 0 and np.asarray(cloud).shape[0] == 0
    assert_same(pickle.loads(pickle.dumps(cloud)), cloud)
    assert_same(cenote.PointCloud.from_descriptor(cloud.descriptor()), cloud)
    with pytest.raises(cenote.Error):
        cloud.column("x")


def test_the_error_for_a_long_field_name_quotes_it():
    for name, shown in (("é" * 40, "é" * 16), ("intensity_of_light", "intensity_of_lig")):
        with pytest.raises(cenote.ArgumentError, match=rf'"{shown}"\.\.\. has {len(name.encode())} bytes; the limit is 16$'):
            cenote.PointCloud(3, fields=[("x", "f4"), (name, "f4")])
    assert cenote.PointCloud(3, fields=[("é" * 8, "f4")]).fields[0][0] == "é" * 8
