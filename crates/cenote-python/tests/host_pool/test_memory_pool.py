"""Memory pools, and the examples of their documentation."""

import gc
import os
import subprocess
import sys
import textwrap
import threading
import weakref
from contextlib import contextmanager

import cenote
import numpy as np
import pytest
from cenote import get_memory_pool

DOCUMENTED = {"pool_size", "total_acquired", "total_released", "cache_hits", "cache_misses"}

DTYPES = ["float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
          "bool", "complex64", "complex128"]


def address(array):
    return array.ctypes.data


def test_example_overview():
    data = np.arange(1024)
    pool = get_memory_pool()
    buffer = pool.acquire((1024,), dtype=np.float32)
    buffer.host[:] = data
    assert (buffer.host == data).all() and buffer.host.dtype == np.float32
    pool.release(buffer)


def test_example_basic_pooling():
    pool = cenote.MemoryPool()
    buf1 = pool.acquire((1000,), dtype=np.float32)
    buf1.host[:] = np.random.randn(1000)
    first = address(buf1.host)
    pool.release(buf1)
    buf2 = pool.acquire((1000,), dtype=np.float32)
    assert address(buf2.host) == first
    assert pool.stats()["cache_hits"] == 1


def test_example_context_manager_pattern():
    pool = get_memory_pool()

    @contextmanager
    def pooled_buffer(shape, dtype=np.float32):
        buffer = pool.acquire(shape, dtype)
        try:
            yield buffer
        finally:
            pool.release(buffer)

    with pooled_buffer((1024, 1024)) as buf:
        buf.host[:] = np.ones((1024, 1024))
        result = buf.device.sum()
    assert result == 1 << 20 and buf.released


def test_example_monitoring_pool_usage(capsys):
    pool = cenote.MemoryPool()
    for _ in range(100):
        buf = pool.acquire((1000,), dtype=np.float32)
        pool.release(buf)
    stats = pool.stats()
    print(f"Cache hits: {stats['cache_hits']}")
    print(f"Cache misses: {stats['cache_misses']}")
    print(f"Hit rate: {stats['cache_hits'] / stats['total_acquired']:.1%}")
    assert capsys.readouterr().out == "Cache hits: 99\nCache misses: 1\nHit rate: 99.0%\n"
    assert DOCUMENTED <= stats.keys()
    assert (stats["total_acquired"], stats["total_released"], stats["pool_size"]) == (100, 100, 1)


def test_example_clearing_the_pool():
    pool = get_memory_pool()
    pool.release(pool.acquire((1000,)))
    assert pool.pool_size >= 1 and pool.total_bytes >= 4000
    pool.clear()
    assert (pool.pool_size, pool.total_bytes) == (0, 0)


def test_get_memory_pool_always_returns_the_same_pool():
    assert get_memory_pool() is get_memory_pool()
    before = get_memory_pool().stats()["total_acquired"]
    cenote.UnifiedBuffer((3,))
    assert get_memory_pool().stats()["total_acquired"] == before + 1


def test_stats_count_buffers_in_use_and_retained():
    pool = cenote.MemoryPool()
    held = [pool.acquire((1000,), "uint8") for _ in range(3)]
    stats = pool.stats()
    assert (stats["in_use"], stats["pool_size"], stats["total_released"]) == (3, 0, 0)
    assert stats["in_use_bytes"] >= 3000 <= stats["peak_bytes"]
    del held
    stats = pool.stats()
    assert (stats["in_use"], stats["pool_size"], stats["total_released"]) == (0, 3, 3)
    assert stats["total_bytes"] == pool.total_bytes >= 3000
    assert "0 buffers in use, 3" in repr(pool)


def test_the_pool_respects_its_limits():
    pool = cenote.MemoryPool(max_pool_size=2, max_buffer_size=1 << 20)
    held = [pool.acquire((1000,)) for _ in range(4)]
    for buffer in held:
        pool.release(buffer)
    assert pool.pool_size == 2
    pool.clear()
    pool.release(pool.acquire((2 << 20,), "uint8"))
    assert pool.pool_size == 0 and pool.stats()["rejects"] > 0
    pool.release(pool.acquire((1 << 20,), "uint8"))
    assert pool.pool_size == 1


def test_retained_bytes_are_limited(monkeypatch):
    pool = cenote.MemoryPool(max_retained_bytes=1 << 20)
    held = [pool.acquire((512 << 10,), "uint8") for _ in range(4)]
    del held
    assert (pool.pool_size, pool.total_bytes) == (2, 1 << 20)
    pool.max_retained_bytes = 0
    assert (pool.pool_size, pool.max_retained_bytes) == (0, 0)
    monkeypatch.delenv("CENOTE_BUFFER_POOL_MAX_RETAINED_BYTES", raising=False)
    assert cenote.MemoryPool().max_retained_bytes == 1 << 30
    assert cenote.MemoryPool(max_buffer_size=1).max_retained_bytes == 100 << 20
    monkeypatch.setenv("CENOTE_BUFFER_POOL_MAX_RETAINED_BYTES", "2MiB")
    assert cenote.MemoryPool().max_retained_bytes == 2 << 20
    monkeypatch.setenv("CENOTE_BUFFER_POOL_MAX_RETAINED_BYTES", "lots")
    with pytest.raises(cenote.ArgumentError, match="lots"):
        cenote.MemoryPool()


