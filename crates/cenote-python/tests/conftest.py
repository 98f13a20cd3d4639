"""Gives each run of the tests its own directory, so that it finds no topics and pools of other programs."""

import atexit
import glob
import itertools
import os
import shutil
import signal
import tempfile
import time

import pytest

# Set before cenote is imported; child processes inherit it. The name contains the pid of its owner.
_PREFIX = "cenote-test-"
_dir = tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-")
os.environ["CENOTE_DIR"] = _dir
_owner = os.getpid()
_numbers = itertools.count()

# A shell makes its background jobs ignore Ctrl-C, and child processes inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)


@atexit.register
def _remove():
    # A pool that is still alive notices the removal and makes its directory again, so try several times.
    for _ in range(100):
        if os.getpid() != _owner or not os.path.exists(_dir):
            return
        shutil.rmtree(_dir, ignore_errors=True)
        time.sleep(0.01)


# Removes the directories of runs that were killed.
for _left in glob.glob(os.path.join(tempfile.gettempdir(), f"{_PREFIX}*-*")):
    _pid = os.path.basename(_left).removeprefix(_PREFIX).split("-")[0]
    if _pid.isdigit() and not os.path.exists(f"/proc/{_pid}"):
        shutil.rmtree(_left, ignore_errors=True)


def pytest_collection_modifyitems(items):
    """Runs the tests of other libraries last: some libraries start threads, and later tests could not fork safely."""
    items.sort(key=lambda item: item.path.name == "test_libraries.py")


@pytest.fixture
def name():
    """A name that no other test uses."""
    return f"test-{os.getpid()}-{next(_numbers)}"


@pytest.fixture
def pool(name):
    """A small pool that this process owns."""
    import cenote

    with cenote.TensorPool(name, size_mb=64, max_slots=64) as pool:
        yield pool
