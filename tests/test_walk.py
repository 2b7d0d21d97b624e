"""The walk of docs/architecture.md is true: its files and functions exist, and no other file runs on the way."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import pdeplus as pp

SOURCE = Path(pp.__file__).parent
PAGE = (Path(__file__).parents[1] / "docs" / "architecture.md").read_text("utf-8")
WALK = PAGE.partition("## One batch, followed")[2]
ROWS = [line.split("|")[1:3] for line in WALK.splitlines() if line.startswith("| `")]
STEPS = [(re.findall(r"`([\w/]+\.py)`", files), re.findall(r"`([\w.]+)`", functions)) for files, functions in ROWS]
NAMED = set(re.findall(r"`([\w/]+\.py)`", WALK))
TRACER = """
import sys, threading
met = set()
def note(frame, event, argument):
    code = frame.f_code
    if event == "call" and code.co_flags & 1 and code.co_filename.startswith(sys.argv[1]):
        met.add(code.co_filename[len(sys.argv[1]) + 1:])
from pdeplus.cli import main
def run(*words):
    sys.setprofile(note); threading.setprofile(note)
    try:
        main(words)
    except SystemExit as left:
        assert not left.code, words
    finally:
        sys.setprofile(None); threading.setprofile(None)
small = ["train.epochs=1", "train.limit=60", "model.width=2", "data.size=8"]
run("train", "demo", "method.name=erm", *small, "--out", "r")
run("evaluate", "r", "--limit", "4", "--severity", "5")
run("report", "r", "--out", "r.html")
print("MET", *sorted(met))
"""


def defined(path: Path) -> set[str]:
    """Names of a file's functions and classes, and of classes' methods behind their class."""
    found = set()
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{each.name}" for each in node.body if isinstance(each, ast.FunctionDef)}
    return found


def test_every_file_on_the_page_exists():
    for name in re.findall(r"`([\w/]+\.py)`", PAGE):
        places = [SOURCE / name, Path(__file__).parents[1] / name]
        assert any(place.is_file() for place in places), name


@pytest.mark.parametrize(("files", "functions"), STEPS, ids=lambda value: value[0])
def test_every_function_of_the_walk_stands_in_its_file(files, functions):
    assert functions
    there = set().union(*(defined(SOURCE / name) for name in files))
    assert set(functions) <= there


def test_the_walk_is_short():
    assert 30 < len({name for files, _ in STEPS for name in files}) <= 45


def test_no_other_file_runs_on_the_way(tmp_path):
    words = [sys.executable, "-W", "ignore", "-c", TRACER, str(SOURCE)]
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, timeout=280)
    assert done.returncode == 0, done.stderr
    met = set(done.stdout.partition("MET ")[2].split())
    assert len(met) > 40
    assert {name for name in met if name.endswith(".py") and not name.startswith("_lib/")} <= NAMED
