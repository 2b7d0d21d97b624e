"""The figures about a group of series: one small function each."""

from collections.abc import Iterable, Sequence

from ..evaluation.metrics import Estimate, pool
from ..evaluation.records import CLEAN
from ..evaluation.summary import CLEAN_TEST, severity_accuracies
from .content import COSTS, several_passes
from .figures import AT_FIRST, CHOSEN, Figure, Menu, Row, Spec, base, cells_spec, lines_spec, series_encoding
from .inputs import Folder, Group, Line

ACCURACIES = {
    "corrupted": "Corrupted accuracy, %",
    "domains": "Accuracy on foreign domains, %",
    "adversarial": "Accuracy under attack, %",
    "clean": "Accuracy, %",
}
DOT = {"type": "point", "filled": True, "size": 110, "opacity": 1}


def heat_map(group: Group, prefix: str) -> Figure:
    """Accuracy of one series in every cell."""
    colour = {"field": "value", "type": "quantitative", "scale": {"scheme": "viridis", "domain": [0, 100]}}
    spec = cells_spec(colour | {"legend": {"title": "accuracy, %"}}, ".0f")
    caption = "Accuracy in every cell, per cent, mean over seeds."
    return Figure(
        name=f"{prefix}-heat", caption=caption, spec=spec, rows=_cell_rows(group), one={"series": f"{prefix}-first"}
    )


def difference_map(group: Group, prefix: str) -> Figure:
    """Accuracy of one series less another's in every cell."""
    scale = {"scheme": "blueorange", "reverse": True, "domain": [{"expr": "-bound"}, {"expr": "bound"}]}
    colour = {"field": "value", "type": "quantitative", "scale": scale, "legend": {"title": "points"}}
    spec = cells_spec(colour, {CHOSEN: "sign_format"}) | {"params": [{"name": "bound", "value": 1}]}
    return Figure(
        name=f"{prefix}-difference",
        caption="The first series less the second, points of accuracy; blue: the first is better.",
        spec=spec,
        rows=_cell_rows(group),
        rows_of=f"{prefix}-heat",
        one={"series": f"{prefix}-first"},
        minus={"series": f"{prefix}-second"},
    )


def severity_lines(group: Group, prefix: str) -> Figure:
    """Accuracy against severity with 95 % bands."""
    rows = [
        {"series": line.name, "x": severity or CLEAN, **_with_band(value, 100)}
        for line in group.lines
        for severity, value in severity_accuracies(line.series).items()
    ]
    x = {
        "field": "x",
        "type": "ordinal",
        "sort": [CLEAN, 1, 2, 3, 4, 5],
        "title": "severity",
        "axis": {"labelAngle": 0},
    }
    caption = "Accuracy against severity, mean over the fifteen corruptions; bands: 95 % intervals over seeds."
    spec = lines_spec(x, "accuracy, %", band=True)
    return Figure(
        name=f"{prefix}-severity", caption=caption, spec=spec, rows=rows, several={"series": f"{prefix}-lines"}
    )


def reliability(group: Group, prefix: str) -> Figure:
    """Accuracy against confidence, of clean images or of all corrupted ones."""
    rows = [
        {"series": line.name, "images": images, **row}
        for line in group.lines
        for images in dict.fromkeys((group.suite, CLEAN))
        for row in _bin_rows(line, clean=images == CLEAN)
    ]
    share = {"scale": {"domain": [0, 1]}, "type": "quantitative", "axis": {"format": ".1f", "tickCount": 5}}
    x = {"field": "x", "title": "confidence"} | share
    spec = lines_spec(x, "accuracy", band=False, more_tooltips=["n"])
    for layer in spec["layer"]:
        layer["encoding"]["y"] = {"field": "y", "title": "accuracy"} | share
    ends = {f: {"field": f, "type": "quantitative"} for f in "xy"}
    diagonal = {
        "data": {"values": [{"x": 0, "y": 0}, {"x": 1, "y": 1}]},
        "mark": {"type": "line", "strokeDash": [4, 4], "color": "#888", "strokeWidth": 1},
        "encoding": ends,
    }
    spec["layer"].insert(0, diagonal)
    return Figure(
        name=f"{prefix}-reliability",
        caption="Reliability: on the diagonal confidence is right, below it the network is too sure.",
        spec=spec,
        rows=rows,
        one={"images": f"{prefix}-images"},
        several={"series": f"{prefix}-lines"},
    )