def test_limits_out_of_range_raise_argument_error():
    pool = cenote.MemoryPool()
    for wrong in (
        lambda: cenote.MemoryPool(-1), lambda: cenote.MemoryPool(1, -1), lambda: cenote.MemoryPool(max_retained_bytes=-1),
        lambda: setattr(pool, "max_retained_bytes", -1), lambda: pool.acquire(-1), lambda: pool.acquire((2**70,)),
    ):  # fmt: skip
        with pytest.raises(cenote.ArgumentError):
            wrong()


@pytest.mark.parametrize("pool", [cenote.MemoryPool(), cenote.get_memory_pool()])
def test_a_buffer_of_the_largest_allowed_size_is_reused(pool):
    before = pool.stats()
    for _ in range(2):
        pool.release(pool.acquire(1 << 30, "uint8"))  # never written, so it takes no memory
    after = pool.stats()
    assert (after["cache_hits"] - before["cache_hits"], after["rejects"] - before["rejects"]) == (1, 0)
    pool.clear()


@pytest.mark.parametrize("shape", [(), (3,), 3, [2, 3], np.array([2, 2]), (1,) * 8])
def test_shapes_are_those_of_numpy(shape):
    buffer = get_memory_pool().acquire(shape)
    expected = np.empty(shape, "float32")
    assert (buffer.shape, buffer.ndim, buffer.size, buffer.nbytes) == (
        expected.shape, expected.ndim, expected.size, expected.nbytes)
    assert buffer.host.strides == expected.strides
    assert buffer.host.flags.c_contiguous and buffer.host.flags.writeable and buffer.host.flags.aligned


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes_are_those_of_numpy(dtype):
    for given in (dtype, np.dtype(dtype), np.dtype(dtype).type):
        buffer = get_memory_pool().acquire((4,), given)
        assert buffer.dtype == buffer.host.dtype == np.dtype(dtype)
        buffer.fill(1)
        assert (buffer.device == np.ones(4, dtype)).all()


def test_bfloat16():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    for given in ("bfloat16", ml_dtypes.bfloat16):
        with get_memory_pool().pooled((4,), given) as buffer:
            buffer.fill(1.5)
            assert buffer.device.astype("float32").tolist() == [1.5] * 4


@pytest.mark.parametrize("bad", [(0,), (-1,), (2**62, 8), (1,) * 9, (2**40, 2**20)])
def test_invalid_shapes_raise_errors(bad):
    with pytest.raises((cenote.ArgumentError, MemoryError, OSError)):
        get_memory_pool().acquire(bad)


@pytest.mark.parametrize("bad", ["float7", ">f4", "datetime64[s]", "S3", object, np.longdouble, [("x", "f4")]])
def test_invalid_dtypes_raise_type_error(bad):
    with pytest.raises(TypeError):
        get_memory_pool().acquire((3,), bad)


def test_a_pinned_buffer_works_even_if_the_kernel_refuses_to_pin_it():
    pool = cenote.MemoryPool()
    buffer = pool.acquire((100,), pinned=True)
    assert isinstance(buffer.pinned, bool) and not pool.acquire((100,)).pinned
    buffer.host[:] = 2
    assert buffer.device.sum() == 200
    pool.release(buffer)
    assert not buffer.pinned
    with pytest.raises(TypeError):
        pool.acquire((100,), "uint8", True)


def test_a_buffer_is_released_once_and_to_its_own_pool():
    pool, other = cenote.MemoryPool(), cenote.MemoryPool()
    buffer = pool.acquire((3,))
    with pytest.raises(ValueError, match="another pool"):
        other.release(buffer)
    buffer.fill(1)
    pool.release(buffer)
    for use in (lambda: pool.release(buffer), buffer.release, lambda: buffer.host, lambda: buffer.device,
                lambda: buffer.fill(0), buffer.synchronize, lambda: buffer.copy_from([1, 2, 3]),
                lambda: buffer.copy_to(np.zeros(3)), lambda: setattr(buffer, "device", 1), lambda: np.asarray(buffer)):
        with pytest.raises(cenote.ArgumentError, match="released"):
            use()
    assert buffer.shape == (3,) and "released" in repr(buffer)
    for wrong in (None, np.zeros(3), pool):
        with pytest.raises(TypeError):
            pool.release(wrong)
    stats = pool.stats()
    assert (stats["total_released"], stats["pool_size"]) == (1, 1)


def test_a_with_statement_releases_the_buffer_also_after_an_exception():
    pool = cenote.MemoryPool()
    with pytest.raises(ZeroDivisionError):
        with pool.pooled((3,), "int16", pinned=False) as buffer:
            assert buffer.dtype == np.int16
            1 / 0
    assert buffer.released and pool.pool_size == 1
    with pool.pooled((3,)) as buffer:
        pool.release(buffer)
    with cenote.UnifiedBuffer((3,)) as buffer:
        buffer.zeros()
    assert buffer.released


