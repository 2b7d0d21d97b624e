"""The site: `make docs`. Its source is the repository, so that pages, results and the changelog link to each other."""

import os
import re
import sys
from pathlib import Path
from typing import Any

from sphinx_gallery.sorting import ExplicitOrder

ROOT = Path(__file__).parents[1]
os.environ.setdefault("OMP_NUM_THREADS", "1")  # networks as small as the tutorials' learn fastest so
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]  # the source, where pdeplus is not installed

import pdeplus  # noqa: E402

project = "pdeplus"
author = "The pdeplus maintainers"
copyright = author
version = release = pdeplus.__version__
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
]
root_doc = "docs/index"
include_patterns = [
    "docs/**",
    "results/**.md",
    "benchmarks/**.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
]
exclude_patterns = ["build", ".*", "runs", "demo", "src", "tests", "docs/gallery", "docs/root", "docs/site"]

html_theme = "furo"
html_title = f"pdeplus {release}"
html_static_path = ["site"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_show_copyright = False
html_copy_source = False
sliders = ROOT / "build" / "theory" / "theory.html"  # of `pdeplus theory`: the page within docs/theory.md
html_extra_path = ["root", *([str(sliders)] if sliders.is_file() else [])]

myst_heading_anchors = 4
suppress_warnings = ["myst.header", "toc.not_included"]
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

default_role = "code"  # docstrings have names in single backticks
python_maximum_signature_line_length = 88
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True}
nitpick_ignore_regex = [
    (r"py:.*", r"(?!pdeplus\.).*|pdeplus\..*(\._|\.Pixels).*")
]  # other projects' types: their pages are not at hand offline

sphinx_gallery_conf = {
    "examples_dirs": "docs/gallery",
    "gallery_dirs": "docs/tutorials",
    "filename_pattern": "",  # all are executed
    "within_subsection_order": ExplicitOrder(
        [
            "how_robust.py",
            "finetune.py",
            "own_loop.py",
            "reproduce.py",
            "where_it_diffuses.py",
        ]
    ),
    "download_all_examples": False,
    "show_memory": False,
    "show_signature": False,
    "min_reported_time": 1,
    "remove_config_comments": True,
    "reset_modules": ("matplotlib",),
}


def setup(app: Any) -> None:
    """Mend links to tutorials, and keep the words under a field: napoleon takes "scale: of the noise" for a type."""
    written = dict[str, list[str]]()

    def keep(_app: Any, _what: str, name: str, _obj: Any, _options: Any, lines: list[str]) -> None:
        written[name] = lines[:]

    def restore(_app: Any, what: str, name: str, _obj: Any, _options: Any, lines: list[str]) -> None:
        if what in ("attribute", "data", "property"):
            lines[:] = written[name]

    def to_pages(_app: Any, _name: str, text: list[str]) -> None:  # a forge shows the scripts, the site what they make
        text[0] = re.sub(r"(\]\(\S*)gallery/(\w+)\.py\)", r"\1tutorials/\2.rst)", text[0])

    app.connect("source-read", to_pages)
    app.connect("autodoc-process-docstring", keep, priority=499)  # napoleon has 500
    app.connect("autodoc-process-docstring", restore, priority=501)