def cost_scatter(group: Group, prefix: str) -> Figure:
    """Accuracy against what it cost."""
    rows = list[Row]()
    for line in group.lines:
        for cost, (unit, get) in COSTS.items():
            value = get(line.series.any)
            if value and group.main_score in line.scores:
                y = _with_band(line.scores[group.main_score], 100)
                rows.append({"series": line.name, "cost": cost, "x": value / unit, **y})
    x = {
        "field": "x",
        "type": "quantitative",
        "scale": {"type": "log", "nice": False, "padding": 20},
        "title": {CHOSEN: "cost"},
    }
    x["axis"] = {"format": ".3~g", "tickCount": 5}
    encoding = series_encoding(x, ACCURACIES[group.main_score])
    spec = base() | {"mark": DOT, "encoding": encoding}
    return Figure(
        name=f"{prefix}-cost",
        caption="Accuracy against cost: further up is better, further left is cheaper (logarithmic).",
        spec=spec,
        rows=rows,
        one={"cost": f"{prefix}-costs"},
        several={"series": f"{prefix}-lines"},
    )


def passes(group: Group, prefix: str, score: str) -> Figure:
    """Corrupted accuracy, or ECE, against the noisy passes E."""
    title = "ECE, %" if score == "ece" else ACCURACIES[score]
    rows = [
        {"series": _label(line), "x": line.series.samples, **_with_band(line.scores[score], 100)}
        for line in several_passes(group)
        if score in line.scores
    ]
    x = {"field": "x", "type": "ordinal", "title": "noisy passes E", "axis": {"labelAngle": 0}}
    return Figure(
        name=f"{prefix}-passes-{score.replace('_', '-')}",
        caption=f"{title.partition(',')[0]} against the noisy passes averaged; E = 0 is the network without noise.",
        spec=lines_spec(x, title, band=True),
        rows=rows,
        several={"series": f"{prefix}-passes"},
    )


def domain_dots(group: Group, prefix: str) -> Figure:
    """Accuracy on each domain."""
    rows = [
        {"series": line.name, "x": name.replace("_", " "), **_with_band(value, 100)}
        for line in group.lines
        for (name, _), value in line.cells.items()
    ]
    x = {"field": "x", "type": "nominal", "sort": None, "title": "domain", "axis": {"labelAngle": 0}}
    spec = base() | {"mark": DOT}
    spec["encoding"] = series_encoding(x, "accuracy, %")
    caption = "Accuracy on each domain; clean is the one trained on."
    return Figure(
        name=f"{prefix}-domains", caption=caption, spec=spec, rows=rows, several={"series": f"{prefix}-lines"}
    )


def epsilon_lines(group: Group, prefix: str) -> Figure:
    """Accuracy against the size of the attack with 95 % bands; clean is size 0."""
    names = {(name, 0): name.rpartition(" ")[2] for name in group.attacks}
    rows = [
        {"series": line.name, "x": size, **_with_band(line.cells[cell], 100)}
        for line in group.lines
        for cell, size in {CLEAN_TEST: "0", **names}.items()
        if cell in line.cells
    ]
    order = ["0", *names.values()]
    x = {"field": "x", "type": "ordinal", "sort": order, "title": "epsilon", "axis": {"labelAngle": 0}}
    caption = "Accuracy against the size of the attack, 0 being clean; bands: 95 % intervals over seeds."
    spec = lines_spec(x, "accuracy, %", band=True)
    return Figure(
        name=f"{prefix}-epsilon", caption=caption, spec=spec, rows=rows, several={"series": f"{prefix}-lines"}
    )


def menus_of(group: Group, prefix: str) -> list[Menu]:
    """The menus that the group's figures name."""
    names = [line.name for line in group.lines]
    standard = [line.name for line in group.lines if line.baseline is line.series]
    honest = [line.name for line in group.honest]
    first = next((name for name in honest if name not in standard), names[0])
    second = next((name for name in [*standard, *names] if name != first), first)
    shown = [
        name for name in names if name in {*standard[:1], *[n for n in names if n not in standard[:1]][: AT_FIRST - 1]}
    ]
    costs = [cost for cost, (_, get) in COSTS.items() if any(get(line.series.any) for line in group.lines)]
    labels = list(dict.fromkeys(_label(line) for line in several_passes(group)))
    return [
        Menu(name=f"{prefix}-first", label="Series", options=names, first=[first]),
        Menu(name=f"{prefix}-second", label="compared with", options=names, first=[second]),
        Menu(name=f"{prefix}-lines", label="Series shown", options=names, first=shown, several=True),
        Menu(
            name=f"{prefix}-images",
            label="Images",
            options=list(dict.fromkeys((group.suite, CLEAN))),
            first=[group.suite],
        ),
        Menu(name=f"{prefix}-costs", label="Cost", options=costs, first=costs[1:2] or costs[:1]),
        Menu(name=f"{prefix}-passes", label="Series shown", options=labels, first=labels[:AT_FIRST], several=True),
    ]


def _cell_rows(group: Group) -> list[Row]:
    return [
        {"series": line.name, "corruption": name.replace("_", " "), "severity": severity, "value": _round(value, 100)}
        for line in group.lines
        for (name, severity), value in line.cells.items()
        if (name, severity) != CLEAN_TEST
    ]


