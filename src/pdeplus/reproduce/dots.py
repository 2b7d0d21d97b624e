"""Figures with a line for each row of a table: its scores as dots with their intervals."""

from collections.abc import Sequence

from ..analysis.figures import RED
from ..report.specs import LEGEND, NAMES, SHAPES, Figure, Row, Spec

HEIGHT = 20
"""Of a line, in pixels."""
WIDTH = 380


def dots_figure(name: str, caption: str, rows: Sequence[Row], title: str, *, zero: bool = False) -> Figure:
    """Rows have row, series, x, low and high; lines stand in the order of the rows.

    Args:
        name: of the files.
        caption: lines of the title.
        rows: the dots.
        title: of the axis.
        zero: a red line at 0, for differences.
    """
    lines = list(dict.fromkeys(row["row"] for row in rows))
    y: Spec = {
        "field": "row",
        "type": "nominal",
        "sort": lines,
        "title": None,
        "axis": {"labelLimit": 260, "grid": True},
    }
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
    spec: Spec = {"width": WIDTH, "height": HEIGHT * len(lines), "layer": layer}
    return Figure(name=name, caption=caption, spec=spec, rows=rows, several={"series": "series"})
