"""A report as one page and its files: a chapter of tables and figures for each group of series.

`templates` say how the page's sections look, this module what stands in them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, final

from .._lib.files import make_folder, write_file
from .._lib.pages import render_page
from .._lib.registry import require
from ..errors import UserError
from .charts import figures_of, menus_of, training_figures
from .content import tables_of
from .figures import DARK, LIGHT, TITLE, Figure, Menu, resolve, write_figure
from .inputs import Group, Item, Material, gather, groups_of
from .tables import MISSING, Table
from .verdict import verdict
from .words import finding, protocol, unbroken

BASELINE = "ERM"
"""The series that others are compared with, where it is there and no other is named."""
VERDICTS = 4
"""Most series whose verdicts a page gives."""
Block = tuple[Any, ...]
"""The name of a macro in templates/blocks.html, and its arguments."""


@final
@dataclass(frozen=True)
class Chapter:
    """A group of series, its tables and its figures, by their short names."""

    prefix: str
    """Begins the names of its menus, figures and files."""
    group: Group
    tables: Mapping[str, Table]
    menus: Sequence[Menu]
    figures: Mapping[str, Figure]


@final
@dataclass(frozen=True)
class Book:
    """A chapter for each group, and what the runs tell of their training."""

    material: Material
    chapters: Sequence[Chapter]
    training_menus: Sequence[Menu]
    training_figures: Sequence[Figure]
    try_next: Sequence[str] = ()

    @property
    def menus(self) -> list[Menu]:
        """The menus of all figures."""
        return [*(menu for chapter in self.chapters for menu in chapter.menus), *self.training_menus]

    @property
    def figures(self) -> list[Figure]:
        """The figures of all chapters, and of training."""
        return [*(figure for chapter in self.chapters for figure in chapter.figures.values()), *self.training_figures]


def report(
    records_or_runs: Item | Iterable[Item] | Material,
    out: str | Path = "report.html",
    *,
    baseline: str = BASELINE,
    files: str | Path | None = None,
    title: str = "Robustness report",
    try_next: Sequence[str] = (),
) -> Path:
    """Write a report as one self-contained HTML page and return its path.

    The page is self-contained, and never left partly written. Series are compared only on the same images, and
    no mean is taken over missing test sets: a note says why a value is missing.

    Args:
        records_or_runs: records, runs, run folders or files of records, one or several, mixed freely, or what `gather`
            made of them.
        out: the page.
        baseline: the label of the series that mCE, rmCE and paired differences refer to.
        files: a folder for the tables as Markdown, CSV and LaTeX and the figures as PNG, SVG and PDF.
        title: of the page.
        try_next: commands that the verdict proposes.
    """
    path = Path(out)
    if path.is_dir():
        raise UserError(f"{path} is a folder; give --out (Python: out) a file's name, such as report.html")
    material = records_or_runs if isinstance(records_or_runs, Material) else gather(records_or_runs)
    book = replace(compose(material, baseline), try_next=tuple(try_next))
    labels = dict.fromkeys(line.series.label for chapter in book.chapters for line in chapter.group.lines)
    if baseline not in labels and baseline != BASELINE:
        raise UserError(f"--baseline {baseline!r} is not among the series: {', '.join(labels)}")
    make_folder(path.parent)
    write_file(path, page_text(book, title).encode())
    if files is not None:
        write_files(book, Path(files))
    return path


def compose(material: Material, baseline: str) -> Book:
    """Tables and figures of everything that was given."""
    groups = groups_of(material.records, baseline)
    chapters = [_chapter(group, f"g{i}") for i, group in enumerate(groups, 1)]
    order = list(dict.fromkeys(line.series.label for group in groups for line in group.lines))
    return Book(material, chapters, *training_figures(material.folders, order))


def _chapter(group: Group, prefix: str) -> Chapter:
    def menus_under(part: Mapping[str, str]) -> dict[str, str]:
        return {field: f"{prefix}-{menu}" for field, menu in part.items()}

    figures = {
        figure.name: replace(
            figure,
            name=f"{prefix}-{figure.name}",
            rows_of=figure.rows_of and f"{prefix}-{figure.rows_of}",
            one=menus_under(figure.one),
            several=menus_under(figure.several),
            minus=menus_under(figure.minus),
        )
        for figure in figures_of(group)
    }
    menus = [replace(menu, name=f"{prefix}-{menu.name}") for menu in menus_of(group)]
    return Chapter(prefix, group, tables_of(group), menus, figures)


def write_files(book: Book, folder: Path) -> None:
    """Every table as Markdown, CSV and LaTeX, every figure as PNG, SVG and PDF, with what the page shows at first."""
    make_folder(folder)
    for chapter in book.chapters:
        for name, table in chapter.tables.items():
            texts = {"md": table.to_markdown(), "csv": table.to_csv(), "tex": table.to_latex()}
            for ending, text in texts.items():
                write_file(folder / f"{chapter.prefix}-{name}.{ending}", text.encode())
    first = {menu.name: menu.first for menu in book.menus}
    for figure in book.figures:
        shown = [first[menu][0] for part in (figure.one, figure.minus) for menu in part.values()]
        title = {"text": figure.caption, "subtitle": " − ".join(shown)}
        write_figure(resolve(figure, book.menus) | {"title": title | TITLE}, folder, figure.name)


def page_text(book: Book, title: str) -> str:
    """The page's HTML."""
    return render_page(
        "pdeplus.reports",
        libraries=[_bundle()],
        title=title,
        findings=[text for chapter in book.chapters for text in _findings(chapter.group)],
        sections=[section for section in _sections(book) if section[-1]],
        data={
            "themes": {"light": LIGHT, "dark": DARK},
            "menus": {menu.name: menu.options for menu in book.menus},
            "charts": [_chart(figure) for figure in book.figures],
        },
    )


