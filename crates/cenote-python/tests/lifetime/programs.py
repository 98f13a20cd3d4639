"""Runs test programs in other processes, because a failure would crash the test run."""

import subprocess
import sys
import textwrap



PRELUDE = """
import atexit, ctypes, gc, os, random, signal, sys, threading, time, weakref
import numpy as np
import cenote

name = f"crash-{os.getpid()}"

def filled(pool, value=7, shape=(1000,), dtype="int64"):
    tensor = pool.alloc(shape, dtype)
    tensor[...] = value
    return tensor

def synchronizing():
    buffer = cenote.MemoryPool().acquire(32 << 20, "uint8")
    buffer.zeros()
    def work():
        while True:
            buffer.host[0] = 1
            buffer.synchronize()
    return buffer, work
"""


def run_program(code, *arguments):
    """Runs code in another process. Returns what it prints. Fails if it crashes or reports anything."""
    command = [sys.executable, "-X", "faulthandler", "-W", "ignore::DeprecationWarning", "-c", PRELUDE + textwrap.dedent(code), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{done.returncode}\n{done.stdout}\n{done.stderr}"
    assert done.stderr == ""
    return done.stdout
