"""The figures of a report: one small function for each about a group of series, and those about training.

Names of figures and menus here lack the prefix that tells chapters apart; `page` adds it.
"""

from collections.abc import Iterable, Sequence
from itertools import product

from ..corruptions.base import SEVERITIES
from ..evaluation.metrics import Estimate, pool
from ..evaluation.records import CLEAN
from ..evaluation.summary import CLEAN_TEST, severity_accuracies
from .content import COSTS
from .figures import AT_FIRST, CHOSEN, SIZE, Figure, Menu, Row, Spec, cells_spec, lines_spec, series_encoding
from .inputs import Folder, Group, Line
from .tables import spaced

ACCURACIES = {
    "corrupted": "Corrupted accuracy, %",
    "part": "Corrupted accuracy, %",
    "cbar": "Accuracy on C̄, %",
    "domains": "Accuracy on other domains, %",
    "adversarial": "Accuracy under attack, %",
    "clean": "Accuracy, %",
}
DOT = {"type": "point", "filled": True, "size": 110, "opacity": 1}
LEVEL = {"labelAngle": 0}
"""An axis whose labels are written from left to right."""
SHOWN_LINES = {"series": "lines"}
POINTS = 20_000
"""Most points of all training curves together: of more, only every second, third … epoch is shown."""
TICKS = {"expr": "max(1, min(domain('x')[1] - domain('x')[0], width / 50))"}
"""Ticks at whole epochs only."""
EPOCH: Spec = {"field": "x", "type": "quantitative", "title": "epoch", "axis": {"tickCount": TICKS, "format": "d"}}
ACCURACY, LOSS, SIGMA = "validation/accuracy", "loss/", "sigma/"


def figures_of(group: Group) -> list[Figure]:
    """Every figure that has something to show, in the order of the page."""
    corrupted = [heat_map, severity_lines, difference_map] if len(group.lines) > 1 else [heat_map, severity_lines]
    own = {"corruptions": corrupted, "cbar": corrupted, "domains": [domain_dots], "adversarial": [epsilon_lines]}
    drawn = [draw(group) for draw in own.get(group.suite, [])]
    drawn += [cost_scatter(group)] if len(group.lines) > 1 else []
    drawn += [reliability(group), passes(group, group.main_score), passes(group, "ece")]
    return [figure for figure in drawn if figure.rows]


def menus_of(group: Group) -> list[Menu]:
    """The menus that the group's figures name."""
    names = [line.name for line in group.lines]
    standard = [line.name for line in group.lines if line.baseline is line.series]
    first = next((line.name for line in group.honest if line.name not in standard), names[0])
    second = next((name for name in [*standard, *names] if name != first), first)
    others = [name for name in names if name not in standard[:1]]
    shown = [name for name in names if name in {*standard[:1], *others[: AT_FIRST - 1]}]
    images = list(dict.fromkeys((group.suite, CLEAN)))
    costs = [cost for cost, (_, get) in COSTS.items() if any(get(line.series.any) for line in group.lines)]
    labels = list(dict.fromkeys(_label(line) for line in group.several_passes))
    return [
        Menu(name="first", label="Series", options=names, first=[first]),
        Menu(name="second", label="compared with", options=names, first=[second]),
        Menu(name="lines", label="Series shown", options=names, first=shown, several=True),
        Menu(name="images", label="Images", options=images, first=[group.suite]),
        Menu(name="costs", label="Cost", options=costs, first=costs[1:2] or costs[:1]),
        Menu(name="passes", label="Series shown", options=labels, first=labels[:AT_FIRST], several=True),
    ]


def heat_map(group: Group) -> Figure:
    """Accuracy of one series under every corruption at every severity."""
    spec = cells_spec(group.corruptions, {"scheme": "viridis", "domain": [0, 100]}, "accuracy, %", ".0f")
    caption = "Accuracy under every corruption at every severity, per cent, mean over seeds."
    return Figure(name="heat", caption=caption, spec=spec, rows=_cell_rows(group), one={"series": "first"})


def difference_map(group: Group) -> Figure:
    """Accuracy of one series less another's, likewise."""
    colours = {"scheme": "blueorange", "reverse": True, "domain": [{"expr": "-bound"}, {"expr": "bound"}]}
    return Figure(
        name="difference",
        caption="Accuracy of the first series minus the second, in points; blue: the first is better.",
        spec=cells_spec(group.corruptions, colours, "points", {CHOSEN: "sign_format"})
        | {"params": [{"name": "bound", "value": 1}]},
        rows=_cell_rows(group),
        rows_of="heat",
        one={"series": "first"},
        minus={"series": "second"},
    )


