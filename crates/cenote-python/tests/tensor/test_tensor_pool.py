"""Tensor pools: limits, names, errors, lists."""

import os
import signal
import threading
import time

import cenote
import numpy as np
import pytest
from processes import Child


def test_the_first_example_of_the_documentation():
    with cenote.TensorPool(pool_id=1, size_mb=1024, max_slots=1024) as pool:
        handle = pool.alloc(shape=(1080, 1920, 3), dtype="float32")
        assert handle.shape == (1080, 1920, 3)
        assert handle.dtype == np.float32
        array = handle.numpy()
        array[:] = 1.5
        assert handle.numpy().sum(dtype=np.float64) == 1080 * 1920 * 3 * 1.5


def test_an_array_keeps_its_memory_when_tensor_and_pool_are_gone(name):
    pool = cenote.TensorPool(name, size_mb=64)
    tensor = pool.alloc((1000,), "int64")
    array = tensor.numpy()
    array[:] = np.arange(1000)
    del tensor
    pool.close()
    del pool
    assert array.sum() == 499500


def test_a_closed_pool_cannot_be_used(name):
    pool = cenote.TensorPool(name, size_mb=64)
    pool.close()
    pool.close()
    assert not pool.is_alive
    with pytest.raises(cenote.Error, match="closed"):
        pool.alloc((1,))
    assert "closed" in repr(pool)


def test_the_error_of_a_full_pool_names_the_holders(name):
    with cenote.TensorPool(name, size_mb=64, max_slots=2) as pool:
        held = [pool.alloc((4,)) for _ in range(2)]
        with pytest.raises(cenote.PoolFull, match="holds 2"):
            pool.alloc((4,))
        assert pool.stats()["failures"] == 1
        # A call that waits counts as one failure.
        with pytest.raises(cenote.PoolFull, match="holds 2"):
            pool.alloc((4,), timeout=0.4)
        assert pool.stats()["failures"] == 2
        with pytest.raises(MemoryError):
            pool.alloc((4,), timeout=0)
        assert pool.holders()[0]["slots"] == 2
        threading.Timer(0.2, held.pop).start()
        pool.alloc((4,), timeout=60)
        assert pool.stats()["failures"] == 3
        del held
        pool.alloc((4,))


def test_a_name_is_in_use_while_its_owner_is_alive(name):
    with cenote.TensorPool(name, size_mb=64) as pool:
        with pytest.raises(cenote.PoolExists):
            cenote.TensorPool(name, size_mb=64)
        assert pool.name == name
    cenote.TensorPool(name, size_mb=64).close()


@pytest.mark.parametrize("bad", [
    {"size_mb": 0}, {"max_slots": 0}, {"slot_alignment": 3}, {"size_mb": 2**60}, {"size_mb": -1}, {"max_slots": 2**70},
    {"group": -1}, {"max_leases": -1}, {"growth_mb": -1}, {"pool_id": -1}, {"pool_id": 2**32},
])  # fmt: skip
def test_invalid_configurations_raise_value_error(name, bad):
    with pytest.raises(cenote.ArgumentError) as raised:
        cenote.TensorPool(**{"pool_id": name, **bad})
    assert isinstance(raised.value, ValueError)
    # The error uses the names of the arguments in Python.
    assert "pool_size" not in str(raised.value)
    with pytest.raises(cenote.ArgumentError):
        cenote.TensorPool("not/a name")


def test_a_pool_id_is_an_integer_or_a_string():
    with cenote.TensorPool(np.int64(4242), size_mb=64) as pool:
        assert pool.name == "4242"
        assert cenote.TensorPool.open(4242).uid == cenote.TensorPool.open(np.uint16(4242)).uid == pool.uid
    for bad in (1.5, None, b"pool", (1,)):
        with pytest.raises(TypeError, match="pool_id"):
            cenote.TensorPool(bad)


def test_the_error_for_a_tensor_larger_than_the_pool_names_size_mb(pool):
    with pytest.raises(cenote.PoolFull, match="`size_mb`"):
        pool.alloc((1 << 30,))


def test_a_pool_opened_by_name_cannot_allocate(pool):
    other = cenote.TensorPool.open(pool.name)
    assert not other.is_owner and other.is_alive
    with pytest.raises(cenote.Error, match="owner"):
        other.alloc((1,))
    with pytest.raises(cenote.Error, match="^alloc is for the owner"):
        other.alloc((1,), timeout=0)
    with pytest.raises(cenote.NotFound):
        cenote.TensorPool.open("no-such-pool")
    assert pool.name in repr(other)


def test_other_threads_run_while_alloc_waits(name):
    with cenote.TensorPool(name, size_mb=64, max_slots=1) as pool:
        held = [pool.alloc((4,))]
        threading.Timer(0.2, held.clear).start()
        assert pool.alloc((4,), timeout=60).shape == (4,)


def test_alloc_waits_for_its_timeout_unless_the_tensor_can_never_fit(name):
    with cenote.TensorPool(name, size_mb=64, max_slots=1) as pool:
        held = pool.alloc((4,))
        start = time.monotonic()
        with pytest.raises(cenote.PoolFull, match="holds 1"):
            pool.alloc((4,), timeout=0.3)
        assert time.monotonic() - start >= 0.3
        with pytest.raises(cenote.PoolFull, match="more than the whole pool"):
            pool.alloc((1 << 30,), timeout=600)
        for bad in (-1, float("nan"), float("-inf")):
            with pytest.raises(ValueError):
                pool.alloc((4,), timeout=bad)
        del held


INTERRUPTED = """
import sys, cenote
pool = cenote.TensorPool(sys.argv[1], size_mb=64, max_slots=1)
held = pool.alloc((4,))
try:
    print("waiting")
    pool.alloc((4,), timeout=600)
except KeyboardInterrupt:
    print("interrupted")
"""


def test_ctrl_c_ends_a_waiting_alloc(name):
    with Child(INTERRUPTED, name) as child:
        assert child.line() == "waiting"
        time.sleep(0.2)
        os.kill(child.pid, signal.SIGINT)
        assert child.line() == "interrupted"
        assert child.process.wait(60) == 0


def test_pools_are_listed_with_the_accounts_of_their_owners(pool, name):
    held = pool.alloc((1000,), "uint8")
    (found,) = (each for each in cenote.pools() if each["uid"] == pool.uid)
    assert (found["name"], found["pid"], found["of_topic"]) == (pool.name, os.getpid(), False)
    stats = pool.stats()
    del stats["in_transit"]
    assert found["account"]["stats"] == stats and stats["slots_in_use"] == 1
    (owner,) = found["account"]["processes"]
    assert (owner["pid"], owner["slots"]) == (os.getpid(), 1)
    assert found["account"]["copies"].keys() <= cenote.copies().keys()
    with cenote.Topic(name) as topic:
        topic.advertise()
        assert any(each["of_topic"] and each["name"] == name for each in cenote.pools())
    pool.close()
    assert not any(each["uid"] == found["uid"] for each in cenote.pools())
    del held
