"""σ against the distance to the decision boundary: does the diffusion adapt to where a sample lies?

The distance is a first-order estimate: the margin over the norm of its gradient, to the nearest of the likeliest other
classes. It is exact for a network that is linear, and an estimate in Euclidean norm, pixels in [0, 1], for others.
"""

import math
from collections.abc import Sequence
from typing import cast

import numpy as np
import torch
from scipy import stats
from torch import Tensor, nn

from ...core.network import device_of
from ...errors import check_least
from ...reports.figures import Figure, Row, Spec
from ...training.run_folder import Run
from .figures import faceted, values
from .probes import Question, Section, counted, in_batches, lengths, plain, scopes

RIVALS = 4
"""How many other classes are looked at, the likeliest ones."""
BINS = 8
"""Bins of the trend, each with as many images."""
NORMAL = 1.959964
"""The normal distribution's 97.5 % quantile."""


def boundary_distances(model: nn.Module, images: Tensor, rivals: int = RIVALS) -> Tensor:
    """How far each image is from where the network would decide otherwise, N; infinite where no slope leads there.

    Images are N×C×H×W in [0, 1]; logits without noise count, of the class and the likeliest `rivals` of it.
    """
    check_least("rivals", rivals, 1)
    return torch.cat([_distances(model, x, rivals) for x in in_batches(images.to(device_of(model)))]).cpu()


def boundary_rows(model: nn.Module, images: Tensor, labels: Tensor) -> list[Row]:
    """Image, block, distance, sigma (its mean over the block's elements), correct: a row for each image and block.

    The model has ADD blocks; images are N×C×H×W in [0, 1], labels N. σ is that of the features without noise, as in
    the coverage analysis. Images whose distance is infinite are left out.
    """
    distances = cast(list[float], boundary_distances(model, images).tolist())
    logits, sigmas, decisions = plain(model, "logits"), dict[str, list[float]](), list[Tensor]()
    with torch.no_grad():
        for x in in_batches(images.to(device_of(model))):
            decisions.append(logits(x).argmax(-1).cpu())
            for scope in scopes(model, x):
                sigmas.setdefault(scope.block, []).extend(cast(list[float], scope.scale.flatten(1).mean(1).tolist()))
    correct = cast(list[bool], (torch.cat(decisions) == labels).tolist())
    return [
        {"image": i, "block": block, "distance": distances[i], "sigma": sigma[i], "correct": correct[i]}
        for block, sigma in sigmas.items()
        for i in range(len(images))
        if math.isfinite(distances[i])
    ]


def rank_correlations(rows: Sequence[Row]) -> list[Row]:
    """Of each block: images, Spearman's rank correlation of distance and σ, and low and high, its 95 % interval.

    The interval is Bonett and Wright's (2000), on Fisher's scale; None for all three with fewer than four images, or
    where σ is the same everywhere.
    """
    return [
        {"block": block} | _correlation([r for r in rows if r["block"] == block]) for block in values(rows, "block")
    ]


def boundary_figure(rows: Sequence[Row], title: str) -> Figure:
    """A dot for each image, a panel for each block with its rank correlation ρ and the interval of that.

    The black line joins the medians of eight bins of distance, each with as many images.
    Rows that have a key "run" are told apart by it, a row of panels for each run.
    """
    told_apart = "run" if any("run" in row for row in rows) else ""
    keys, drawn = ["block", *filter(None, [told_apart])], list[Row]()
    for panel in dict.fromkeys(tuple(row[key] for key in keys) for row in rows):
        mine = [row for row in rows if tuple(row[key] for key in keys) == panel]
        drawn += _drawn(mine, dict(zip(keys, panel, strict=True)))
    figure = Figure(name="boundary", caption=title, spec=_spec(), rows=drawn)
    return faceted(figure, column="block", row=told_apart, own_axis=True)


def boundary_section(question: Question, gaps: list[str]) -> Section:
    """σ against the distance to the decision boundary."""

    def rows_of(label: str, run: Run) -> list[Row]:
        network, chosen = question.best_network(run)
        return [{"run": label, **row} for row in boundary_rows(network, chosen.floats(), chosen.labels)]

    rows = question.rows_of_each(gaps, rows_of)
    by_run = {label: [row for row in rows if row["run"] == label] for label in values(rows, "run")}
    correlations = [{"run": label, **row} for label, mine in by_run.items() for row in rank_correlations(mine)]
    words = (
        "A dot is an image: how far it lies from the nearest other decision (margin over the norm of its gradient, a "
        "first-order estimate in Euclidean norm, pixels from 0 to 1), and the mean σ that an ADD block gives it. The "
        "black line joins the medians of eight equally filled bins; ρ is Spearman's rank correlation and its 95 % "
        "interval over images: one that holds 0 shows no relation. Weights: the epoch with the best validation "
        "score. " + counted({row["run"]: row["images"] for row in correlations})
    )
    figure = boundary_figure(rows, "Mean σ of an image against its distance to the decision boundary")
    return Section(words=words, figure=figure, tables={"boundary": rows, "boundary-correlations": correlations})


