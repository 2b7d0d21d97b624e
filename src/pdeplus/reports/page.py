"""The page: one file that opens anywhere, asks nothing of any network and shows every name literally."""

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any, final
from urllib.parse import quote

from .. import __version__
from .._lib.files import make_folder, write_file
from . import charts
from .charts import training_figures
from .content import several_passes, tables_of
from .figures import DARK, LIGHT, TITLE, Figure, Menu, resolve, write_figure
from .inputs import Group, Item, Material, Sample, gather, groups_of
from .tables import MISSING, PLUS_MINUS, Table
from .words import METRICS, finding, protocol


@final
@dataclass(frozen=True)
class Chapter:
    """A group of series, its tables and its figures."""

    prefix: str
    """Begins the names of its menus and figures, and of its files."""
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

    @property
    def menus(self) -> list[Menu]:
        """Of all figures."""
        return [*(menu for chapter in self.chapters for menu in chapter.menus), *self.training_menus]

    @property
    def figures(self) -> list[Figure]:
        """All."""
        return [*(figure for chapter in self.chapters for figure in chapter.figures.values()), *self.training_figures]


def compose(material: Material, baseline: str) -> Book:
    """Tables and figures of everything that was given."""
    groups = groups_of(material.records, baseline)
    chapters = [_chapter(group, f"g{i}") for i, group in enumerate(groups, 1)]
    order = list(dict.fromkeys(line.series.label for group in groups for line in group.lines))
    return Book(material, chapters, *training_figures(material.folders, order))


def _chapter(group: Group, prefix: str) -> Chapter:
    return Chapter(prefix, group, tables_of(group), charts.menus_of(group, prefix), _figures(group, prefix))


def _figures(group: Group, prefix: str) -> dict[str, Figure]:
    """Those that have something to show."""
    made = dict[str, Figure]()
    if group.suite == "corruptions":
        made |= {"heat": charts.heat_map(group, prefix), "severity": charts.severity_lines(group, prefix)}
        if len(group.lines) > 1:
            made["difference"] = charts.difference_map(group, prefix)
    if group.suite == "domains":
        made["domains"] = charts.domain_dots(group, prefix)
    if group.suite == "adversarial":
        made["epsilon"] = charts.epsilon_lines(group, prefix)
    made |= {"reliability": charts.reliability(group, prefix), "cost": charts.cost_scatter(group, prefix)}
    if several_passes(group):
        made |= {score: charts.passes(group, prefix, score) for score in (group.main_score, "ece")}
    return {name: figure for name, figure in made.items() if figure.rows}


