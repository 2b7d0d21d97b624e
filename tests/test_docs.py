"""The site builds without a warning, its links lead somewhere, and what its pages and tutorials show runs."""

import doctest
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from support.forkserver import ERRORS, SHOWN, finish, start_script
from support.pages import FENCE, PAGES, SCRIPTS, blocks, shell

import pdeplus as pp
from pdeplus.cli import parse
from pdeplus.errors import UserError
from pdeplus.training.config import load_config

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
LINKED = [*PAGES, *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"))]
SMALLER = {
    "how_robust": [("range(5):", "range(1):"), ("x_test, y_test)", "x_test[:4], y_test[:4])")],
    "finetune": [('"train.epochs=4"', '"train.epochs=1", "train.limit=200"'), ("train.epochs=12", "train.epochs=1")],
    "own_loop": [("epochs = 6", "epochs = 1"), ("[::3]", "[::50]")],
    "reproduce": [],
    "where_it_diffuses": [("train.epochs=4", "train.epochs=1"), ("train.limit=700", "train.limit=80")],
}
"""What makes a tutorial take seconds; `make docs` runs all of it."""


def prose(page: Path) -> str:
    """A page without its code."""
    return re.sub(r"`[^`\n]*`", "", FENCE.sub("", page.read_text("utf-8")))


def anchors(page: Path) -> set[str]:
    """What a forge and the site call a page's headings."""
    text = FENCE.sub("", page.read_text("utf-8"))
    titles = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title) for title in re.findall(r"^#+ (.*)$", text, re.M)]
    return {re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", LINKED, ids=lambda page: page.name)
def test_links_and_anchors_lead_somewhere(page):
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if re.match(r"\w+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), f"{page.name}: {link}"
        assert not anchor or anchor in anchors(target), f"{page.name}: {link}"


def test_the_site_builds_without_a_warning_and_finds_mce(tmp_path):
    """The gallery is laid out and not executed: `make docs` does that."""
    words = [
        "-q",
        "-W",
        "--keep-going",
        "-n",
        "-b",
        "html",
        "-D",
        "plot_gallery=0",
        "-c",
        "docs",
        "-d",
        str(tmp_path / "trees"),
        ".",
    ]
    command = [sys.executable, "-m", "sphinx", *words, str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    index = (tmp_path / "site" / "searchindex.js").read_text("utf-8")
    assert '"mce":[' in index
    assert (tmp_path / "site" / "docs" / "index.html").is_file()


def test_the_reference_has_every_public_name_and_its_examples_are_true(tmp_path, monkeypatch):
    page = DOCS / "api.md"
    text = page.read_text("utf-8")
    assert [name for name in pp.__all__ if f"pdeplus.{name}\n" not in text] == []
    monkeypatch.chdir(tmp_path)
    examples = doctest.DocTestParser().get_doctest("\n".join(blocks(page, "pycon")), {}, "api.md", str(page), 0)
    assert [name for name in pp.__all__ if f"pp.{name}" not in examples.docstring] == []
    shown = list[str]()
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    assert runner.run(examples, out=shown.append).failed == 0, "".join(shown)


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")], ids=lambda page: page.name)
def test_python_of_a_page_runs(page, tmp_path):
    """All blocks of a page are one script, which begins in an empty folder."""
    script = tmp_path / "code.py"
    script.write_text("\n".join(blocks(page, "python")))
    finish(start_script(script, cwd=tmp_path), tmp_path)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_tutorials_run_and_draw(script, tmp_path):
    text = script.read_text("utf-8")
    for big, small in SMALLER[script.stem]:
        assert big in text
        text = text.replace(big, small)
    assert "plt.show()" in text
    copy = tmp_path / "code.py"
    copy.write_text(text.replace("plt.show()", 'plt.savefig("figure.png")'))
    finish(start_script(copy, cwd=tmp_path), tmp_path)
    assert script.stem != "own_loop" or "coverage" in (tmp_path / SHOWN).read_text()
    assert {path.name for path in tmp_path.iterdir()} == {"code.py", "figure.png", SHOWN, ERRORS}  # and leave nothing


def commands(page: Path) -> list[list[str]]:
    """Every call of pdeplus in a page's shell blocks."""
    return [line.split()[1:] for line in shell(page) if line.startswith("pdeplus ")]


@pytest.mark.parametrize("page", [p for p in (*PAGES, *SCRIPTS) if commands(p)], ids=lambda page: page.name)
def test_commands_of_a_page_are_understood(page):
    """Commands, flags, presets and settings exist; those of README and of most tutorials are also run."""
    for words in commands(page):
        try:
            options = parse([word.strip("'\"") for word in words])
            if options.command == "train" and not options.resume and options.preset:
                load_config(options.preset, options.overrides)
        except UserError as error:
            pytest.fail(f"{page.name}: pdeplus {' '.join(words)}: {error}")


def test_toml_of_a_page_is_toml():
    for page in PAGES:
        for text in blocks(page, "toml"):
            tomllib.loads(text)
