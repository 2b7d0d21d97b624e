"""Tables, charts and text as HTML; every word from outside is escaped here."""

import json
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any
from urllib.parse import quote

from .inputs import Sample
from .specs import Figure, Menu
from .tables import PLUS_MINUS, Table

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
