"""How fast a trained network's outputs change: local Lipschitz estimates, images and their changes in Euclidean norm.

Along data: ‖f(x + δ) - f(x)‖ / ‖δ‖ for δ = view - x. Along random directions of given norms. And the largest there is
for small δ: the spectral norm of the Jacobian at x. Pixels span [0, 1]; f is the network without noise.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn

from ..._lib.long_work import Count, counting_bar
from ..._lib.seeds import generator_for
from ...core.network import device_of
from ...errors import UserError
from ...evaluation.tested_models import Outputs
from ...reports.figures import SIZE, Figure, Row, Spec, series_encoding
from ...reports.tables import spaced
from ...training.run_folder import Run
from .probes import AUGMENTATIONS, Question, Section, counted, in_batches, lengths, plain

NORMS = (0.1, 1.0, 10.0)
DIRECTIONS = 4
"""So many random ones for each image and norm."""
STEPS = 10
"""How many steps the power iteration takes."""
TAILS = (0.05, 0.95)
"""Quantiles over images that rows hold and bars show."""
Function = Callable[[Tensor], Tensor]


@torch.no_grad()
def slopes(function: Function, x: Tensor, moved: Tensor) -> Tensor:
    """‖f(moved) - f(x)‖ / ‖moved - x‖ of each image, B; not a number where an image has not moved."""
    return lengths(function(moved) - function(x)) / lengths(moved - x)


def random_slopes(function: Function, x: Tensor, norm: float, generator: torch.Generator | None) -> Tensor:
    """The slope of each image along one random direction, uniform on the sphere, at distance `norm`."""
    if not norm > 0:
        raise UserError(f"norms has {norm}, which must be above 0")
    return slopes(function, x, x + norm * _direction(x, generator))


def steepest_slopes(function: Function, x: Tensor, steps: int, generator: torch.Generator | None) -> Tensor:
    """The spectral norm of each image's Jacobian, B, by power iteration on JᵀJ; never above the true value.

    Every row of the output must depend on its own image alone, as it does in eval mode.
    """
    x = x.detach().requires_grad_()
    with torch.enable_grad():
        output = function(x)
        u = torch.zeros_like(output).requires_grad_()
        pulled = _gradient(output, x, u, create_graph=True)  # Jᵀu; linear in u, so that its gradient is J
    v = _direction(x, generator)
    for _ in range(steps):
        v = _unit(_gradient(output, x, _gradient(pulled, u, v)))
    return lengths(_gradient(pulled, u, v))


def smoothness_rows(
    model: nn.Module,
    images: Tensor,
    views: Mapping[str, Tensor],
    *,
    norms: Sequence[float] = NORMS,
    of: Outputs = "probabilities",
    seed: int = 0,
    watch: Count | None = None,
) -> list[Row]:
    """Direction, n, mean, median, low and high (the 5 and 95 % quantiles over images) of the local slopes.

    Directions are "to NAME" for each of the views, "random, length N" for each norm, and "steepest". Images that a
    view leaves as they are have no slope towards it and are not counted. The network's outputs without noise count.
    Images and views are N×C×H×W in [0, 1].
    """
    function, device = plain(model, of), device_of(model)
    parts = [x.to(device) for x in in_batches(images)]
    found = dict[str, Iterable[Tensor]]()
    for name, view in views.items():
        pairs = zip(parts, in_batches(view), strict=True)
        found[f"to {name}"] = (slopes(function, x, moved.to(device)) for x, moved in pairs)
    for norm in norms:
        found[f"random, length {norm:g}"] = _random(function, parts, norm, seed)
    stream = generator_for(seed, "steepest", device=device)
    found["steepest"] = (steepest_slopes(function, x, STEPS, stream) for x in parts)
    rows = list[Row]()
    for name, values in found.items():
        rows.append({"direction": name, **_summary(torch.cat(list(values)))})
        if watch is not None:
            watch(1, len(found))
    return rows


def smoothness_figure(rows: Sequence[Row], title: str, of: Outputs = "probabilities") -> Figure:
    """The median slope in each direction, a mark for each run, bars from the 5 to the 95 % quantile, logarithmic.

    Rows are those of `smoothness_rows`, each with a key "run"; `of` is what they are slopes of.
    """
    drawn = [
        {"series": row["run"], "x": row["direction"], "y": row["median"], "high": row["high"]}
        | {"low": row["low"] or row["median"]}  # a logarithm has no zero
        for row in rows
        if row["median"]
    ]
    looks = {"title": "direction of the change", "axis": {"labelAngle": -30}}
    x: Spec = {"field": "x", "type": "nominal", "sort": None, **looks}
    encoding = series_encoding(x, f"change of {of} per change of image")
    ends = [math.log10(row[key]) for row in drawn for key in ("low", "high")] or [0.0]
    powers = [10.0**k for k in range(math.floor(min(ends)), math.ceil(max(ends)) + 1)]
    encoding["y"] |= {"scale": {"type": "log"}, "axis": {"values": powers, "format": ".0e"}}
    offset = {"xOffset": {"field": "series", "type": "nominal", "sort": None}}
    span = {"y": encoding["y"] | {"field": "low"}, "y2": {"field": "high"}}
    bars = {"mark": "rule", "encoding": {"x": x, "color": encoding["color"], **span, **offset}}
    dots = {"mark": {"type": "point", "filled": True, "opacity": 1, "size": 60}, "encoding": encoding | offset}
    spec = SIZE | {"layer": [bars, dots]}
    return Figure(name="smoothness", caption=title, spec=spec, rows=drawn, several={"series": "series"})


def smoothness_section(question: Question, gaps: list[str]) -> Section:
    """Local Lipschitz estimates."""

    def rows_of(label: str, run: Run) -> list[Row]:
        network, chosen = question.best_network(run)
        x = chosen.floats()
        views = {
            spaced(name): make(x, generator_for(question.seed, "smoothness", name))
            for name, make in AUGMENTATIONS.items()
        }
        with counting_bar(f"smoothness of {label}", None, "direction") as count:
            found = smoothness_rows(network, x, views, seed=question.seed, watch=count)
        return [{"run": label, **row} for row in found]

    rows = question.rows_of_each(gaps, rows_of)
    words = (
        "How much the class probabilities change for a change of the image, both as Euclidean lengths (pixels from 0 "
        "to 1): towards an augmented view, in random directions of given length, and in the steepest direction there "
        "is, the spectral norm of the Jacobian by power iteration. Marks are medians over images, bars go from the 5 "
        "to the 95 % quantile; further down is smoother. A network that is very sure is flat as well, so compare "
        "networks of like accuracy. Weights: the epoch with the best validation score; no noise at "
        "prediction. " + counted({row["run"]: row["n"] for row in rows if row["direction"] == "steepest"})
    )
    figure = smoothness_figure(rows, "Smoothness: how fast the class probabilities change around an image")
    return Section(words=words, figure=figure, tables={"smoothness": rows})


def _random(function: Function, parts: Iterable[Tensor], norm: float, seed: int) -> Iterator[Tensor]:
    for i, x in enumerate(parts):
        stream = generator_for(seed, "smoothness", i, device=x.device)  # the same directions at every norm
        yield from (random_slopes(function, x, norm, stream) for _ in range(DIRECTIONS))


def _summary(values: Tensor) -> Row:
    kept = values[values.isfinite()].double()
    if not len(kept):
        return {"n": 0, "mean": None, "median": None, "low": None, "high": None}
    wanted = {"median": 0.5, "low": TAILS[0], "high": TAILS[1]}
    quantiles = {name: float(kept.quantile(share)) for name, share in wanted.items()}
    return {"n": len(kept), "mean": float(kept.mean()), **quantiles}


def _gradient(of: Tensor, at: Tensor, weights: Tensor, *, create_graph: bool = False) -> Tensor:
    (found,) = torch.autograd.grad(of, at, weights, retain_graph=True, create_graph=create_graph)
    return found


def _direction(x: Tensor, generator: torch.Generator | None) -> Tensor:
    return _unit(torch.randn(x.shape, generator=generator, device=x.device, dtype=x.dtype))


def _unit(v: Tensor) -> Tensor:
    """Of length 1, image by image; 0 where it is 0."""
    return v / lengths(v).clamp(min=torch.finfo(v.dtype).tiny).view(-1, *[1] * (v.ndim - 1))
