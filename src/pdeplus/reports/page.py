"""The page: a report as one file; `templates` say how its sections look, this module what stands in them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, final

from .._lib.files import make_folder, write_file
from .._lib.pages import render_page
from .._lib.registry import require
from .book import Book, Chapter, compose, write_files
from .figures import DARK, LIGHT, Figure, Menu
from .inputs import Item, Material, gather
from .tables import MISSING, Table
from .words import finding, protocol

Block = tuple[Any, ...]
"""The name of a macro in templates/blocks.html, and its arguments."""


@final
@dataclass(frozen=True)
class Section:
    """A part of the page with its own heading and place in the navigation."""

    name: str
    title: str
    blocks: Sequence[Block]


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
    return render_page(
        "pdeplus.reports",
        libraries=[_bundle()],
        title=title,
        findings=[finding(chapter.group) for chapter in book.chapters],
        sections=sections_of(book),
        data=_data(book),
    )


def sections_of(book: Book) -> list[Section]:
    """The sections that have something to show, in their order."""
    passes = [f"passes-{score}" for score in ("corrupted", "domains", "adversarial", "ece")]
    found = [
        Section("summary", "Summary", _each(book, ["summary"], ["domains", "epsilon", "cost"], COMPARED)),
        Section("corruptions", "Corruptions", _each(book, [], ["heat", "difference"], ["corruptions", "families"])),
        Section("severity", "Severity", _each(book, [], ["severity"], ["severities"])),
        Section("calibration", "Calibration", _each(book, [], ["reliability"], ["calibration"])),
        Section("passes", "Noisy passes", _each(book, [], passes, ["passes"])),
        Section("training", "Training", _panel(book.training_menus, book.training_figures)),
        Section("samples", "Samples", _samples(book.material)),
        Section("protocol", "Protocol", [("bullets", protocol([c.group for c in book.chapters])), ("metrics",)]),
        Section("environment", "Environment", _environment(book.material)),
        Section("repeat", "Repeat", _repeat(book.material)),
    ]
    return [section for section in found if section.blocks]


COMPARED = ["comparison", "overlaps"]


def _each(book: Book, above: Sequence[str], figures: Sequence[str], below: Sequence[str]) -> list[Block]:
    """Tables, figures and tables of every chapter, by name, under its heading where there are several chapters."""
    blocks = list[Block]()
    for chapter in book.chapters:
        panel = _panel(chapter.menus, [chapter.figures[name] for name in figures if name in chapter.figures])
        part = [*_tables(chapter, above), *panel, *_tables(chapter, below)]
        if part and len(book.chapters) > 1:
            blocks.append(("heading", chapter.group.title))
        blocks += part
    return blocks


def _tables(chapter: Chapter, names: Sequence[str]) -> list[Block]:
    return [("table", f"{chapter.prefix}-{name}", chapter.tables[name]) for name in names if name in chapter.tables]


def _panel(menus: Iterable[Menu], figures: Sequence[Figure]) -> list[Block]:
    """Figures with those menus that they follow and that leave a choice."""
    used = {name for figure in figures for part in (figure.one, figure.several, figure.minus) for name in part.values()}
    shown = [menu for menu in menus if menu.name in used and len(menu.options) > 1]
    return [("panel", shown, figures)] if figures else []


def _samples(material: Material) -> list[Block]:
    """The images of each run in a box of its own, the first one open."""
    shown = [folder for folder in material.folders if folder.samples]
    return [("samples", folder.title, folder.samples, i == 0) for i, folder in enumerate(shown)]


def _environment(material: Material) -> list[Block]:
    rows = tuple(dict.fromkeys((r.model, r.machine or MISSING, r.commit or MISSING) for r in material.records))
    blocks: list[Block] = [("table", "machines", Table(MACHINES, ("series", "machine", "commit"), rows))]
    sessions = [(folder.name, one) for folder in material.folders for one in folder.sessions]
    keys = [key for key in dict.fromkeys(key for _, one in sessions for key in one) if key != "command"]
    told = tuple((name, *(_told(one.get(key)) for key in keys)) for name, one in sessions)
    return [*blocks, ("table", "sessions", Table("Training sessions", ("run", *keys), told))] if told else blocks


MACHINES = "Where the records were made"


def _told(value: object) -> str:
    return MISSING if value is None else str(value)


def _repeat(material: Material) -> list[Block]:
    trained = [one.get("command") for folder in material.folders for one in folder.sessions]
    blocks = list[Block]()
    for title, commands in (("Train", trained), ("Evaluate", [r.command for r in material.records])):
        known = list(dict.fromkeys(str(command) for command in commands if command))
        blocks += [("heading", title), ("commands", known)] if known else []
    return blocks


def _data(book: Book) -> dict[str, Any]:
    """What page.js reads."""
    options = {menu.name: menu.options for menu in book.menus}
    charts = [_chart(figure) for figure in book.figures]
    return {"themes": {"light": LIGHT, "dark": DARK}, "menus": options, "charts": charts}


def _chart(figure: Figure) -> dict[str, Any]:
    fit = {"width": "container", "autosize": {"type": "fit-x", "contains": "padding"}}
    spec = figure.spec | fit | {"description": figure.caption}
    keys = dict.fromkeys(key for row in figure.rows for key in row)
    rows = None if figure.rows_of else {key: _column([row.get(key) for row in figure.rows]) for key in keys}
    chosen = {"one": figure.one, "several": figure.several, "minus": figure.minus}
    return {"name": figure.name, "spec": spec, "rows": rows, "rowsOf": figure.rows_of, **chosen}


def _column(values: list[Any]) -> Any:
    """A column; of text each word once, and its number in every row."""
    if not any(isinstance(value, str) for value in values):
        return values
    words = {word: i for i, word in enumerate(dict.fromkeys(values))}
    return {"words": list(words), "codes": [words[value] for value in values]}


@cache
def _bundle() -> str:
    """Vega, Vega-Lite and Vega-Embed, as the installed wheel has them."""
    (vl_convert,) = require("vl_convert", purpose="a report", extra="plots")
    return vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
