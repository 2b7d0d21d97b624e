"""What is published: bounds, the tested set and its hashes, marks for users of types and of security."""

import importlib.util
import re
import sys
import tomllib
from pathlib import Path

from support.commands import answer

import pdeplus

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
LOCK = ROOT / "requirements.lock"


def pinned(path: Path) -> dict[str, str]:
    """Versions by name, in lower case with hyphens."""
    lines = [line for line in path.read_text("utf-8").splitlines() if line and not line.startswith("#")]
    pairs = [re.match(r"([\w.-]+)==([\w.]+)", line).groups() for line in lines]
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in pairs}


def test_torch_is_new_enough_to_read_a_strangers_weights():
    """CVE-2025-32434: before 2.6 weights_only can be made to run code."""
    assert "torch>=2.6" in PROJECT["dependencies"]


def test_types_and_the_trust_boundary_are_published():
    assert (Path(pdeplus.__file__).parent / "py.typed").is_file()
    security = (ROOT / "SECURITY.md").read_text("utf-8")
    assert "--trust-code" in security
    assert "strangers" in security


def test_the_version_is_the_same_wherever_it_is_written():
    version, heading = pdeplus.__version__, re.compile(r"^## ([\d.]+) \((\d{4}-\d\d-\d\d)\)$", re.M)
    released = heading.search((ROOT / "CHANGELOG.md").read_text("utf-8"))
    citation = (ROOT / "CITATION.cff").read_text("utf-8")
    assert re.findall(r"^ *version: (.*)$", citation, re.M) == [version, version]
    assert f"date-released: {released[2]}\n" in citation
    assert released[1] == version
    assert f"version = {{{version}}}" in (ROOT / "docs" / "cite.md").read_text("utf-8")


def test_every_dependency_is_in_the_tested_set():
    tested = pinned(ROOT / "constraints.txt")
    wanted = [
        *PROJECT["dependencies"],
        *(line for extra in PROJECT["optional-dependencies"].values() for line in extra),
    ]
    names = [re.sub(r"[-_.]+", "-", re.match(r"[\w.-]+", line)[0]).lower() for line in wanted]
    assert [name for name in names if name not in tested] == []


def test_the_lock_has_the_tested_versions_with_their_hashes_and_no_place():
    tested, lines = pinned(ROOT / "constraints.txt"), LOCK.read_text("utf-8").splitlines()
    assert tested.items() <= pinned(LOCK).items()
    assert all(line.startswith("#") or re.fullmatch(r"\S+==\S+ --hash=sha256:[0-9a-f]{64}", line) for line in lines)
    assert "://" not in LOCK.read_text("utf-8")


def test_the_packages_trial_expects_the_line_that_the_demo_without_its_extra_says(monkeypatch, tmp_path, capsys):
    """`make package` tries all such lines, where the extras are really missing."""
    spec = importlib.util.spec_from_file_location("package", ROOT / "tools" / "package.py")
    spec.loader.exec_module(trial := importlib.util.module_from_spec(spec))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    ((words, line),) = (lack for lack in trial.LACKS if lack[0] == ["demo"])
    code, _, err = answer(capsys, *words)
    assert (code, err.count("\n")) == (2, 1)
    assert line in err
