"""Imports run one way, files stay small, public names are listed once and work."""

import ast
from pathlib import Path

import pytest

import pdeplus as pp

SOURCE = Path(pp.__file__).parent
LAYERS = [
    "functional",
    "theory",
    "diffusion",
    "prediction",
    "batch_norm",
    "noise_layers",
    "attacks",
    "sanity",
    "methods",
    "overlap",
    "trainer",
    "run",
    "use",
    "export",
]
LAYERS += ["evaluate", "report", "analysis", "reproduce", "bench", "demo", "cli"]
FREE = [
    "data",
    "models",
    "augment",
    "config",
    "corruptions",
    "generate",
    "records",
    "metrics",
    "suites",
    "selection",
    "recipes",
]
"""Import none of the layers."""


def unit(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports(path: Path) -> set[str]:
    """The units of pdeplus that a file imports, wherever in the file."""
    package = ("pdeplus", *path.relative_to(SOURCE).parts[:-1])
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = package[: len(package) - node.level + 1]
            target = (*base, *(node.module.split(".") if node.module else ()))
            found |= {target[1]} if len(target) > 1 else {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pdeplus"):
            found.add((node.module or "").split(".")[1])
    return found


FILES = sorted(SOURCE.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_run_one_way(path):
    me, used = unit(path), imports(path) - {unit(path)}
    if me in FREE:
        assert not used & set(LAYERS), f"{me} is free of the layers"
    elif me in LAYERS:
        above = set(LAYERS[LAYERS.index(me) + 1 :])
        assert not used & above


def test_training_code_cannot_reach_test_images():
    for name in ("trainer.py", "run.py"):
        assert ".test()" not in (SOURCE / name).read_text()
    assert not any(".test()" in path.read_text() for path in (SOURCE / "methods").glob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_files_and_functions_stay_small(path):
    text = path.read_text("utf-8")
    assert text.count("\n") <= 340
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            assert (node.end_lineno or 0) - node.lineno <= 65, f"{node.name} is long"


def test_public_names_work_and_are_documented():
    for name in pp.__all__:
        assert getattr(pp, name).__doc__, name
    assert callable(pp.diffusion)  # the function, not the module of that name


def test_no_global_random_state_in_the_library():
    calls = ("torch.rand(", "torch.randn(", "torch.randint(", "torch.randperm(")
    for path in FILES:
        for line in path.read_text("utf-8").splitlines():
            if any(call in line for call in calls):
                assert "generator" in line, f"{path.name}: {line.strip()}"
