"""Time to accuracy: what each method reaches, clean and under corruptions, for how many FLOPs and core-minutes."""

from collections.abc import Sequence

from ...reports.figures import Figure, Row, Spec
from ...reports.tables import MISSING, percent
from ..study import Line, Outcome, Study, lines_of

PUBLISHED: Sequence[tuple[str, float, float | None, float | None]] = (
    ("airbench93", 0.18, 93.0, None),
    ("airbench94, Muon", 0.29, 94.0, None),
    ("airbench95", 1.4, 95.0, None),
    ("airbench96", 3.1, 96.0, None),
    ("ERM, ResNet-18", 33.3, 95.35, 74.63),
    ("AugMix, ResNet-18", 33.3, None, 86.24),  # clean it is a tenth of a point below ERM
    ("PDE+, authors' code", 242.0, 95.59, 89.11),
)
"""Published results on CIFAR-10: name, PFLOP of training (the last three: our count of the authors' recipes), clean and
corrupted accuracy. Those of airbench average over shifted and mirrored test images."""
NOTES = (
    "per cent, ± half the 95 % interval over seeds; corrupted: mean over fifteen corruptions and five severities",
    "PFLOP: of matrix products and convolutions in training; core-minutes: CPU time of training, tests not counted",
)
SCORES = {"clean": "clean", "corrupted": "corrupted", "severe": "severity 5"}
PANELS = {"PFLOP": "PFLOP of training", "minutes": "core-minutes of training"}


def time_to_accuracy(study: Study) -> Outcome:
    """A table of every row at every place with its cost, and accuracy against both costs, published results beside."""
    cells, points, shown = list[Sequence[str]](), list[Row](), study.columns(SCORES)
    for place in study.places:
        for line in lines_of(study.at(place)):
            costs = {"PFLOP": _cost(line, "train_flops", 1e15), "minutes": _cost(line, "train_core_seconds", 60)}
            epochs, seeds = str(line.cell.config.train.epochs), str(len(line.series.seeds))
            spent = [MISSING if cost is None else f"{cost:.3g}" for cost in costs.values()]
            scores = [percent(line.scores.get(score)) for score in shown]
            cells.append([line.name, epochs, *spent, *scores, seeds])
            for name in ("clean", "corrupted"):
                if name in line.scores:
                    points.append({"method": line.name, "score": name, "y": 100 * line.scores[name].mean, **costs})
    columns = ("method", "epochs", "PFLOP", "core-minutes", *shown.values(), "seeds")
    scored = {point["score"] for point in points}
    points += [
        {"method": name, "score": score, "y": value, "PFLOP": pflop, "minutes": None, "published": True}
        for name, pflop, *values in PUBLISHED
        for score, value in zip(("clean", "corrupted"), values, strict=True)
        if value is not None and score in scored
    ]
    figure = _figure(study, points)
    return Outcome(tables=[study.table(columns, cells, *NOTES)], figures=[figure], rows={figure.name: points})


def _cost(line: Line, name: str, unit: float) -> float | None:
    """The mean over the seeds."""
    values = [getattr(next(iter(tests.values())), name) for tests in line.series.seeds.values()]
    return sum(values) / len(values) / unit if None not in values else None


def _figure(study: Study, points: Sequence[Row]) -> Figure:
    """A panel for each cost; lines join the lengths of a method, grey points are published results."""
    names = list(dict.fromkeys(point["method"] for point in points if "published" not in point))
    panels = list[Spec]()
    for field, title in PANELS.items():
        x = {"field": field, "type": "quantitative", "title": title, "scale": {"type": "log", "nice": False}}
        y = {"field": "y", "type": "quantitative", "title": "accuracy, %", "scale": {"zero": False}}
        colour = {"field": "method", "type": "nominal", "scale": {"domain": names}, "legend": {"title": None}}
        dash = {"field": "score", "type": "nominal", "legend": {"title": None}, "sort": ["clean", "corrupted"]}
        ours, others = "!datum.published", "datum.published"
        shape = {"field": "score", "type": "nominal", "legend": None, "sort": ["clean", "corrupted"]}
        known = [{"filter": f"isValid(datum.{field})"}]
        words = {"type": "text", "align": "right", "dx": -7, "fontSize": 9, "color": "#666"}
        layer: list[Spec] = [
            {
                "transform": [*known, {"filter": ours}],
                "mark": {"type": "line", "point": {"filled": True, "size": 45}},
                "encoding": {"x": x, "y": y, "color": colour, "strokeDash": dash},
            },
            {
                "transform": [*known, {"filter": others}],
                "mark": {"type": "point", "color": "#666", "filled": True, "size": 40},
                "encoding": {"x": x, "y": y, "shape": shape},
            },
            {
                "transform": [*known, {"filter": others}],
                "mark": words,
                "encoding": {"x": x, "y": y, "text": {"field": "method", "type": "nominal"}},
            },
        ]
        panels.append({"width": 520 if field == "PFLOP" else 260, "height": 320, "layer": layer})
    spec: Spec = {"hconcat": panels, "resolve": {"scale": {"y": "shared"}}}
    caption = study.caption("grey: published, on all test images; airbench with test-time augmentation")
    return Figure(name=study.experiment.name, caption=caption, spec=spec, rows=points)