def severity_lines(group: Group) -> Figure:
    """Accuracy against severity with 95 % bands."""
    rows = [
        {"series": line.name, "x": severity or CLEAN, **_with_band(value)}
        for line in group.lines
        for severity, value in severity_accuracies(line.series).items()
    ]
    x = {"field": "x", "type": "ordinal", "sort": [CLEAN, *SEVERITIES], "title": "severity", "axis": LEVEL}
    caption = f"Accuracy against severity, mean over {group.all_corruptions}; bands: 95 % intervals over seeds."
    spec = lines_spec(x, "accuracy, %", band=True)
    return Figure(name="severity", caption=caption, spec=spec, rows=rows, several=SHOWN_LINES)


def epsilon_lines(group: Group) -> Figure:
    """Accuracy against the size of the attack with 95 % bands; clean is size 0."""
    sizes = {CLEAN_TEST: "0"} | {(name, 0): name.rpartition(" ")[2] for name in group.attacks}
    rows = [
        {"series": line.name, "x": size, **_with_band(line.cells[cell])}
        for line in group.lines
        for cell, size in sizes.items()
        if cell in line.cells
    ]
    x = {"field": "x", "type": "ordinal", "sort": list(sizes.values()), "title": "epsilon", "axis": LEVEL}
    caption = "Accuracy against the size of the attack, 0 being clean; bands: 95 % intervals over seeds."
    spec = lines_spec(x, "accuracy, %", band=True)
    return Figure(name="epsilon", caption=caption, spec=spec, rows=rows, several=SHOWN_LINES)


def domain_dots(group: Group) -> Figure:
    """Accuracy on each domain."""
    rows = [
        {"series": line.name, "x": spaced(name), **_with_band(value)}
        for line in group.lines
        for (name, _), value in line.cells.items()
    ]
    x = {"field": "x", "type": "nominal", "sort": None, "title": "domain", "axis": LEVEL}
    spec = SIZE | {"mark": DOT, "encoding": series_encoding(x, "accuracy, %")}
    caption = "Accuracy on each domain; clean is the one trained on."
    return Figure(name="domains", caption=caption, spec=spec, rows=rows, several=SHOWN_LINES)


def reliability(group: Group) -> Figure:
    """Accuracy against confidence, of clean images or of all corrupted ones."""
    rows = list[Row]()
    for line, images in product(group.lines, dict.fromkeys((group.suite, CLEAN))):
        clean, series = images == CLEAN, line.series
        complete = [cells for seed, cells in series.seeds.items() if clean or seed not in series.gaps]
        bins = [r.bins for cells in complete for cell, r in cells.items() if (cell == CLEAN_TEST) == clean and r.bins]
        for b in pool(bins):
            if b.n:  # the mean confidence, how often it was right, of how many
                found = {"x": round(b.confidence / b.n, 4), "y": round(b.correct / b.n, 4), "n": b.n}
                rows.append({"series": line.name, "images": images, **found})
    share = {"scale": {"domain": [0, 1]}, "type": "quantitative", "axis": {"format": ".1f", "tickCount": 5}}
    spec = lines_spec({"field": "x", "title": "confidence"} | share, "accuracy", band=False, more_tooltips=["n"])
    for layer in spec["layer"]:
        layer["encoding"]["y"] = {"field": "y", "title": "accuracy"} | share
    diagonal = {
        "data": {"values": [{"x": 0, "y": 0}, {"x": 1, "y": 1}]},
        "mark": {"type": "line", "strokeDash": [4, 4], "color": "#888", "strokeWidth": 1},
        "encoding": {f: {"field": f, "type": "quantitative"} for f in "xy"},
    }
    spec["layer"].insert(0, diagonal)
    caption = "Reliability: on the diagonal confidence equals accuracy; below it the network is overconfident."
    one = {"images": "images"}
    return Figure(name="reliability", caption=caption, spec=spec, rows=rows, one=one, several=SHOWN_LINES)


def cost_scatter(group: Group) -> Figure:
    """Accuracy against what it cost."""
    rows = [
        {"series": line.name, "cost": cost, "x": value / unit, **_with_band(line.scores[group.main_score])}
        for line in group.lines
        if group.main_score in line.scores
        for cost, (unit, get) in COSTS.items()
        if (value := get(line.series.any))
    ]
    x = {"field": "x", "type": "quantitative", "scale": {"type": "log", "nice": False, "padding": 20}}
    x |= {"title": {CHOSEN: "cost"}, "axis": {"format": ",.3~r", "tickCount": 5}}
    spec = SIZE | {"mark": DOT, "encoding": series_encoding(x, ACCURACIES[group.main_score])}
    caption = "Accuracy against cost: further up is better, further left is cheaper (logarithmic)."
    return Figure(name="cost", caption=caption, spec=spec, rows=rows, one={"cost": "costs"}, several=SHOWN_LINES)