def _bin_rows(line: Line, *, clean: bool) -> list[Row]:
    """Of each confidence that occurs: its mean, how often it was right, of how many."""
    complete = [cells for seed, cells in line.series.seeds.items() if clean or seed not in line.series.gaps]
    bins = [r.bins for cells in complete for cell, r in cells.items() if (cell == CLEAN_TEST) == clean and r.bins]
    shown = [b for b in pool(bins) if b.n]
    return [{"x": round(b.confidence / b.n, 4), "y": round(b.correct / b.n, 4), "n": b.n} for b in shown]


def _with_band(value: Estimate, factor: float) -> Row:
    """Mean and interval; one seed has a band of no width, which is not seen."""
    low, high = (value.mean if end is None else end for end in (value.low, value.high))
    return {"y": _round(value, factor), "low": round(factor * low, 3), "high": round(factor * high, 3)}


def _round(value: Estimate, factor: float) -> float:
    return round(factor * value.mean, 3)


def _label(line: Line) -> str:
    """The line's name without its E, which is on the axis."""
    label = line.series.label
    return label + line.name[len(label) :].replace(f" E={line.series.samples}", "", 1)


POINTS = 20_000
"""Of all curves together: with more, only every second, third … epoch is shown."""
TICKS = {"expr": "max(1, min(domain('x')[1] - domain('x')[0], width / 50))"}
"""At whole epochs only."""
EPOCH: Spec = {"field": "x", "type": "quantitative", "title": "epoch", "axis": {"tickCount": TICKS, "format": "d"}}
ACCURACY, LOSS, SIGMA = "validation/accuracy", "loss/", "sigma/"


def training_figures(folders: Sequence[Folder], order: Sequence[str]) -> tuple[list[Menu], list[Figure]]:
    """Validation accuracy, losses and the mean σ of each block, as far as the runs have them.

    Labels come in the given order, so that they have the same colours as elsewhere.
    """
    rows = _thinned(_rows(folders))
    known = {row["series"] for row in rows}
    labels = [label for label in order if label in known] + sorted(known.difference(order))
    losses = list(dict.fromkeys(row["metric"] for row in rows if row["metric"].startswith(LOSS)))
    noisy = list(dict.fromkeys(row["run"] for row in rows if row["metric"].startswith(SIGMA)))
    blocks = list(dict.fromkeys(row["metric"] for row in rows if row["metric"].startswith(SIGMA)))
    menus = [
        Menu(name="t-series", label="Series shown", options=labels, first=labels[:AT_FIRST], several=True),
        Menu(name="t-losses", label="Loss", options=losses, first=losses[:1]),
        Menu(name="t-runs", label="Run", options=noisy, first=noisy[:1]),
        Menu(
            name="t-blocks",
            label="Blocks shown",
            options=[_block(b) for b in blocks],
            first=list(map(_block, blocks)),
            several=True,
        ),
    ]
    made = [_accuracy(rows), _losses(rows), _sigmas(rows)]
    return menus, [figure for figure in made if figure.rows]


def _accuracy(rows: Sequence[Row]) -> Figure:
    spec = lines_spec(EPOCH, "validation accuracy, %", band=False, detail="run", size=12)
    chosen = [row | {"y": round(100 * row["y"], 3)} for row in rows if row["metric"] == ACCURACY]
    caption = "Validation accuracy during training, a line for each run."
    return Figure(name="t-accuracy", caption=caption, spec=spec, rows=chosen, several={"series": "t-series"})


def _losses(rows: Sequence[Row]) -> Figure:
    return Figure(
        name="t-loss",
        caption="A training loss, mean over each epoch, a line for each run.",
        spec=lines_spec(EPOCH, {CHOSEN: "metric"}, band=False, detail="run", size=12),
        rows=[row for row in rows if row["metric"].startswith(LOSS)],
        one={"metric": "t-losses"},
        several={"series": "t-series"},
    )


def _sigmas(rows: Sequence[Row]) -> Figure:
    chosen = [row for row in rows if row["metric"].startswith(SIGMA)]
    return Figure(
        name="t-sigma",
        caption="Mean σ of each diffusion block of one run.",
        spec=lines_spec(EPOCH, "mean σ", band=False, size=12),
        rows=[row | {"series": _block(row["metric"])} for row in chosen],
        one={"run": "t-runs"},
        several={"series": "t-blocks"},
    )


def _rows(folders: Iterable[Folder]) -> list[Row]:
    return [
        {"series": folder.label, "run": f"{folder.label} seed {folder.seed} ({folder.name})", "metric": name}
        | {"x": record["epoch"], "y": float(f"{value:.5g}")}
        for folder in folders
        for record in folder.metrics
        if isinstance(record.get("epoch"), int)
        for name, value in record.items()
        if (name == ACCURACY or name.startswith((LOSS, SIGMA))) and isinstance(value, int | float)
    ]


def _thinned(rows: list[Row]) -> list[Row]:
    step = -(-len(rows) // POINTS)
    return rows if step < 2 else [row for row in rows if row["x"] % step == 1 or row["x"] == 1]


def _block(metric: str) -> str:
    return metric.removeprefix(SIGMA)
