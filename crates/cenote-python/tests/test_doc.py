"""The examples in docstrings, README and guide run and print what they show."""

import doctest
import inspect
import pathlib
import re
import subprocess
import sys

import cenote
import numpy
import pytest

ROOT = pathlib.Path(__file__).parents[3]
PAGES = [ROOT / page for page in ["README.md", "guide/quick-start.md", "guide/python.md", "guide/camera-to-model.md"]]


def documented():
    """The names and values of all public objects."""
    yield "cenote", cenote
    for name in cenote.__all__:
        value = getattr(cenote, name)
        yield name, value
        if inspect.isclass(value) and not issubclass(value, Exception):
            for member, member_value in vars(value).items():
                if not member.startswith("_"):
                    yield f"{name}.{member}", member_value


def examples():
    """The examples of all docstrings."""
    for name, value in documented():
        found = doctest.DocTestParser().get_examples(inspect.getdoc(value) or "")
        if found:
            yield pytest.param(found, id=name)


@pytest.mark.parametrize("found", list(examples()))
def test_examples_of_docstrings(found, name):
    source = doctest.DocTest(found, {"cenote": cenote, "numpy": numpy}, name, None, 0, None)
    report = []
    results = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(source, out=report.append)
    assert results.failed == 0, "".join(report)
    assert results.attempted > 0


def test_everything_public_has_a_docstring():
    missing = [name for name, value in documented() if name != "__version__" and not inspect.getdoc(value)]
    assert missing == []


def test_everything_callable_has_a_signature():
    for name, value in documented():
        if callable(value) and not (inspect.isclass(value) and issubclass(value, Exception)):
            inspect.signature(value)


def blocks(programs):
    """The Python examples of README and guide. Programs, which start processes, are marked by a comment."""
    text = "".join(page.read_text() for page in PAGES)
    found = re.findall(r"^(<!-- a program -->\n)?```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    wanted = [block for mark, block in found if bool(mark) == programs]
    assert wanted
    return wanted


def test_examples_of_the_guide(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "guide"}
    for block in blocks(programs=False):
        exec(compile(block, "guide", "exec"), names)


def test_programs_of_the_guide(tmp_path):
    for number, block in enumerate(blocks(programs=True)):
        program = tmp_path / f"program_{number}.py"
        program.write_text(block)
        subprocess.run([sys.executable, str(program)], check=True, timeout=120)