def passes(group: Group, score: str) -> Figure:
    """A score, the main one or ECE, against the noisy passes E."""
    title = "ECE, %" if score == "ece" else ACCURACIES[score]
    rows = [
        {"series": _label(line), "x": line.series.samples, **_with_band(line.scores[score])}
        for line in group.several_passes
        if score in line.scores
    ]
    x = {"field": "x", "type": "ordinal", "title": "noisy passes E", "axis": LEVEL}
    return Figure(
        name=f"passes-{score}",
        caption=f"{title.partition(',')[0]} against the noisy passes averaged; E = 0 is the network without noise.",
        spec=lines_spec(x, title, band=True),
        rows=rows,
        several={"series": "passes"},
    )


def _cell_rows(group: Group) -> list[Row]:
    return [
        {"series": line.name, "corruption": spaced(name), "severity": severity, "value": _percent(value.mean)}
        for line in group.lines
        for (name, severity), value in line.cells.items()
        if (name, severity) != CLEAN_TEST
    ]


def _with_band(value: Estimate) -> Row:
    """Mean and interval; one seed has a band of no width, which is not seen."""
    low, high = (value.mean if end is None else end for end in (value.low, value.high))
    return {"y": _percent(value.mean), "low": _percent(low), "high": _percent(high)}


def _percent(value: float) -> float:
    return round(100 * value, 3)


def _label(line: Line) -> str:
    """The line's name without its E, which is on the axis."""
    label = line.series.label
    return label + line.name[len(label) :].replace(f" E={line.series.samples}", "", 1)


def training_figures(folders: Sequence[Folder], order: Sequence[str]) -> tuple[list[Menu], list[Figure]]:
    """Validation accuracy, losses and the mean σ of each block, as far as the runs have them.

    Labels come in the given order, so that they have the same colours as elsewhere.
    """
    rows = _training_rows(folders)
    known = {row["series"] for row in rows}
    labels = [label for label in order if label in known] + sorted(known.difference(order))
    accuracies = [row | {"y": _percent(row["y"])} for row in rows if row["metric"] == ACCURACY]
    losses = [row for row in rows if row["metric"].startswith(LOSS)]
    sigmas = [row | {"series": row["metric"].removeprefix(SIGMA)} for row in rows if row["metric"].startswith(SIGMA)]
    kinds, runs, blocks = (
        list(dict.fromkeys(row[key] for row in some))
        for some, key in ((losses, "metric"), (sigmas, "run"), (sigmas, "series"))
    )
    menus = [
        Menu(name="t-series", label="Series shown", options=labels, first=labels[:AT_FIRST], several=True),
        Menu(name="t-losses", label="Loss", options=kinds, first=kinds[:1]),
        Menu(name="t-runs", label="Run", options=runs, first=runs[:1]),
        Menu(name="t-blocks", label="Blocks shown", options=blocks, first=blocks, several=True),
    ]
    figures = [
        Figure(
            name="t-accuracy",
            caption="Validation accuracy during training, a line for each run.",
            spec=lines_spec(EPOCH, "validation accuracy, %", band=False, detail="run", size=12),
            rows=accuracies,
            several={"series": "t-series"},
        ),
        Figure(
            name="t-loss",
            caption="A training loss, mean over each epoch, a line for each run.",
            spec=lines_spec(EPOCH, {CHOSEN: "metric"}, band=False, detail="run", size=12),
            rows=losses,
            one={"metric": "t-losses"},
            several={"series": "t-series"},
        ),
        Figure(
            name="t-sigma",
            caption="Mean σ of each diffusion block of one run.",
            spec=lines_spec(EPOCH, "mean σ", band=False, size=12),
            rows=sigmas,
            one={"run": "t-runs"},
            several={"series": "t-blocks"},
        ),
    ]
    return menus, [figure for figure in figures if figure.rows]


def _training_rows(folders: Iterable[Folder]) -> list[Row]:
    """A row for each epoch of each curve, thinned out where there are too many."""
    rows: list[Row] = [
        {"series": folder.label, "run": folder.title, "metric": name, "x": record["epoch"]}
        | {"y": float(f"{value:.5g}")}
        for folder in folders
        for record in folder.metrics
        if isinstance(record.get("epoch"), int)
        for name, value in record.items()
        if (name == ACCURACY or name.startswith((LOSS, SIGMA))) and isinstance(value, int | float)
    ]
    step = -(-len(rows) // POINTS)
    return rows if step < 2 else [row for row in rows if row["x"] % step == 1 or row["x"] == 1]