def test_a_released_buffer_is_not_reused_while_one_of_its_arrays_is_alive():
    pool = cenote.MemoryPool()
    buffer = pool.acquire((1000,), "uint8")
    array = buffer.host
    view = array[10:20]
    array[:] = 7
    start = address(array)
    pool.release(buffer)
    del array
    stats = pool.stats()
    assert (stats["pool_size"], stats["in_use"], stats["total_released"]) == (0, 1, 0)
    others = [pool.acquire((1000,), "uint8") for _ in range(5)]
    for other in others:
        other.fill(9)
    assert (view == 7).all()
    view[:] = 8
    assert all((other.host == 9).all() for other in others)
    del view
    assert pool.stats()["total_released"] == 1
    assert address(pool.acquire((1000,), "uint8").host) == start


def test_arrays_outlive_buffer_clear_and_pool():
    pool = cenote.MemoryPool()
    buffer = pool.acquire((1000,), "int64")
    buffer.host[:] = np.arange(1000)
    host, device, view = buffer.host, buffer.device, memoryview(buffer.host)
    pool.release(buffer)
    pool.clear()
    del buffer, pool
    gc.collect()
    noise = cenote.MemoryPool()
    for _ in range(50):
        with noise.pooled((1000,), "int64") as other:
            other.fill(-1)
    assert host.sum() == device.sum() == 499500 and view[999] == 999
    host[:] = 5
    assert view[0] == 5 and device[999] == 999


def test_a_pool_and_its_buffers_are_freed_without_a_garbage_collection():
    pool = cenote.MemoryPool()
    buffer = pool.acquire((3,))
    gone = [weakref.ref(pool), weakref.ref(buffer)]
    del pool, buffer
    assert [reference() for reference in gone] == [None, None]


PRELUDE = """
import atexit, gc, os, sys, threading, time
import numpy as np
import cenote
pool = cenote.get_memory_pool()
"""


def run_program(code):
    """Runs code in another process, which must end without an error."""
    done = subprocess.run([sys.executable, "-X", "faulthandler", "-c", PRELUDE + textwrap.dedent(code)],
                          capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (0, ""), f"{done.returncode}\n{done.stdout}\n{done.stderr}"


def test_pools_and_arrays_survive_the_end_of_the_interpreter():
    run_program("""
    buffer = pool.acquire((1000,))
    buffer.zeros()
    own = cenote.MemoryPool()
    released = own.acquire((1000,))
    sys.kept = [buffer, buffer.host, buffer.device, pool, released.host, own]
    np.kept = released.host[5:]
    own.release(released)
    class Last:
        def __init__(self, *kept):
            self.kept = kept
        def __del__(self):
            for each in self.kept:
                repr(each)
            try:
                with pool.pooled((10,)) as last:
                    last.zeros()
            except Exception:
                pass
    sys.last = Last(*sys.kept)
    atexit.register(lambda: pool.acquire((1000,)).host.sum())
    def work():
        while True:
            with pool.pooled((100, 100)) as each:
                each.fill(1)
                each.device.sum()
    for _ in range(2):
        threading.Thread(target=work, daemon=True).start()
    time.sleep(0.2)
    """)


def test_a_forked_child_has_copies_of_its_parents_buffers():
    run_program("""
    kept = pool.acquire((1000,), "int64")
    array = kept.host
    array[:] = 7
    gone = pool.acquire((1000,), "int64")
    last = gone.host
    last[:] = 8
    pool.release(gone)
    pid = os.fork()
    if pid == 0:
        try:
            assert (array == 7).all() and (last == 8).all()
            array[:], last[:] = 1, 2
            assert kept.device.sum() == 1000
            pool.release(kept)
            del array, last
            pool.clear()
            with pool.pooled((1000,), "int64") as mine:
                mine.fill(3)
        except BaseException as error:
            print(repr(error), flush=True)
            os._exit(1)
        sys.exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    assert (array == 7).all() and (last == 8).all() and (kept.device == 7).all()
    """)


def test_threads_share_a_pool():
    pool = cenote.MemoryPool()
    wrong = []

    def work(value):
        for turn in range(500):
            with pool.pooled((100,), "int32") as buffer:
                array = buffer.host
                array[:] = value
                if turn % 3 == 0:
                    pool.clear()
                if not (buffer.device == value).all():
                    wrong.append(turn)
            if not (array == value).all():
                wrong.append(turn)

    threads = [threading.Thread(target=work, args=(value,)) for value in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    stats = pool.stats()
    assert not wrong and stats["total_acquired"] == stats["total_released"] == 2000


def test_acquiring_and_releasing_leaks_no_memory():
    def rss():
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def use(times):
        pool = get_memory_pool()
        for _ in range(times):
            buffer = pool.acquire((1000,), np.float32)
            array = buffer.host
            array[:3] = buffer.nbytes
            buffer.device
            pool.release(buffer)

    use(2000)
    before = rss()
    use(20000)
    assert rss() - before < 8 << 20
