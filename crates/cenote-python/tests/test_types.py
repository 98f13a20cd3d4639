"""The stubs: right by mypy, and the same as what is there."""

import pathlib
import subprocess
import sys

TESTS = pathlib.Path(__file__).parent


def run(*command):
    done = subprocess.run([sys.executable, "-m", *command], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr


def test_mypy_accepts_what_is_right_and_nothing_else(tmp_path):
    run("mypy", "--strict", "--warn-unused-ignores", "--cache-dir", str(tmp_path), str(TESTS / "typed.py"))


# What Python shows of the buffer protocol from 3.12 on, and a list that nobody imports from.
ALLOWED = r"cenote\._cenote\.(__all__|\w+\.(__buffer__|__release_buffer__))"


def test_stubs_say_what_is_there(tmp_path, monkeypatch):
    monkeypatch.setenv("MYPY_CACHE_DIR", str(tmp_path))
    allowed = tmp_path / "allowed"
    allowed.write_text(ALLOWED)
    run("mypy.stubtest", "cenote", "--allowlist", str(allowed), "--ignore-unused-allowlist")
