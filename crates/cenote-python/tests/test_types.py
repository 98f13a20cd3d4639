"""The stubs: right by mypy and pyright, and the same as what is there."""

import json
import pathlib
import subprocess
import sys

TESTS = pathlib.Path(__file__).parent


def run(*command):
    done = subprocess.run([sys.executable, "-m", *command], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr


def test_mypy_accepts_what_is_right_and_nothing_else(tmp_path):
    run("mypy", "--strict", "--warn-unused-ignores", "--cache-dir", str(tmp_path), str(TESTS / "typed.py"))


def test_pyright_accepts_what_is_right_and_nothing_else(tmp_path):
    # The one that comes whole from the package index. By the oldest Python, too, for which numpy has types that
    # it does not fully know.
    for version, mode in (("3.11", "standard"), ("3.13", "strict")):
        rules = {"typeCheckingMode": mode, "pythonVersion": version, "reportUnnecessaryTypeIgnoreComment": True}
        config = tmp_path / "pyrightconfig.json"
        config.write_text(json.dumps({"include": [str(TESTS / "typed.py")], **rules}))
        run("basedpyright", "--project", str(config), "--pythonpath", sys.executable)


# What Python shows of the buffer protocol from 3.12 on, and a list that nobody imports from.
ALLOWED = r"cenote\._cenote\.(__all__|\w+\.(__buffer__|__release_buffer__))"


def test_stubs_say_what_is_there(tmp_path, monkeypatch):
    monkeypatch.setenv("MYPY_CACHE_DIR", str(tmp_path))
    allowed = tmp_path / "allowed"
    allowed.write_text(ALLOWED)
    run("mypy.stubtest", "cenote", "--allowlist", str(allowed), "--ignore-unused-allowlist")
