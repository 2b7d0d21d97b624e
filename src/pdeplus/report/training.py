"""The figures about training, from the runs' metrics."""

from collections.abc import Iterable, Sequence

from .inputs import Folder
from .specs import AT_FIRST, CHOSEN, Figure, Menu, Row, Spec, lines_spec

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
