"""Helpers for tests with several processes."""

import os
import select
import signal
import subprocess
import sys
import time




class Child:
    """Runs Python code in another process, which prints answers line by line."""

    def __init__(self, code, *arguments):
        command = [sys.executable, "-u", "-c", code, *map(str, arguments)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.pid = self.process.pid

    def line(self):
        """The next line that the child prints. Fails after two minutes, so that a hanging child ends the test."""
        assert select.select([self.process.stdout], [], [], 120)[0], "the child prints nothing"
        line = self.process.stdout.readline()
        assert line, f"the child ended: {self.process.wait()}"
        return line.strip()

    def kill(self):
        os.kill(self.pid, signal.SIGKILL)
        self.process.communicate()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.kill()


def eventually(condition, seconds=60):
    """Waits until a condition holds, for a minute at most. Returns whether it holds."""
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.002)
    return condition()


def resident_bytes():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096


def open_descriptors():
    return len(os.listdir("/proc/self/fd"))
