"""The type stubs: mypy and pyright accept them, and they describe the module as it is."""

import json
import pathlib
import subprocess
import sys

TESTS = pathlib.Path(__file__).parent


def run(*command):
    done = subprocess.run([sys.executable, "-m", *command], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr


def test_mypy_accepts_correct_code_only(tmp_path):
    run("mypy", "--strict", "--warn-unused-ignores", "--cache-dir", str(tmp_path), str(TESTS / "typed.py"))


def test_pyright_accepts_correct_code_only(tmp_path):
    # basedpyright is the variant whose package contains all it needs. With the types of the oldest Python it does not
    # know all types of numpy, so only the newest one is checked strictly.
    for version, mode in (("3.11", "standard"), ("3.13", "strict")):
        rules = {"typeCheckingMode": mode, "pythonVersion": version, "reportUnnecessaryTypeIgnoreComment": True}
        config = tmp_path / "pyrightconfig.json"
        config.write_text(json.dumps({"include": [str(TESTS / "typed.py")], **rules}))
        run("basedpyright", "--project", str(config), "--pythonpath", sys.executable)


# Differences that are allowed: the buffer protocol, which Python shows from 3.12 on, and `__all__` of the native module.
ALLOWED = r"cenote\._cenote\.(__all__|\w+\.(__buffer__|__release_buffer__))"


def test_stubs_match_the_module(tmp_path, monkeypatch):
    monkeypatch.setenv("MYPY_CACHE_DIR", str(tmp_path))
    allowed = tmp_path / "allowed"
    allowed.write_text(ALLOWED)
    run("mypy.stubtest", "cenote", "--allowlist", str(allowed), "--ignore-unused-allowlist")
