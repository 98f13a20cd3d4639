"""Every run has a directory of its own, so that nothing is found but what the tests made."""

import atexit
import glob
import itertools
import os
import shutil
import signal
import tempfile
import time

import pytest

# Before cenote is imported, and for the children too. The name tells whose it is.
_PREFIX = "cenote-test-"
_dir = tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-")
os.environ["CENOTE_DIR"] = _dir
_owner = os.getpid()
_numbers = itertools.count()

# A shell has what it runs in the background ignore Ctrl-C, and children inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)


@atexit.register
def _remove():
    # A pool that still lives makes its directory anew when it notices.
    for _ in range(100):
        if os.getpid() != _owner or not os.path.exists(_dir):
            return
        shutil.rmtree(_dir, ignore_errors=True)
        time.sleep(0.01)


# Those who were killed could not.
for _left in glob.glob(os.path.join(tempfile.gettempdir(), f"{_PREFIX}*-*")):
    _pid = os.path.basename(_left).removeprefix(_PREFIX).split("-")[0]
    if _pid.isdigit() and not os.path.exists(f"/proc/{_pid}"):
        shutil.rmtree(_left, ignore_errors=True)


def pytest_collection_modifyitems(items):
    """Those with other libraries last: some start threads, and then no process should be forked."""
    items.sort(key=lambda item: item.path.name == "test_clients.py")


@pytest.fixture
def name():
    """A name that no other test has."""
    return f"test-{os.getpid()}-{next(_numbers)}"


@pytest.fixture
def pool(name):
    """A small pool of this process."""
    import cenote

    with cenote.TensorPool(name, size_mb=64, max_slots=64) as pool:
        yield pool
