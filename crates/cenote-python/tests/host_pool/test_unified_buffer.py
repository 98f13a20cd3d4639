"""Unified buffers: the host side and the device side."""

import random
import threading

import cenote
import numpy as np
import pytest
from cenote import get_memory_pool


def uploads():
    return cenote.copies()["Upload"][0]


def test_a_write_through_a_host_array_makes_the_host_side_newer():
    buffer = cenote.UnifiedBuffer((4,), "int32")
    assert buffer.state == "uninitialized"
    array = buffer.host
    view = array[1:3]
    array[:] = 1
    assert buffer.device.tolist() == [1, 1, 1, 1]
    array[0] = 2
    assert buffer.state == "host_dirty" and buffer.device.tolist() == [2, 1, 1, 1]
    del array
    view[:] = 3
    buffer.synchronize()
    view[0] = 4
    assert buffer.device.tolist() == [2, 4, 3, 1]
    del view
    assert buffer.device.tolist() == [2, 4, 3, 1] and buffer.state == "in_step"


def test_an_upload_happens_only_after_the_host_side_was_lent():
    buffer = cenote.UnifiedBuffer((4,), "int32")
    buffer.host[:] = 1
    assert buffer.state == "host_only"
    before = uploads()
    buffer.synchronize()
    buffer.device, buffer.device
    buffer.copy_to(np.zeros(4))
    assert uploads() == before + 1 and buffer.state == "in_step"


def test_device_arrays_are_read_only_and_do_not_change():
    buffer = cenote.UnifiedBuffer((4,), "int32")
    buffer.fill(1)
    first = buffer.device
    with pytest.raises(ValueError):
        first[0] = 5
    with pytest.raises(ValueError):
        first.flags.writeable = True
    buffer.fill(2)
    second = buffer.device
    assert first.tolist() == [1] * 4 and second.tolist() == [2] * 4
    buffer.device = 3
    buffer.release()
    assert first.tolist() == [1] * 4 and second.tolist() == [2] * 4


def test_the_device_side_can_be_written():
    buffer = cenote.UnifiedBuffer((2, 2), "float32")
    buffer.device = [1, 2]
    assert buffer.state == "device_only"
    assert buffer.host.tolist() == [[1, 2], [1, 2]]
    buffer.synchronize()
    buffer.device = buffer.device * 2
    assert buffer.state == "device_dirty"
    array = np.zeros((2, 2))
    buffer.copy_to(array)
    assert array.tolist() == [[2, 4], [2, 4]] and buffer.state == "in_step"

    array = buffer.host
    with pytest.raises(cenote.ReadOnlyError, match="lent"):
        buffer.device = 0
    del array
    with pytest.raises(ValueError):
        buffer.device = [1, 2, 3]
    assert not buffer.is_device


def test_a_buffer_that_was_never_written_cannot_be_read():
    buffer = cenote.UnifiedBuffer((3,))
    for use in (lambda: buffer.device, buffer.synchronize, lambda: buffer.copy_to(np.zeros(3))):
        with pytest.raises(cenote.ArgumentError, match="nothing was written"):
            use()
    assert buffer.state == "uninitialized"


def test_copy_from_and_copy_to():
    buffer, other = cenote.UnifiedBuffer((2, 3), "float32"), cenote.UnifiedBuffer((2, 3), "int16")
    tensor = cenote.Tensor((2, 3), "uint8")
    buffer.copy_from([[1, 2, 3], [4, 5, 6]])
    other.copy_from(buffer)
    other.copy_to(tensor)
    assert tensor.tolist() == [[1, 2, 3], [4, 5, 6]]
    tensor.fill(7)
    buffer.copy_from(tensor)
    buffer.copy_to(other)
    buffer.copy_to(buffer)
    buffer.copy_from(buffer)
    assert other.host.tolist() == [[7] * 3] * 2
    array = buffer.host
    array[0, 0] = 1
    buffer.copy_to(other)
    assert other.host[0, 0] == 1
    for bad in (np.zeros((4, 4)), "text", object()):
        with pytest.raises((ValueError, TypeError)):
            buffer.copy_from(bad)
        with pytest.raises((ValueError, TypeError)):
            buffer.copy_to(bad)
    other.zeros()
    assert not other.host.any()


