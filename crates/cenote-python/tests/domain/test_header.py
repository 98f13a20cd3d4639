"""What images, point clouds and depth images have in common."""

import multiprocessing
import pickle

import cenote
import pytest
from samples import MAKERS, assert_same


@MAKERS
def test_each_class_extends_tensor_and_has_a_repr(make):
    sample = make()
    assert isinstance(sample, cenote.Tensor)
    assert repr(sample).startswith(f"<cenote.{type(sample).__name__} ") and f'frame_id="{sample.frame_id}"' in repr(sample)
    assert sample.memory == "shm" and sample.writable and not sample.lent
    assert sample.nbytes == sample.numpy().nbytes


@MAKERS
def test_header_fields_can_be_set(make):
    sample = make()
    sample.frame_id, sample.stamp_ns, sample.seq = "é" * 24, (1 << 64) - 1, 0
    assert (sample.frame_id, sample.stamp_ns, sample.seq) == ("é" * 24, (1 << 64) - 1, 0)
    with pytest.raises(cenote.ArgumentError, match="frame id"):
        sample.frame_id = "é" * 25
    for bad in (-1, 1 << 64):
        with pytest.raises(cenote.ArgumentError):
            sample.seq = bad
    with pytest.raises(TypeError):
        sample.stamp_ns = "now"
    assert sample.frame_id == "é" * 24


@MAKERS
def test_copies_pickles_and_descriptors_keep_the_metadata(make):
    sample = make()
    assert_same(sample.copy(), sample)
    assert sample.copy().writable
    assert_same(pickle.loads(pickle.dumps(sample)), sample)
    there = type(sample).from_descriptor(sample.descriptor())
    assert_same(there, sample)
    assert not there.writable and not there.numpy().flags.writeable and not sample.writable
    assert type(cenote.Tensor.from_descriptor(sample.descriptor())) is cenote.Tensor
    others = {cenote.Image, cenote.PointCloud, cenote.DepthImage} - {type(sample)}
    for other in others:
        with pytest.raises(cenote.TypeMismatch):
            other.from_descriptor(sample.descriptor())


@MAKERS
def test_queues_carry_descriptors(make):
    queue = multiprocessing.get_context("spawn").SimpleQueue()
    sample = make()
    queue.put({"sample": sample})
    assert cenote.in_transit() == 1
    assert_same(queue.get()["sample"], sample)
    assert cenote.in_transit() == 0 and not sample.writable
