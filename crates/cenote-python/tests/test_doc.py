"""What the documentation shows works as shown."""

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
    yield "cenote", cenote
    for name in cenote.__all__:
        thing = getattr(cenote, name)
        yield name, thing
        if inspect.isclass(thing) and not issubclass(thing, Exception):
            for member, value in vars(thing).items():
                if not member.startswith("_"):
                    yield f"{name}.{member}", value


def examples():
    for name, thing in documented():
        found = doctest.DocTestParser().get_examples(inspect.getdoc(thing) or "")
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
    bare = [name for name, thing in documented() if name != "__version__" and not inspect.getdoc(thing)]
    assert bare == []


def test_signatures_can_be_read():
    for name, thing in documented():
        if callable(thing) and not (inspect.isclass(thing) and issubclass(thing, Exception)):
            inspect.signature(thing)


def blocks(programs):
    """The examples of README and guide; programs are those that processes start from, and say so."""
    text = "".join(page.read_text() for page in PAGES)
    found = re.findall(r"^(<!-- a program -->\n)?```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    wanted = [block for mark, block in found if bool(mark) == programs]
    assert wanted
    return wanted


def test_the_guide(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "guide"}
    for block in blocks(programs=False):
        exec(compile(block, "guide", "exec"), names)


def test_programs_of_the_guide(tmp_path):
    for number, block in enumerate(blocks(programs=True)):
        program = tmp_path / f"program_{number}.py"
        program.write_text(block)
        subprocess.run([sys.executable, str(program)], check=True, timeout=120)