_IN_SCRIPT = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def to_script(value: Any) -> str:
    """JSON that stays data inside a script element, whatever text it holds."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.translate(str.maketrans(_IN_SCRIPT))


def table_html(table: Table, name: str) -> str:
    """A table whose columns can be sorted, in a box that scrolls, with its notes and downloads."""
    head = "".join(
        f'<th scope="col" aria-sort="none"><button type="button">{_header(title)}</button></th>'
        for title in table.columns
    )
    body = "".join(_row(row) for row in table.rows)
    notes = bullets(table.notes, "notes")
    kinds = (
        ("csv", "CSV", table.to_csv()),
        ("md", "Markdown", table.to_markdown()),
        ("tex", "LaTeX", table.to_latex()),
    )
    links = " ".join(_download(f"{name}.{ending}", label, text) for ending, label, text in kinds)
    box = f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(table.title)}">'
    caption = f"<caption>{escape(table.title)}</caption>"
    whole = f'{box}<table id="{name}">{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
    return f'<div class="table">{whole}{notes}<p class="downloads">Download: {links}</p></div>'


def panel_html(menus: Iterable[Menu], figures: Sequence[Figure]) -> str:
    """Figures side by side under the menus that they follow."""
    used = {name for figure in figures for part in (figure.one, figure.several, figure.minus) for name in part.values()}
    shown = [menu for menu in menus if menu.name in used and len(menu.options) > 1]
    controls = "".join(_tick_boxes(menu) if menu.several else _select(menu) for menu in shown)
    boxes = "".join(_figure(figure) for figure in figures)
    return f'<div class="panel"><div class="controls">{controls}</div><div class="charts">{boxes}</div></div>'


def bullets(texts: Iterable[str], kind: str) -> str:
    """A list; nothing where there is no text."""
    items = "".join(f"<li>{escape(text)}</li>" for text in texts)
    return f'<ul class="{kind}">{items}</ul>' if items else ""


def commands_html(commands: Iterable[str]) -> str:
    """Each command with a button that copies it."""
    button = '<button type="button" class="copy">Copy</button>'
    return '<ol class="commands">' + "".join(f"<li><code>{escape(c)}</code> {button}</li>" for c in commands) + "</ol>"


def samples_html(samples: Iterable[Sample]) -> str:
    """A grid of images; what was taken for something else is marked by sign and word."""
    return '<ul class="samples">' + "".join(_sample(sample) for sample in samples) + "</ul>"


def definitions_html(pairs: Iterable[tuple[str, str]]) -> str:
    """Words and what they mean."""
    return "<dl>" + "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in pairs) + "</dl>"


def _header(title: str) -> str:
    return escape(title).replace("severity 5", "severity&nbsp;5")  # not torn apart


def _row(cells: Sequence[str]) -> str:
    rest = "".join(f"<td>{_cell(cell)}</td>" for cell in cells[1:])
    return f'<tr><th scope="row">{escape(cells[0])}</th>{rest}</tr>'


def _cell(text: str) -> str:
    mean, sign, width = text.partition(PLUS_MINUS)
    return f'{escape(mean)}<span class="spread">{PLUS_MINUS}{escape(width)}</span>' if sign else escape(text)


def _download(file: str, label: str, text: str) -> str:
    return f'<a download="{escape(file)}" href="data:text/plain;charset=utf-8,{quote(text)}">{label}</a>'


def _select(menu: Menu) -> str:
    options = "".join(
        f'<option value="{i}"{" selected" if option in menu.first else ""}>{escape(option)}</option>'
        for i, option in enumerate(menu.options)
    )
    return f'<label>{escape(menu.label)} <select data-menu="{menu.name}">{options}</select></label>'


def _tick_boxes(menu: Menu) -> str:
    boxes = "".join(
        f'<label><input type="checkbox" value="{i}"{" checked" if name in menu.first else ""}> {escape(name)}</label>'
        for i, name in enumerate(menu.options)
    )
    summary = f"<summary>{escape(menu.label)} ({len(menu.first)} of {len(menu.options)})</summary>"
    return f'<details class="ticks" data-menu="{menu.name}">{summary}<div>{boxes}</div></details>'


def _figure(figure: Figure) -> str:
    chart = f'<div class="chart" id="{figure.name}"></div>'
    return f"<figure>{chart}<figcaption>{escape(figure.caption)}</figcaption></figure>"


def _sample(sample: Sample) -> str:
    right = sample.prediction == sample.label
    shown = sample.corruption.replace("_", " ") + (f" {sample.severity}" if sample.severity else "")
    alt = f"Test image {sample.index}, {shown}: {sample.label}"
    verdict = f"✓ {sample.prediction}" if right else f"✗ taken for {sample.prediction}"
    image = f'<img alt="{escape(alt)}" src="data:image/png;base64,{escape(sample.png)}">'
    words = f"<b>{escape(sample.label)}</b><span>{escape(verdict)}, {100 * sample.confidence:.0f} %</span>"
    return f'<li class="{"right" if right else "wrong"}">{image}{words}<small>{escape(shown)}</small></li>'


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
    scripts = {"vega": _safe_script(_bundle()), "script": _safe_script(_static("page.js"))}
    return Template(_static("page.html")).substitute(
        scripts,
        hashes=" ".join(f"'sha256-{_hash(script)}'" for script in scripts.values()),
        style=_static("page.css"),
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


def _static(name: str) -> str:
    return (resources.files("pdeplus.reports") / name).read_text("utf-8")


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


def write_files(book: Book, folder: Path) -> None:
    """Every table as Markdown, CSV and LaTeX, every figure as PNG, SVG and PDF, with what the page shows at first."""
    make_folder(folder)
    for chapter in book.chapters:
        for name, table in chapter.tables.items():
            texts = {"md": table.to_markdown(), "csv": table.to_csv(), "tex": table.to_latex()}
            for ending, text in texts.items():
                write_file(folder / f"{chapter.prefix}-{name}.{ending}", text.encode())
    menus = book.menus
    first = {menu.name: menu.first for menu in menus}
    for figure in book.figures:
        shown = [first[menu][0] for part in (figure.one, figure.minus) for menu in part.values()]
        title = {"text": figure.caption, "subtitle": " − ".join(shown)}
        write_figure(resolve(figure, menus) | {"title": title | TITLE}, folder, figure.name)