def _spec() -> Spec:
    x = {"field": "x", "type": "quantitative", "title": "distance to the boundary", "axis": {"tickCount": 4}}
    y = {"field": "y", "type": "quantitative", "title": "mean σ of the image", "scale": {"zero": False}}
    order = ["right", "wrong"]
    legend = {"title": "prediction"}
    colour = {"field": "kind", "type": "nominal", "scale": {"domain": order, "range": ["#0072B2", "#D55E00"]}}
    shape = {"field": "kind", "type": "nominal", "scale": {"domain": order, "range": ["circle", "cross"]}}
    dots = {
        "transform": [{"filter": {"field": "kind", "oneOf": order}}],
        "mark": {"type": "point", "filled": True, "opacity": 0.45, "size": 22},
        "encoding": {"x": x, "y": y, "color": colour | {"legend": legend}, "shape": shape | {"legend": legend}},
    }
    trend = {
        "transform": [{"filter": {"field": "kind", "equal": "trend"}}],
        "mark": {"type": "line", "strokeJoin": "round", "color": "#20262e", "point": {"color": "#20262e", "size": 22}},
        "encoding": {"x": x, "y": y},
    }
    note = {
        "transform": [{"filter": {"field": "kind", "equal": "note"}}],
        "mark": {"type": "text", "align": "left", "baseline": "bottom", "fontSize": 11, "color": "#20262e"},
        "encoding": {"text": {"field": "text"}, "x": {"value": 0}, "y": {"value": -3}},
    }
    return {"layer": [dots, trend, note]}


def _drawn(rows: Sequence[Row], panel: Row) -> list[Row]:
    """The dots, the trend and the correlation of one panel."""
    x, y = (np.array([row[key] for row in rows]) for key in ("distance", "sigma"))
    kinds = ["right" if row["correct"] else "wrong" for row in rows]
    dots = [panel | {"x": float(a), "y": float(b), "kind": kind} for a, b, kind in zip(x, y, kinds, strict=True)]
    parts = np.array_split(np.argsort(x, kind="stable"), min(BINS, len(x)))
    trend = [panel | {"x": float(np.median(x[p])), "y": float(np.median(y[p])), "kind": "trend"} for p in parts]
    found, text = _correlation(rows), ""
    if found["correlation"] is not None:
        rho, low, high = (f"{found[key]:z.2f}".replace("-", "−") for key in ("correlation", "low", "high"))
        text = f"ρ = {rho} ({low} to {high})"
    return [*dots, *trend, panel | {"kind": "note", "text": text}]


def _correlation(rows: Sequence[Row]) -> Row:
    x, y = ([row[key] for row in rows] for key in ("distance", "sigma"))
    n = len(rows)
    if n < 4 or len(set(x)) == 1 or len(set(y)) == 1:
        return {"images": n, "correlation": None, "low": None, "high": None}
    rho = float(stats.spearmanr(x, y)[0])  # type: ignore[reportUnknownArgumentType]
    centre = math.atanh(max(-1 + 1e-9, min(rho, 1 - 1e-9)))
    half = NORMAL * math.sqrt((1 + rho**2 / 2) / (n - 3))
    return {"images": n, "correlation": rho, "low": math.tanh(centre - half), "high": math.tanh(centre + half)}


def _distances(model: nn.Module, x: Tensor, rivals: int) -> Tensor:
    x = x.detach().requires_grad_()
    with torch.enable_grad():
        logits = plain(model, "logits")(x)
        ranked = logits.topk(min(rivals + 1, logits.shape[1])).values  # ties and order cost no gradient
        margins = (ranked[:, :1] - ranked[:, 1:]).unbind(1)
    found = list[Tensor]()
    for margin in margins:
        (gradient,) = torch.autograd.grad(margin.sum(), x, retain_graph=True)
        found.append(margin.detach() / lengths(gradient))
    return torch.stack(found).nan_to_num(math.inf, math.inf).amin(0)
