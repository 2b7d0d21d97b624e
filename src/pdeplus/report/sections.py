"""The sections of the page, from the book."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import final

from .book import Book, Chapter
from .html import bullets, commands_html, definitions_html, panel_html, samples_html, table_html
from .inputs import Material
from .tables import MISSING, Table
from .words import METRICS, protocol


@final
@dataclass(frozen=True)
class Section:
    """A part of the page with its own heading and place in the navigation."""

    name: str
    title: str
    html: str


def sections_of(book: Book) -> list[Section]:
    """Those that have something to show, in their order."""
    made = [
        Section("summary", "Summary", _each(book, ["summary", "comparison", "overlaps"], GLANCE)),
        Section("corruptions", "Corruptions", _each(book, ["corruptions", "families"], ["heat", "difference"])),
        Section("severity", "Severity", _each(book, ["severities"], ["severity"])),
        Section("calibration", "Calibration", _each(book, ["calibration"], ["reliability"])),
        Section("passes", "Noisy passes", _each(book, ["passes"], PASSES)),
        Section("training", "Training", _training(book)),
        Section("samples", "Samples", _samples(book.material)),
        Section("protocol", "Protocol", _protocol(book)),
        Section("environment", "Environment", _environment(book.material)),
        Section("repeat", "Repeat", _repeat(book.material)),
    ]
    return [section for section in made if section.html]


GLANCE = ["domains", "epsilon", "cost"]
PASSES = ["corrupted", "domains", "adversarial", "ece"]


def _each(book: Book, tables: Sequence[str], figures: Sequence[str]) -> str:
    """The named tables and figures of every chapter, under its heading where there are several."""
    several = len(book.chapters) > 1
    headings = [f"<h3>{escape(chapter.group.title)}</h3>" * several for chapter in book.chapters]
    parts = [_part(chapter, tables, figures) for chapter in book.chapters]
    return "".join(heading + part for heading, part in zip(headings, parts, strict=True) if part)


def _part(chapter: Chapter, tables: Sequence[str], figures: Sequence[str]) -> str:
    if figures is PASSES and "passes" not in chapter.tables:
        return ""
    drawn = [chapter.figures[name] for name in figures if name in chapter.figures]
    panel = panel_html(chapter.menus, drawn) if drawn else ""
    shown = [table_html(chapter.tables[n], f"{chapter.prefix}-{n}") for n in tables if n in chapter.tables]
    return "".join([*shown[:1], panel, *shown[1:]] if "summary" in tables else [panel, *shown])


def _training(book: Book) -> str:
    return panel_html(book.training_menus, book.training_figures) if book.training_figures else ""


def _samples(material: Material) -> str:
    """Of each run in a box of its own, the first one open."""
    shown = [folder for folder in material.folders if folder.samples]
    boxes = list[str]()
    for i, folder in enumerate(shown):
        summary = f"<summary>{escape(f'{folder.label} seed {folder.seed} ({folder.name})')}</summary>"
        boxes.append(f"<details{'' if i else ' open'}>{summary}{samples_html(folder.samples)}</details>")
    return "".join(boxes)


def _protocol(book: Book) -> str:
    said = bullets(protocol([chapter.group for chapter in book.chapters]), "plain")
    return f"{said}<h3>What the numbers mean</h3>{definitions_html(METRICS)}"


def _environment(material: Material) -> str:
    seen = dict.fromkeys((r.model, r.machine or MISSING, r.commit or MISSING) for r in material.records)
    rows = tuple((model, machine, commit) for model, machine, commit in seen)
    tables = [table_html(Table("Where the records were made", ("series", "machine", "commit"), rows), "machines")]
    sessions = [(f.name, one) for f in material.folders for one in f.sessions]
    keys = [key for key in dict.fromkeys(key for _, one in sessions for key in one) if key != "command"]
    told = tuple((name, *(_told(one.get(key)) for key in keys)) for name, one in sessions)
    if told:
        tables.append(table_html(Table("Training sessions", ("run", *keys), told), "sessions"))
    return "".join(tables)


def _repeat(material: Material) -> str:
    trained = _commands(one.get("command") for folder in material.folders for one in folder.sessions)
    measured = _commands(r.command for r in material.records)
    parts = (("Train", trained), ("Evaluate", measured))
    return "".join(f"<h3>{title}</h3>{commands_html(found)}" for title, found in parts if found)


def _told(value: object) -> str:
    return MISSING if value is None else str(value)


def _commands(given: Iterable[object]) -> list[str]:
    return list(dict.fromkeys(str(command) for command in given if command))
