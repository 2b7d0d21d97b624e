"""What figures consist of: Vega-Lite specs in plain dicts, how rows are chosen for them, their colours and files.

Text from records is only ever data in a spec, so that none of it is taken for markup or for an expression.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast, final

from .._lib.files import write_file
from .._lib.registry import require

Spec = dict[str, Any]
Row = dict[str, Any]
NAMES = "names"
"""Stands in a spec for the names that are shown, in their order: they fix colours, dashes and shapes."""
AT_FIRST = 8
"""Lines shown before more are asked for: as many as there are colours."""
CHOSEN = "chosen"
"""{CHOSEN: field} stands in a spec for what the field's menu has chosen."""
WIDTH = 460
"""Width of a figure in a file; in the page it is as wide as its box."""
SIZE: Spec = {"width": WIDTH, "height": 300}
"""What every spec begins with."""
LEGEND: Spec = {"columns": {CHOSEN: "columns"}, "title": None}
DASHES = [[1, 0], [6, 3], [2, 2], [9, 3, 2, 3]]
SHAPES = ["circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right"]
"""Shapes, one fewer than colours, so that more lines than these still differ."""


@final
@dataclass(frozen=True, kw_only=True)
class Figure:
    """A spec without its rows, all rows there are, and how the page's menus choose among them.

    Each of `one`, `several` and `minus` maps a field of the rows to the menu that chooses its value.
    """

    name: str
    caption: str
    spec: Spec
    rows: Sequence[Row]
    rows_of: str = ""
    """The figure that has the same rows, which the page then holds once."""
    one: Mapping[str, str] = field(default_factory=dict[str, str])
    """Menus: only rows with the chosen value are shown."""
    several: Mapping[str, str] = field(default_factory=dict[str, str])
    """Tick boxes: only rows with a ticked value are shown."""
    minus: Mapping[str, str] = field(default_factory=dict[str, str])
    """A second menu: its rows are subtracted."""


@final
@dataclass(frozen=True, kw_only=True)
class Menu:
    """What can be chosen; the first options at first."""

    name: str
    label: str
    options: Sequence[str]
    first: Sequence[str]
    """Chosen at first: one, or several where several can be."""
    several: bool = False


def lines_spec(
    x: Spec, title: str | Spec, *, band: bool, more_tooltips: Sequence[str] = (), detail: str = "", size: int = 45
) -> Spec:
    """A line with points for each series, told apart by colour, dash and shape."""
    encoding = series_encoding(x, title, more_tooltips=more_tooltips)
    if detail:
        encoding["detail"] = {"field": detail, "type": "nominal"}
        encoding["tooltip"].append({"field": detail, "type": "nominal"})
    line = {k: v for k, v in encoding.items() if k != "shape"} | {"strokeDash": _by_series(range=DASHES, legend=None)}
    layer = [{"mark": "line", "encoding": line}]
    layer.append({"mark": {"type": "point", "filled": True, "opacity": 1, "size": size}, "encoding": encoding})
    if band:
        ends = {"y": {"field": "low", "type": "quantitative", "title": title}, "y2": {"field": "high"}}
        area = {"x": x, "color": encoding["color"], **ends}
        layer.insert(0, {"mark": {"type": "area", "opacity": 0.15}, "encoding": area})
    # a legend of its own, which is not shown: dashes around the legend's symbols would spoil their shapes
    return SIZE | {"layer": layer, "resolve": {"legend": {"strokeDash": "independent"}}}


def series_encoding(x: Spec, title: str | Spec, *, more_tooltips: Sequence[str] = ()) -> Spec:
    """Colour and shape by series; x as given, y the field of that name."""
    tooltip = [{"field": "series", "type": "nominal"}, {k: v for k, v in x.items() if k in ("field", "type", "title")}]
    tooltip += [{"field": "y", "type": "quantitative", "title": title, "format": ".4~g"}]
    tooltip += [{"field": name, "type": "quantitative"} for name in more_tooltips]
    y = {"field": "y", "type": "quantitative", "title": title, "scale": {"zero": False}}
    return {"x": x, "y": y, "tooltip": tooltip, "color": _by_series(), "shape": _by_series(range=SHAPES)}


def _by_series(legend: Spec | None = LEGEND, **scale: Any) -> Spec:
    return {"field": "series", "type": "nominal", "scale": {"domain": NAMES} | scale, "legend": legend}


