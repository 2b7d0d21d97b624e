"""The page: one file that opens anywhere, asks nothing of any network and shows every name literally."""

import base64
import hashlib
from collections.abc import Iterable
from functools import cache
from html import escape
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any

from .. import __version__
from .._checkpoint import make_folder, write_file
from .book import Book, compose
from .files import write_files
from .html import to_script
from .inputs import Item, gather
from .sections import Section, sections_of
from .specs import Figure
from .themes import DARK, LIGHT
from .words import finding


def report(
    records_or_runs: Item | Iterable[Item],
    out: str | Path = "report.html",
    *,
    baseline: str = "ERM",
    files: str | Path | None = None,
    title: str = "Robustness report",
) -> Path:
    """Write a report as one self-contained HTML page and return its path.

    The page is written whole or not at all, and holds all it needs. Series are compared only on the same images, and
    nothing is averaged over missing cells: what cannot be computed says why.

    Args:
        records_or_runs: records, runs, run folders or files of records, one or several, mixed freely.
        out: the page.
        baseline: the label of the series that mCE, rmCE and paired differences refer to.
        files: a folder for the tables as Markdown, CSV and LaTeX and the figures as PNG, SVG and PDF.
        title: of the page.
    """
    book = compose(gather(records_or_runs), baseline)
    path = Path(out)
    make_folder(path.parent)
    write_file(path, page_text(book, title).encode())
    if files is not None:
        write_files(book, Path(files))
    return path


def page_text(book: Book, title: str) -> str:
    """The page's HTML."""
    sections = sections_of(book)
    scripts = {"vega": _safe_script(_bundle()), "script": _safe_script(_part("page.js"))}
    return Template(_part("page.html")).substitute(
        scripts,
        hashes=" ".join(f"'sha256-{_hash(script)}'" for script in scripts.values()),
        style=_part("page.css"),
        title=escape(title),
        findings="".join(f"<p>{escape(finding(chapter.group))}</p>" for chapter in book.chapters),
        links="".join(f'<a href="#{section.name}">{section.title}</a>' for section in sections),
        sections="".join(_section(section) for section in sections),
        version=__version__,
        data=to_script(_data(book)),
    )


def _section(section: Section) -> str:
    heading = f'<h2 id="h-{section.name}">{section.title}</h2>'
    return f'<section id="{section.name}" aria-labelledby="h-{section.name}">{heading}{section.html}</section>'


def _data(book: Book) -> dict[str, Any]:
    """What page.js reads."""
    options = {menu.name: menu.options for menu in book.menus}
    charts = [_chart(figure) for figure in book.figures]
    return {"themes": {"light": LIGHT, "dark": DARK}, "menus": options, "charts": charts}


def _chart(figure: Figure) -> dict[str, Any]:
    fit = {"width": "container", "autosize": {"type": "fit-x", "contains": "padding"}}
    spec = figure.spec | fit | {"description": figure.caption}
    rows = None if figure.rows_of else {key: _column([row.get(key) for row in figure.rows]) for key in _keys(figure)}
    chosen = {"one": figure.one, "several": figure.several, "minus": figure.minus}
    return {"name": figure.name, "spec": spec, "rows": rows, "rowsOf": figure.rows_of, **chosen}


def _keys(figure: Figure) -> list[str]:
    return list(dict.fromkeys(key for row in figure.rows for key in row))


def _column(values: list[Any]) -> Any:
    """A column; of text each word once, and its number in every row."""
    if not any(isinstance(value, str) for value in values):
        return values
    words = {word: i for i, word in enumerate(dict.fromkeys(values))}
    return {"words": list(words), "codes": [words[value] for value in values]}


def _part(name: str) -> str:
    return (resources.files("pdeplus.report") / name).read_text("utf-8")


@cache
def _bundle() -> str:
    """Vega, Vega-Lite and Vega-Embed, as the installed wheel has them."""
    import vl_convert

    return vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")


def _safe_script(text: str) -> str:
    """A script that cannot end its element early; equal to the browser, which sees no difference in a string."""
    return text.replace("\r\n", "\n").replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _hash(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
