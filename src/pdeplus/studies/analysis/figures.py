"""What the figures of an analysis share: lines over something, side by side in panels, and how they become files."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..._lib.files import make_folder, write_file
from ...reports.figures import LEGEND, NAMES, SHAPES, TITLE, Figure, Menu, Row, Spec, lines_spec, resolve, write_figure
from ...reports.tables import Table

TICKS = 5
"""At most so many are on an axis of epochs."""
SIZES = {1: (360, 240), 2: (260, 200), 3: (200, 160)}
"""Width and height of a panel where there are so many columns."""
SMALL = (170, 150)
"""The same where there are more columns."""
SPACING = 28
"""Between panels: room for a few letters."""
RED = "#C1121F"
DOTS = (380, 20)
"""Width of a figure of dots, and height of each of its lines."""


def lines_figure(name: str, caption: str, rows: Sequence[Row], x: Spec, y: str, *, band: bool = False) -> Figure:
    """A line for each series over x; rows have series, x and y, and low and high for a band."""
    spec = lines_spec(x, y, band=band, size=25)
    return Figure(name=name, caption=caption, spec=spec, rows=rows, several={"series": "series"})


def over_epochs(name: str, caption: str, rows: Sequence[Row], y: str) -> Figure:
    """A line for each series over training; rows have series, x for the epoch, and y. Ticks are at whole epochs."""
    last = max((row["x"] for row in rows), default=1)
    step = next(k * 10**n for n in range(10) for k in (1, 2, 5) if last <= TICKS * k * 10**n)
    x: Spec = {"field": "x", "type": "quantitative", "title": "epoch", "scale": {"nice": False, "zero": False}}
    ticks = {"values": list(range(step, last + 1, step)), "format": "d"}
    return lines_figure(name, caption, rows, x | {"axis": ticks}, y)


def faceted(figure: Figure, *, column: str, row: str = "", own_axis: bool = False) -> Figure:
    """The figure in panels: a column for each value of one field, a row for each of another, in the rows' order.

    With `own_axis` every panel has its own y axis, for quantities of different units.
    """
    width, height = SIZES.get(len(values(figure.rows, column)), SMALL)
    facet = {"column": _header(figure.rows, column, width)}
    if row:
        facet["row"] = _header(figure.rows, row, height)
    panel = figure.spec | {"width": width, "height": height}
    shared = {"resolve": {"scale": {"y": "independent"}}} if own_axis else {}
    return replace(figure, spec={"facet": facet, "spec": panel, "spacing": SPACING, **shared})


def line_at(value: float, text: str) -> Spec:
    """A layer: red dashes at a value of y, with words behind their right end."""
    rule = {"type": "rule", "color": RED, "strokeDash": [5, 4], "strokeWidth": 1.5}
    words = {"type": "text", "text": text, "color": RED, "align": "left", "dx": 4, "fontSize": 11}
    ends = {"y": {"datum": value}, "x": {"value": "width"}}
    layer = [{"mark": rule, "encoding": {"y": ends["y"]}}, {"mark": words, "encoding": ends}]
    return {"data": {"values": [{}]}, "layer": layer}  # its own row, or it would be drawn once for each of the others


def dots_figure(name: str, caption: str, rows: Sequence[Row], title: str, *, zero: bool = False) -> Figure:
    """A dot and a bar for each row, which has row, series, x, low and high; lines stand in the order of the rows.

    `title` says what the axis shows; `zero` draws a red line at 0, for differences.
    """
    lines = values(rows, "row")
    axis = {"labelLimit": 260, "grid": True}
    y: Spec = {"field": "row", "type": "nominal", "sort": lines, "title": None, "axis": axis}
    series: Spec = {"field": "series", "type": "nominal", "scale": {"domain": NAMES}, "legend": LEGEND}
    shape = series | {"scale": {"domain": NAMES, "range": SHAPES}}
    x: Spec = {"type": "quantitative", "title": title, "scale": {"zero": False}}
    ends = {"x": x | {"field": "low"}, "x2": {"field": "high"}, "y": y, "color": series}
    dots = {"x": x | {"field": "x"}, "y": y, "color": series, "shape": shape}
    layer: list[Spec] = [
        {"mark": {"type": "rule", "strokeWidth": 2, "opacity": 0.5}, "encoding": ends},
        {"mark": {"type": "point", "filled": True, "opacity": 1, "size": 55}, "encoding": dots},
    ]
    if zero:
        rule = {"mark": {"type": "rule", "color": RED, "strokeDash": [5, 4]}, "encoding": {"x": {"datum": 0}}}
        layer.append({"data": {"values": [{}]}, **rule})
    spec: Spec = {"width": DOTS[0], "height": DOTS[1] * len(lines), "layer": layer}
    return Figure(name=name, caption=caption, spec=spec, rows=rows, several={"series": "series"})


def as_spec(figure: Figure) -> Spec:
    """The whole Vega-Lite spec, with every series, its rows and its caption as the title, further lines below it."""
    menus = list[Menu]()
    for field, menu in figure.several.items():
        found = [str(value) for value in values(figure.rows, field)]
        menus.append(Menu(name=menu, label=field, options=found, first=found, several=True))
    first, *more = figure.caption.split("\n")
    return resolve(figure, menus) | {"title": {"text": first, "subtitle": more, "offset": 14} | TITLE}


def save_figure(figure: Figure, folder: Path) -> None:
    """The figure as PNG, SVG and PDF under its own name."""
    make_folder(folder)
    write_figure(as_spec(figure), folder, figure.name)


def save_rows(rows: Sequence[Row], folder: Path, name: str) -> None:
    """The rows as CSV; a value that a row lacks stays empty."""
    make_folder(folder)
    columns = tuple(dict.fromkeys(key for row in rows for key in row))
    cells = tuple(tuple(_text(row.get(column)) for column in columns) for row in rows)
    write_file(folder / f"{name}.csv", Table(name, columns, cells).to_csv().encode())


def values(rows: Iterable[Row], field: str) -> list[Any]:
    """Those that occur, in the order of the rows."""
    return list(dict.fromkeys(row[field] for row in rows))


def _header(rows: Sequence[Row], field: str, length: int) -> Spec:
    """Words no longer than the panel they stand at, with room for a line between them and it."""
    looks = {"labelFontSize": 12, "labelPadding": 14, "labelLimit": length + SPACING // 2}
    return {"field": field, "type": "nominal", "title": None, "sort": values(rows, field), "header": looks}


def _text(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)