def cells_spec(corruptions: Sequence[str], colours: Spec, title: str, text_format: str | Spec) -> Spec:
    """A square for each corruption and severity with its number in it."""
    colour = {"field": "value", "type": "quantitative", "scale": colours, "legend": {"title": title}}
    names = [name.replace("_", " ") for name in corruptions]
    x = {"field": "severity", "type": "ordinal", "title": "severity", "axis": {"labelAngle": 0, "orient": "top"}}
    y = {"field": "corruption", "type": "nominal", "sort": names, "title": None}
    tooltip = [{"field": name, "type": "nominal"} for name in ("corruption", "severity")]
    tooltip.append({"field": "value", "type": "quantitative", "title": title, "format": ".2f"})
    dark = "luminance(scale('color', datum.value)) < 0.179"  # where white and black stand out alike
    shade = {"condition": {"test": dark, "value": "white"}, "value": "black"}
    text = {"field": "value", "type": "quantitative", "format": text_format}
    layer = [
        {"mark": "rect", "encoding": {"color": colour, "tooltip": tooltip}},
        {"mark": {"type": "text", "fontSize": 11}, "encoding": {"text": text, "color": shade, "tooltip": tooltip}},
    ]
    return SIZE | {"height": 22 * len(names), "encoding": {"x": x, "y": y}, "layer": layer}


def resolve(figure: Figure, menus: Sequence[Menu]) -> Spec:
    """The spec with the rows that are shown at first; page.js does the same for whatever is chosen."""
    first = {menu.name: list(menu.first) for menu in menus}
    fixed = {k: v for k, v in figure.one.items() if k not in figure.minus}
    rows = [row for row in figure.rows if all(row[k] in first[m] for k, m in [*fixed.items(), *figure.several.items()])]
    spec = figure.spec
    for key, menu in figure.minus.items():
        rows = _subtract(rows, key, first[figure.one[key]][0], first[menu][0])
        bound = max((abs(row["value"]) for row in rows), default=0) or 1
        spec = spec | {"params": [{"name": "bound", "value": bound}]}
    names = [name for menu in figure.several.values() for name in first[menu]]
    longest = max(map(len, names), default=1)
    fitting = {"columns": max(1, WIDTH // min(30 + 7 * longest, 250)), "sign_format": "+.1f"}
    picked = fitting | {key: first[menu][0] for key, menu in figure.one.items()}
    return _filled(spec, names, picked) | {"data": {"values": rows}}


def _subtract(rows: Sequence[Row], key: str, first: str, second: str) -> list[Row]:
    values = {(row[key], row["corruption"], row["severity"]): row["value"] for row in rows}
    pairs = [(row, values.get((second, row["corruption"], row["severity"]))) for row in rows if row[key] == first]
    return [row | {"value": round(row["value"] - other, 3)} for row, other in pairs if other is not None]


def _filled(node: Any, names: Sequence[str], picked: Mapping[str, Any]) -> Any:
    """A part of a spec with names and choices in place of what stands for them."""
    if isinstance(node, list):
        return [_filled(part, names, picked) for part in cast(list[Any], node)]
    if not isinstance(node, dict):
        return node
    parts = cast(Spec, node)
    if CHOSEN in parts:
        return picked[parts[CHOSEN]]
    return {k: list(names) if k == "domain" and v == NAMES else _filled(v, names, picked) for k, v in parts.items()}


def _theme(text: str, faint: str, colours: str) -> Spec:
    words = {"labelColor": text, "titleColor": text, "labelFontSize": 12, "titleFontSize": 12}
    words["titleFontWeight"] = "normal"
    symbols = {"symbolSize": 70, "symbolStrokeWidth": 2, "symbolOpacity": 1}
    gradient = {"gradientLength": 160, "gradientThickness": 10}
    return {
        "background": None,
        "font": "system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', 'DejaVu Sans', sans-serif",
        "view": {"stroke": None},
        "title": {"color": text, "subtitleColor": text},
        "axis": {**words, "gridColor": faint, "domainColor": faint, "tickColor": faint, "labelLimit": 150},
        "axisOrdinal": {"grid": False},
        "axisX": {"grid": False},
        "legend": {**words, "orient": "bottom", "labelLimit": 220, **gradient, **symbols},
        "line": {"strokeWidth": 2},
        "range": {"category": colours.split()},
    }


LIGHT = _theme("#20262e", "#d9dee4", "#0072B2 #D55E00 #009E73 #CC79A7 #E69F00 #56B4E9 #333333 #8A8A8A")
DARK = _theme("#e4e8ed", "#3a434e", "#56B4E9 #E69F00 #2BC598 #CC79A7 #F0E442 #F07F3C #F2F2F2 #9A9A9A")
TITLE = {"fontSize": 12, "anchor": "start"}


def write_figure(spec: Spec, folder: Path, name: str) -> None:
    """One figure as PNG, SVG and PDF, on white ground; `spec` holds its rows and its title. No display is needed."""
    (vl_convert,) = require("vl_convert", purpose="a figure as a file", extra="plots")
    svg = vl_convert.vegalite_to_svg(spec, config=LIGHT | {"background": "white"}, allowed_base_urls=[])
    write_file(folder / f"{name}.svg", svg.encode())
    write_file(folder / f"{name}.png", vl_convert.svg_to_png(svg, scale=2))
    write_file(folder / f"{name}.pdf", vl_convert.svg_to_pdf(svg))
