"""Images."""

import struct
import zlib

import cenote
import cv2
import numpy as np
import pytest


def test_an_image_by_size_and_format(pool):
    image = cenote.Image(640, 480)
    assert (image.width, image.height, image.format, image.step, image.channels) == (640, 480, "rgb8", 1920, 3)
    assert image.shape == (480, 640, 3) and not image.numpy().any()
    there = cenote.Image(640, 480, "nv12", pool=pool)
    assert pool.stats()["slots_in_use"] == 1 and there.format == "nv12"
    for bad in ((0, 480, "rgb8"), (640, 480, "rgb9"), (1 << 40, 1 << 40, "rgb8")):
        with pytest.raises((cenote.ArgumentError, cenote.PoolFull, cenote.OutOfMemory)):
            cenote.Image(*bad)


def test_from_numpy_copies_an_array():
    pixels = np.random.default_rng(1).integers(0, 255, (48, 64, 3), "uint8")
    image = cenote.Image.from_numpy(pixels, "bgr8", frame_id="c", stamp_ns=1, seq=2)
    np.testing.assert_array_equal(image.numpy(), pixels)
    assert (image.format, image.frame_id, image.stamp_ns, image.seq) == ("bgr8", "c", 1, 2)
    # Elements that are not contiguous.
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


def test_from_tensor_shares_the_memory(pool):
    tensor = pool.alloc((48, 64, 3), "uint8")
    image = cenote.Image.from_tensor(tensor, "bgr8")
    image.fill((1, 2, 3))
    assert tensor[0, 0].tolist() == [1, 2, 3] and image.pixel(63, 47) == (1, 2, 3)
    with pytest.raises(IndexError):
        image.pixel(64, 0)


def test_a_roi_shares_the_memory():
    image = cenote.Image(64, 48, seq=3)
    part = image.roi(10, 20, 4, 5)
    part.fill((0, 255, 0))
    assert (part.width, part.height, part.seq) == (4, 5, 3)
    assert image.numpy()[20:25, 10:14, 1].min() == 255 and image.numpy().sum() == 20 * 255
    with pytest.raises(cenote.Error):
        image.roi(62, 0, 4, 4)


def test_planes_share_the_memory():
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


def decode_png(png):
    """The pixels of a PNG file of 8-bit RGB. Checks the header's checksum, too."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    decoded = cv2.imdecode(np.frombuffer(png, "uint8"), cv2.IMREAD_COLOR)
    length, kind = struct.unpack(">I4s", png[8:16])
    assert kind == b"IHDR" and zlib.crc32(png[12 : 16 + length]) == struct.unpack(">I", png[16 + length : 20 + length])[0]
    return decoded[:, :, ::-1]


def test_notebooks_display_a_png():
    image = cenote.Image(6, 4, "rgb8")
    image[...] = np.arange(72).reshape(4, 6, 3)
    np.testing.assert_array_equal(decode_png(image._repr_png_()), image.numpy())
    blue = cenote.Image(6, 4, "bgr8")
    blue.fill((255, 0, 0))
    assert decode_png(blue.to_png())[0, 0].tolist() == [0, 0, 255]