def _sections(book: Book) -> list[tuple[str, str, Sequence[Block]]]:
    """Name, title and blocks of every section, in their order; one without blocks is not shown."""
    passes = [f"passes-{score}" for score in ("corrupted", "part", "cbar", "domains", "adversarial", "ece")]
    compared = ["costs", "comparison", "overlaps"]
    classes = [n for c in book.chapters for n in c.tables if n.startswith(("classes-", "confusion-"))]
    pictured = [folder for folder in book.material.folders if folder.samples]  # the first one's box is open
    flips = {f.title: some for f in pictured if (some := [one for one in f.samples if one.before])}
    plain = {f.title: [one for one in f.samples if not one.before] for f in pictured}
    return [
        ("verdict", "Each model", _verdict(book)),
        ("next", "Try next", [("commands", book.try_next)] if book.try_next else []),
        ("summary", "Summary", _each(book, ["summary"], ["domains", "epsilon", "cost"], compared)),
        ("mistakes", "Mistakes", [("samples", title, some, i == 0) for i, (title, some) in enumerate(flips.items())]),
        ("corruptions", "Corruptions", _each(book, [], ["heat", "difference"], ["corruptions", "families"])),
        ("severity", "Severity", _each(book, [], ["severity"], ["severities"])),
        ("classes", "Classes", _each(book, [], [], classes)),
        ("calibration", "Calibration", _each(book, [], ["reliability"], ["calibration"])),
        ("passes", "Noisy passes", _each(book, [], passes, ["passes"])),
        ("training", "Training", _panel(book.training_menus, book.training_figures)),
        ("samples", "Samples", [("samples", title, some, i == 0) for i, (title, some) in enumerate(plain.items())]),
        ("protocol", "Protocol", [("bullets", protocol([c.group for c in book.chapters])), ("metrics",)]),
        ("environment", "Environment", _environment(book.material)),
        ("repeat", "Repeat", _repeat(book.material)),
    ]


def _findings(group: Group) -> list[str]:
    """The verdict on a model that stands alone; of several, which is best."""
    alone = _verdicts(group) if len(group.lines) == 1 else []
    return alone or [unbroken(finding(group))]


def _verdict(book: Book) -> list[Block]:
    """A few sentences on each of a few series that are compared."""
    groups = [chapter.group for chapter in book.chapters if len(chapter.group.lines) > 1]
    texts = [text for group in groups for text in _verdicts(group)]
    return [("bullets", texts)] if 0 < len(texts) <= VERDICTS else []


def _verdicts(group: Group) -> list[str]:
    return [unbroken(verdict(line, group.main_score)) for line in group.lines if group.suite in ("corruptions", "cbar")]


def _each(book: Book, above: Sequence[str], figures: Sequence[str], below: Sequence[str]) -> list[Block]:
    """Tables, figures and tables of every chapter, by name, under its heading where there are several chapters."""
    blocks = list[Block]()
    for chapter in book.chapters:
        tables = {name: ("table", f"{chapter.prefix}-{name}", table) for name, table in chapter.tables.items()}
        panel = _panel(chapter.menus, [chapter.figures[name] for name in figures if name in chapter.figures])
        part = [*(tables[n] for n in above if n in tables), *panel, *(tables[n] for n in below if n in tables)]
        if part and len(book.chapters) > 1:
            blocks.append(("heading", chapter.group.title))
        blocks += part
    return blocks


def _panel(menus: Iterable[Menu], figures: Sequence[Figure]) -> list[Block]:
    """Figures with those menus that they follow and that leave a choice."""
    used = {name for figure in figures for part in (figure.one, figure.several, figure.minus) for name in part.values()}
    shown = [menu for menu in menus if menu.name in used and len(menu.options) > 1]
    return [("panel", shown, figures)] if figures else []


def _environment(material: Material) -> list[Block]:
    rows = tuple(dict.fromkeys((r.model, r.machine or MISSING, r.commit or MISSING) for r in material.records))
    title = "Where the records were made"
    blocks: list[Block] = [("table", "machines", Table(title, ("series", "machine", "commit"), rows))]
    sessions = [(folder.name, one) for folder in material.folders for one in folder.sessions]
    keys = [key for key in dict.fromkeys(key for _, one in sessions for key in one) if key != "command"]
    told = tuple(
        (name, *(MISSING if (value := one.get(key)) is None else str(value) for key in keys)) for name, one in sessions
    )
    return [*blocks, ("table", "sessions", Table("Training sessions", ("run", *keys), told))] if told else blocks


def _repeat(material: Material) -> list[Block]:
    trained = [one.get("command") for folder in material.folders for one in folder.sessions]
    blocks = list[Block]()
    for title, commands in (("Train", trained), ("Evaluate", [r.command for r in material.records])):
        known = list(dict.fromkeys(str(command) for command in commands if command))
        blocks += [("heading", title), ("commands", known)] if known else []
    return blocks


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
