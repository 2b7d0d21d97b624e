"""Outcomes whose main thing is a figure: Figures 1 and 2 and the unnumbered ones, each with a table of its numbers."""

import io
from collections.abc import Sequence

from ..._lib.registry import build
from ...corruptions.suite import CORRUPTIONS
from ...evaluation.metrics import Estimate
from ...evaluation.summary import accuracies_by_test, corruption_accuracies, severity_accuracies
from ...reports.figures import Figure, Row
from ...reports.tables import MISSING, Table, percent, spaced
from ..analysis.coverage import coverage_figure, coverage_over_training
from ..analysis.figures import RED
from ..analysis.summary import curve_rows, curves_figure, scale_figure, scale_rows, severity_figure, severity_rows
from ..study import Outcome, Study, first_records, paper_rows, series_by_label

GREY = "#9AA5B1"


def distributions(study: Study) -> Outcome:
    """Figure 1 and its sequel: bars of each network on each test distribution, the highest of which is red."""
    names: list[str] = list(study.options["augmentations"])
    rows, bars = list[tuple[str, ...]](), list[Row]()
    for label, group in series_by_label(study.done).items():
        found = {name: value for (name, _), value in accuracies_by_test(group[0]).items()}
        rows.append((label, *(percent(found.get(name), 1) for name in ("clean", *names))))
        bars += [{"trained": label, "test": spaced(name), **_shown(found[name], 3)} for name in names if name in found]
    _mark_best(bars, "test")
    note = "accuracy in per cent on test images under each augmentation; the paper gives its bars without numbers"
    table = study.table(("trained on", "clean", *map(spaced, names)), rows, note)
    order = list(dict.fromkeys(bar["trained"] for bar in bars))
    tests = list(dict.fromkeys(bar["test"] for bar in bars))
    x = {"field": "trained", "type": "nominal", "sort": order, "title": "trained with", "axis": {"labelAngle": -45}}
    y = {"field": "accuracy", "type": "quantitative", "title": "accuracy, %"}
    colour = {"condition": {"test": "datum.best", "value": RED}, "value": GREY}
    number = {"field": "shown", "type": "nominal"}
    layer = [
        {"mark": "bar", "encoding": {"color": colour}},
        {"mark": {"type": "text", "dy": -5, "fontSize": 9}, "encoding": {"text": number}},
    ]
    panel = {"width": 24 * len(order), "height": 170, "encoding": {"x": x, "y": y}, "layer": layer}
    facet = {"column": {"field": "test", "type": "nominal", "sort": tests, "title": "tested on"}}
    name, caption = study.experiment.name, study.caption("red: the best of each")
    figure = Figure(name=name, caption=caption, spec={"facet": facet, "spec": panel}, rows=bars)
    return Outcome(tables=[table], figures=[figure], rows={name: bars})


def heat(study: Study) -> Outcome:
    """Fixed against adaptive diffusion: a heat map of accuracy under each corruption, of which the best has a frame."""
    found = {label: corruption_accuracies(group[0]) for label, group in series_by_label(study.done).items()}
    rows = [(spaced(name), *(percent(each.get(name), 1) for each in found.values())) for name in CORRUPTIONS]
    squares: list[Row] = [
        {"corruption": spaced(name), "network": label, **_shown(each[name], 2)}
        for label, each in found.items()
        for name in CORRUPTIONS
        if name in each
    ]
    _mark_best(squares, "corruption")
    note = "accuracy in per cent, mean over five severities; the paper gives this as a figure without numbers"
    table = study.table(("corruption", *found), rows, note)
    names = [spaced(name) for name in CORRUPTIONS]
    axis = {"labelAngle": 0, "orient": "top", "labelLimit": 120}
    x = {"field": "network", "type": "nominal", "sort": list(found), "title": "scale of the diffusion", "axis": axis}
    y = {"field": "corruption", "type": "nominal", "sort": names, "title": None}
    looks = {"scale": {"scheme": "viridis"}, "legend": {"title": "accuracy, %"}}
    colour = {"field": "accuracy", "type": "quantitative", **looks}
    inside = {"width": {"band": 0.96}, "height": {"band": 0.9}}  # so that no neighbour covers a side of it
    frame = {"type": "rect", "filled": False, "stroke": RED, "strokeWidth": 2.5, **inside}
    dark = "luminance(scale('color', datum.accuracy)) < 0.179"  # where white and black stand out alike
    text = {"field": "shown", "type": "nominal"}
    shade = {"condition": {"test": dark, "value": "white"}, "value": "black"}
    layer = [
        {"mark": "rect", "encoding": {"color": colour}},
        {"mark": frame, "transform": [{"filter": "datum.best"}]},
        {"mark": {"type": "text", "fontSize": 11}, "encoding": {"text": text, "color": shade}},
    ]
    spec = {"width": 62 * len(found), "height": 22 * len(names), "encoding": {"x": x, "y": y}, "layer": layer}
    caption = study.caption("framed: the best under each corruption")
    figure = Figure(name=study.experiment.name, caption=caption, spec=spec, rows=squares)
    return Outcome(tables=[table], figures=[figure], rows={study.experiment.name: squares})


def _shown(value: Estimate, digits: int) -> Row:
    """An accuracy in per cent, and the words that the table has for it, ties included."""
    return {"accuracy": round(100 * value.mean, digits), "shown": percent(value, 1).split()[0]}