def test_asarray_is_the_host_side():
    buffer = cenote.UnifiedBuffer((3,), "int32")
    buffer.copy_from([1, 2, 3])
    array = np.asarray(buffer)
    array[0] = 9
    assert buffer.device.tolist() == [9, 2, 3]
    assert np.array(buffer, dtype="float64").tolist() == [9, 2, 3]
    assert not np.shares_memory(np.array(buffer), array)


def test_reused_memory_is_not_cleared_except_for_bool():
    pool = cenote.MemoryPool()
    with pool.pooled((64,), "uint8") as buffer:
        buffer.fill(255)
    with pool.pooled((64,), "uint8") as buffer:
        assert (buffer.host == 255).all()
    with pool.pooled((64,), "bool") as buffer:
        assert not buffer.host.any() and pool.stats()["cache_hits"] == 2


def test_threads_share_a_buffer():
    buffer = cenote.UnifiedBuffer((100,), "int32")
    buffer.zeros()
    errors = []

    def work():
        for _ in range(300):
            try:
                buffer.host[:] = 1
                buffer.device.sum()
                buffer.synchronize()
            except cenote.ReadOnlyError:
                pass
            except Exception as error:
                errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert not errors and (buffer.device == 1).all()


@pytest.mark.parametrize("seed", range(3))
def test_arrays_keep_their_values_during_random_calls(seed):
    """Buffers are acquired, written, released and cleared in random order."""
    chance = random.Random(seed)
    pools = [cenote.MemoryPool(max_pool_size=4), get_memory_pool()]
    buffers, kept = [], []  # each with its expected elements

    def acquire():
        pool = chance.choice(pools)
        shape = chance.choice([(100,), (10, 10), (1000,)])
        buffer = pool.acquire(shape, chance.choice(["int32", "float32"]), pinned=chance.random() < 0.1)
        elements = np.zeros(shape)
        buffer.zeros()
        buffers.append((pool, buffer, elements))

    def pick():
        if not buffers:
            acquire()
        return chance.choice(buffers)

    def keep():
        _, buffer, elements = pick()
        kept.append((buffer.host, elements))

    def keep_device():
        _, buffer, elements = pick()
        kept.append((buffer.device, elements.copy()))

    def write():
        _, buffer, elements = pick()
        elements[...] = chance.randint(0, 1000)
        buffer.copy_from(elements)

    def write_kept():
        if kept:
            array, elements = chance.choice(kept)
            if array.flags.writeable:
                elements[...] = chance.randint(0, 1000)
                array[...] = elements

    def write_device():
        _, buffer, elements = pick()
        value = chance.randint(0, 1000)
        try:
            buffer.device = value
        except cenote.ReadOnlyError:
            return
        elements[...] = value

    def release():
        pool, buffer, _ = entry = pick()
        pool.release(buffer)
        buffers.remove(entry)

    def forget():
        if kept:
            kept.pop(chance.randrange(len(kept)))

    def new_pool():
        pools[0] = cenote.MemoryPool(max_pool_size=4)

    def check():
        assert all((array == elements).all() for array, elements in kept)
        for _, buffer, elements in buffers:
            assert (buffer.device == elements).all()

    steps = [acquire, keep, keep_device, write, write, write_kept, write_kept, write_device, release, release, forget,
             forget, new_pool, check, lambda: chance.choice(pools).clear(), lambda: pick()[1].synchronize()]
    for _ in range(1500):
        chance.choice(steps)()
    check()


def test_threads_write_read_and_synchronize_one_large_buffer():
    shared, seen, wrong = cenote.MemoryPool().acquire(4 << 20, "uint8"), [], []
    shared.zeros()

    def use(value):
        for _ in range(20):
            shared.device = value
            array = shared.device
            before = array[0]
            shared.synchronize()
            repr(shared), shared.state, shared.nbytes
            if not (array == before).all():
                wrong.append(value)
            seen.append(before)

    threads = [threading.Thread(target=use, args=(value,)) for value in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 80 and set(seen) <= {1, 2, 3, 4}
    assert not wrong
