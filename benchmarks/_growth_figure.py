"""The figure of how cost grows: a panel for each axis, times above memory, on logarithmic scales."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, cast, final

from pdeplus.reports.figures import Figure, Row, Spec
from pdeplus.studies.analysis.figures import faceted, lines_figure

from ._fits import exponent

Quantity = Literal["seconds", "mebibytes"]
WORDS: dict[Quantity, str] = {"seconds": "time, s", "mebibytes": "memory, MiB"}
BLOCKS = "ADD blocks"
"""The axis along which cost grows on a line, not with a power."""
TICKS = [2**k for k in range(9)]


@final
@dataclass(frozen=True, kw_only=True)
class Point:
    """What one value of an axis costs."""

    axis: str
    series: str
    value: int
    seconds: float | None = None
    mebibytes: float | None = None

    def cost(self, quantity: Quantity) -> float | None:
        """One of the two."""
        return self.seconds if quantity == "seconds" else self.mebibytes


def known(points: Sequence[Point], quantity: Quantity) -> tuple[list[float], list[float]]:
    """Values and costs of the points whose cost is known."""
    pairs = [(float(p.value), cost) for p in points if (cost := p.cost(quantity)) is not None]
    return [x for x, _ in pairs], [y for _, y in pairs]


def growth_figure(points: Sequence[Point], about: str) -> Figure:
    """A line for each series with its fitted exponent; points that are not known, or lie at 0, are left out."""
    rows = list[Row]()
    for quantity, words in WORDS.items():
        for axis, series in dict.fromkeys((p.axis, p.series) for p in points):
            some = [p for p in points if (p.axis, p.series) == (axis, series) and p.value > 0]
            rows += _rows(some, quantity, {"axis": axis, "quantity": words, "series": series})
    caption = f"How cost grows, with fitted exponents\none thing varied at a time, from {about}"
    scale, ticks = {"type": "log", "nice": False}, {"values": TICKS, "format": "d"}
    x: Spec = {"field": "x", "type": "quantitative", "title": None, "scale": scale, "axis": ticks}
    figure = lines_figure("growth", caption, rows, x, "")
    panels = faceted(replace(figure, spec=_with_exponents(figure.spec)), column="axis", row="quantity")
    return replace(panels, spec=panels.spec | {"resolve": {"scale": {"x": "independent", "y": "independent"}}})


def _rows(points: Sequence[Point], quantity: Quantity, about: Row) -> list[Row]:
    """Of one line; its last row has the exponent."""
    x, y = known(points, quantity)
    rows = [about | {"x": int(a), "y": b, "exponent": ""} for a, b in zip(x, y, strict=True)]
    if len(rows) > 1 and about["axis"] != BLOCKS:
        rows[-1]["exponent"] = f"{round(exponent(x, y), 2) + 0:.2f}".replace("-", "−")
    return rows


def _with_exponents(spec: Spec) -> Spec:
    """With a logarithmic y in every layer, and one more layer of words at the lines' ends."""
    layers = [_with_log_y(layer) for layer in cast(list[Spec], spec["layer"])]
    words: dict[str, Any] = {k: v for k, v in layers[0]["encoding"].items() if k in ("x", "y", "color")}
    mark = {"type": "text", "align": "left", "dx": 6, "fontSize": 11}
    layers.append({"mark": mark, "encoding": words | {"text": {"field": "exponent", "type": "nominal"}}})
    return spec | {"layer": layers}


def _with_log_y(layer: Spec) -> Spec:
    y = layer["encoding"]["y"] | {"scale": {"type": "log"}, "title": None, "axis": {"tickCount": 3}}
    return layer | {"encoding": layer["encoding"] | {"y": y}}