def _mark_best(rows: Sequence[Row], field: str) -> None:
    """Say of each row whether its accuracy is the highest of those that share a field."""
    for row in rows:
        row["best"] = row["accuracy"] == max(one["accuracy"] for one in rows if one[field] == row[field])


def severity(study: Study) -> Outcome:
    """Accuracy against severity, where 0 is clean: the curves, and tables with the authors' own values below ours."""
    rows = severity_rows(first_records(study.done))
    note = "accuracy in per cent, mean over the fifteen corruptions; 0 is clean"
    severities, tables = range(6), list[Table]()
    for place in study.places:
        done, cells = study.at(place), list[tuple[str, ...]]()
        paper = paper_rows("paper_severity", done)
        for label, group in series_by_label(done).items():
            found = severity_accuracies(group[0])
            cells.append((label, *(percent(found.get(s), 1) for s in severities)))
            if label in paper:
                cells.append((f"{label}, authors at full scale", *(paper[label][str(s)] for s in severities)))
        tables.append(study.table(("method", *(f"severity {s}" for s in severities)), cells, note, place=place))
    return Outcome(tables=tables, figures=[severity_figure(rows, study.caption())], rows={"severity": rows})


def coverage(study: Study) -> Outcome:
    """Diffusion coverage: distance over σ in each block during training, for augmentations that training has not seen.

    A row of panels for each training augmentation, and a table of the last epoch.
    """
    augmentors = {spaced(name): build("augment", name, {}) for name in study.options["augmentations"]}
    rows = list[Row]()
    for one in study.done:
        if one.cell.config.seed == 0:
            found = coverage_over_training(one.run, augmentors, images=study.options["images"])
            rows += [{"trained": one.cell.label, **row} for row in found]
    last = max((row["epoch"] for row in rows), default=0)
    cells = list[tuple[str, ...]]()
    for row in (row for row in rows if row["epoch"] == last):
        numbers = (MISSING if row[key] is None else f"{row[key]:.3f}" for key in ("ratio", "median", "within"))
        cells.append((row["trained"], row["augmentation"], row["block"], *numbers))
    columns = ("trained with", "tested with", "block", "mean of distance / σ", "median", "share within 2 σ")
    note = f"after epoch {last}; the paper gives its curves without numbers"
    return Outcome(
        tables=[study.table(columns, cells, note)],
        figures=[coverage_figure(rows, study.caption())] if rows else [],
        rows={"coverage": rows},
    )


def scale(study: Study) -> Outcome:
    """Diffusion scale: the mean σ of each block over training, for seed 0, and a table of where the curves lead."""
    rows = scale_rows(study.first_runs) if study.first_runs else []
    cells = list[tuple[str, ...]]()
    for (run, block), curve in _curves(rows, "block", "sigma").items():
        shown = (curve[0], curve[len(curve) // 2], curve[-1])
        cells.append((run, block, *(f"{value:.4f}" for value in shown)))
    columns = ("network", "block", "σ in the first epoch", "half-way", "in the last")
    note = "mean over each epoch's training images; the paper gives its curves without numbers"
    figures = [scale_figure(rows, study.caption())] if rows else []
    return Outcome(tables=[study.table(columns, cells, note)], figures=figures, rows={"scale": rows})


def losses(study: Study) -> Outcome:
    """Losses and both accuracies over training, for seed 0, and a table of where the curves begin and end."""
    rows = curve_rows(study.first_runs) if study.first_runs else []
    curves = _curves(rows, "metric", "value").items()
    cells = [(run, measure, f"{curve[0]:.4g}", f"{curve[-1]:.4g}") for (run, measure), curve in curves]
    columns = ("network", "measure", "first epoch", "last epoch")
    table = study.table(columns, cells, "the paper gives its curves without numbers")
    figures = [curves_figure(rows, study.caption())] if rows else []
    return Outcome(tables=[table], figures=figures, rows={"losses": rows})


def _curves(rows: Sequence[Row], kind: str, value: str) -> dict[tuple[str, str], list[float]]:
    """The values over training, by run and by what is measured."""
    found = dict[tuple[str, str], list[float]]()
    for row in rows:
        found.setdefault((row["run"], row[kind]), []).append(row[value])
    return found


def surfaces(study: Study) -> Outcome:
    """Figure 2: solutions of the 2-D transport equation without, with little, much and learnt diffusion."""
    from ...theory.figures import surfaces_figure
    from ...theory.surfaces import surfaces as solve

    found = solve(**study.options)
    files = dict[str, bytes]()
    for kind in ("png", "svg", "pdf"):
        drawn = io.BytesIO()
        surfaces_figure(found).savefig(drawn, format=kind, dpi=160)
        files[f"{study.experiment.name}.{kind}"] = drawn.getvalue()
    rows = [
        (
            one.name,
            "learnt" if one.sigma is None else f"{one.sigma:g}",
            f"{100 * one.train_accuracy:.1f}",
            f"{100 * one.held_out_accuracy:.1f}",
            f"{one.roughness:.3f}",
        )
        for one in found.surfaces
    ]
    columns = ("diffusion", "σ", "training accuracy, %", "held-out accuracy, %", "roughness")
    given = ", ".join(f"{value} {name}" for name, value in study.options.items())
    points = found.fitted.train
    right = 100 * float((points.given == points.labels).float().mean())
    notes = (
        f"{given}, seed 0; {right:.1f} % of the training labels are right, which is what a perfect rule would score",
        "roughness: mean of |∇u| at t = 0 over what is drawn; the paper shows its surfaces without numbers",
    )
    return Outcome(tables=[study.table(columns, rows, *notes)], files=files)
