"""Importing the package: it imports all that it needs, or fails as any import does."""

import os
import subprocess
import sys

import pytest


def run(code, path=None):
    """What code prints in another process. That process searches for modules in `path` first."""
    environment = dict(os.environ, PYTHONPATH=str(path)) if path else None
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


CATCH = """
try:
    import cenote
except BaseException as error:
    print(type(error).__name__, error)
"""


@pytest.mark.parametrize("error", ['ImportError("broken")', "KeyboardInterrupt()", 'OSError(24, "Too many open files")'])
def test_the_import_fails_with_the_error_of_numpy(tmp_path, error):
    (tmp_path / "numpy.py").write_text(f"raise {error}\n")
    raised = eval(error)
    assert run(CATCH, tmp_path) == f"{type(raised).__name__} {raised}".strip()


def test_no_module_is_imported_later():
    assert run("""
import sys
import cenote

class Refuse:
    def find_spec(self, name, *_):
        raise KeyboardInterrupt(name)

sys.meta_path.insert(0, Refuse())
with cenote.Topic("import", cenote.Image) as topic:
    topic.subscribe()
    frame = topic.image(64, 48)
    frame[...] = 1
    frame.fill(2)
    frame.numpy(), frame.dtype
    cenote.Tensor.from_numpy([1.5])
    cenote.Tensor((2,), "int8").tolist()
    topic.send(frame)
    print(topic.recv(timeout=60).numpy().max())
""") == "2"
