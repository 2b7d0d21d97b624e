"""Imports run one way, the root stays empty, files stay small, public names are listed once and work."""

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import pdeplus as pp

SOURCE = Path(pp.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))
ORDER = [
    "errors", "_lib", "functional", "core", "models", "augment", "data", "corruptions", "attacks", "methods",
    "training", "evaluation", "reports", "theory", "studies", "cli", "__main__",
]  # fmt: skip
"""The rooms and the files beside them: each imports only what stands before it."""
TESTS_ALONE = {
    f"corruptions.{name}" for name in ("noise", "blur", "weather", "digital", "cbar", "_splines", "suite", "copies")
}
"""Whatever holds a corruption of the test, or imports one."""


def module(path: Path) -> str:
    """A file's dotted name within the package; the package itself is the empty name."""
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module(path): path for path in FILES}


def room(name: str) -> str:
    return name.partition(".")[0]


@cache
def imports(path: Path) -> frozenset[str]:
    """The modules of pdeplus that a file imports, at its top, within a function or by a name in a string."""
    package = ("pdeplus", *path.relative_to(SOURCE).parts[:-1])
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            targets = [tuple(alias.name.split(".")) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            base += tuple(node.module.split(".")) if node.module else ()
            targets = [(*base, alias.name) for alias in node.names]
        elif isinstance(node, ast.Constant) and re.fullmatch(r"pdeplus(\.\w+)+", str(node.value)):
            target = tuple(str(node.value).split("."))  # a package's data, or a module loaded by its name
            targets = [target] if target[:2] != package[:2] else []
        else:
            continue
        found |= {_existing(".".join(target[1:])) for target in targets if target[0] == "pdeplus"}
    return frozenset(found)


def _existing(name: str) -> str:
    """The module itself, or the one that a name is taken from."""
    return name if name in MODULES else name.rpartition(".")[0]


def reached_from(*starts: str) -> set[str]:
    """All modules that these import, directly or through others; importing a module imports its packages."""
    found, waiting = set[str](), list(starts)
    while waiting:
        name = waiting.pop()
        if name in found or not name:
            continue
        found.add(name)
        waiting += [*imports(MODULES[name]), name.rpartition(".")[0]]
    return found


def test_every_module_stands_in_a_known_room():
    assert {room(name) for name in MODULES} - {""} == set(ORDER)


@pytest.mark.parametrize("name", [name for name in MODULES if name])
def test_imports_run_one_way(name):
    before = ORDER[: ORDER.index(room(name))]
    others = {room(used) for used in imports(MODULES[name])} - {room(name), ""}
    assert others <= set(before), f"{name} imports {sorted(others - set(before))}, which stand behind it"


def test_only_the_version_is_taken_from_the_root():
    for path in FILES:
        if "" in imports(path):
            taken = [n.names for n in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(n, ast.ImportFrom)]
            assert any(alias.name == "__version__" for names in taken for alias in names), path


def test_no_import_runs_in_a_circle():
    def visit(name: str, above: tuple[str, ...]) -> None:
        assert name not in above, " → ".join([*above[above.index(name) :], name])
        if name in done:
            return
        for used in sorted(imports(MODULES[name]) - {name, ""}):
            visit(used, (*above, name))
        done.add(name)

    done = set[str]()
    for name in MODULES:
        visit(name, ())


def test_training_imports_the_four_extra_corruptions_openly_and_cannot_reach_the_fifteen_or_the_ten():
    training = [name for name in MODULES if room(name) == "training"]
    assert "corruptions.extra" in imports(MODULES["training.selection"])
    assert not reached_from(*training, *(name for name in MODULES if room(name) == "methods")) & TESTS_ALONE


def test_a_process_that_has_loaded_training_has_not_loaded_the_fifteen_or_the_ten():
    code = (
        "import sys, pdeplus.training.run_folder, pdeplus.methods.pde_plus; "
        f"sys.exit(any('pdeplus.' + name in sys.modules for name in {sorted(TESTS_ALONE)}))"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_training_code_cannot_reach_test_images():
    for name in ("training", "methods"):
        assert not any(".test()" in path.read_text("utf-8") for path in (SOURCE / name).glob("*.py"))


def test_the_root_is_nearly_empty():
    entries = [entry.name for entry in SOURCE.iterdir() if entry.name != "__pycache__"]
    assert len(entries) <= 20
    assert [name for name in entries if name.startswith("_") and not name.startswith("__")] == ["_lib"]


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_files_and_functions_stay_small(path):
    text = path.read_text("utf-8")
    assert text.count("\n") <= 500
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            assert (node.end_lineno or 0) - node.lineno <= 65, f"{node.name} is long"


def test_the_house_stays_small():
    assert len(FILES) <= 202
    assert sum(path.read_text("utf-8").count("\n") for path in FILES) <= 27_000


def test_no_module_has_the_name_of_something_public():
    public = {name for name in pp.__all__ if callable(getattr(pp, name))}
    modules = {name.rpartition(".")[2] for name in MODULES if room(name) != "cli"}  # a command's file has its name
    assert not modules & public - {"augmix"}  # augment's and methods' own name


def test_public_names_work_and_are_documented():
    for name in pp.__all__:
        assert getattr(pp, name).__doc__, name


def test_no_global_random_state_in_the_library():
    calls = ("torch.rand(", "torch.randn(", "torch.randint(", "torch.randperm(")
    for path in FILES:
        for line in path.read_text("utf-8").splitlines():
            if any(call in line for call in calls):
                assert "generator" in line, f"{path.name}: {line.strip()}"
