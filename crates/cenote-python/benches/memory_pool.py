"""Measures acquiring and releasing a buffer, compared with `numpy.empty` of the same size.

    python crates/cenote-python/benches/memory_pool.py [rounds]

Each line is one size. `empty` allocates and frees. The `touched` variants also write one byte of each page, because the
kernel provides new memory at the first write. Times are of single calls, without the time of reading the clock.
"""

import sys
import time

import cenote
import numpy as np

SHAPES = [(16,), (1000,), (480, 640), (1080, 1920, 3)]
DTYPE = np.float32
PAGE = 4096


def pooled(pool, shape):
    pool.release(pool.acquire(shape, DTYPE))


def pooled_touched(pool, shape):
    buffer = pool.acquire(shape, DTYPE)
    touch(buffer.host)
    pool.release(buffer)


def empty(_, shape):
    np.empty(shape, DTYPE)


def empty_touched(_, shape):
    touch(np.empty(shape, DTYPE))


def touch(array):
    array.reshape(-1).view(np.uint8)[::PAGE] = 1


def nothing(_, __):
    pass


def times(call, pool, shape, rounds):
    """The nanoseconds of each call, sorted."""
    clock = time.perf_counter_ns
    found = []
    for _ in range(rounds):
        start = clock()
        call(pool, shape)
        found.append(clock() - start)
    return sorted(found[rounds // 10 :])


def percentiles(found, overhead):
    at = lambda share: max(found[int(share * (len(found) - 1))] - overhead, 0)
    return f"{at(0.5):>9} {at(0.99):>9}"


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    pool = cenote.MemoryPool()
    overhead = times(nothing, pool, (), rounds)[rounds // 3]
    calls = [pooled, empty, pooled_touched, empty_touched]
    print(f"{'float32 of shape':<18}" + "".join(f"{call.__name__ + ' p50':>20} {'p99':>9}" for call in calls) + "   (ns)")
    for shape in SHAPES:
        row = [percentiles(times(call, pool, shape, rounds), overhead) for call in calls]
        print(f"{str(shape):<18}" + "".join(f"{each:>30}" for each in row))
    stats = pool.stats()
    print(f"hits {stats['cache_hits']}, misses {stats['cache_misses']}")


if __name__ == "__main__":
    main()
