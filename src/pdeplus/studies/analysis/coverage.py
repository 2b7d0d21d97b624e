"""Diffusion coverage of unseen distributions (the paper's figure of that name): do views of a sample lie in its scope?

An image x gives μ_l and σ_l at each ADD block l, a view x' of it gives h_l. Where |h_l - μ_l| / σ_l is at most 2, the
view is a normal sample of N(μ_l, σ_l) by the 2-σ rule. The figure shows the mean of that ratio, as the paper does;
rows hold its median, which a few large ratios do not move, and the share of elements within 2 σ as well.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import final

import torch
from torch import Tensor, nn

from ..._lib.long_work import Count, counting_bar
from ..._lib.seeds import generator_for
from ...augment.base import Augmentor
from ...augment.identity import Identity
from ...core.surgery import add_blocks_of
from ...errors import UserError
from ...methods.base import overlaps_of
from ...reports.figures import Figure, Row
from ...reports.tables import spaced
from ...training.run_folder import Run, build_method, build_source, transform_of
from .figures import faceted, line_at, over_epochs
from .probes import AUGMENTATIONS, Question, Section, counted, features, held_out, in_batches, network_of, scopes

LIMIT = 2.0
"""The bound of the 2-σ rule."""
PER_OCTAVE, OCTAVES = 200, (-20, 20)
"""Bins of the histogram that the median is read from: it is right within 0.2 % between 2⁻²⁰ and 2²⁰."""


@torch.no_grad()
def coverage_ratio(model: nn.Module, images: Tensor, views: Tensor) -> list[Row]:
    """How far each ADD block's features of a view lie from the image's, in σ of the image: a row for each block.

    A row has block, ratio (mean over elements), median, within (share of elements with a ratio of at most 2) and zero
    (share of elements with σ = 0, which a ReLU head gives). An element with σ = 0 has no ratio: it counts as not
    within and is left out of ratio and median, which are None where every element is such.

    Images and their views are N×C×H×W in [0, 1]. μ and h come from passes without noise and σ = g_φ(μ): the network as
    it predicts, so that nothing is drawn and σ is the scope of the very features the view is compared with.
    """
    add_blocks_of(model)
    if images.shape != views.shape or not len(images):
        shapes = " and ".join("×".join(map(str, t.shape)) for t in (images, views))
        raise UserError(f"images and views are {shapes}; give one view of each of at least one image")
    tallies = dict[str, _Tally]()
    for x, view in zip(in_batches(images), in_batches(views), strict=True):
        for scope, h in zip(scopes(model, x), features(model, view), strict=True):
            tallies.setdefault(scope.block, _Tally()).add((h - scope.mean).abs(), scope.scale)
    return [{"block": name, **tally.row()} for name, tally in tallies.items()]


def coverage_over_training(
    run: Run,
    augmentors: Mapping[str, Augmentor],
    *,
    images: int = 256,
    seed: int = 0,
    watch: Count | None = None,
) -> list[Row]:
    """The coverage of each augmentation's views at every epoch whose weights the run kept, and at the last.

    A row has epoch, augmentation, what `coverage_ratio` gives, and images, how many there are. These are held-out
    validation images of the run, never test images; the seed chooses at most so many of them, and makes the views,
    which are the same at every epoch. The paper takes augmentations that the run did not train with.
    """
    if not augmentors:
        raise UserError("augmentors is empty; name at least one augmentation to test with")
    weights = _weights(run)
    x = held_out(run, images, seed).floats()
    views = {name: make(x, generator_for(seed, "coverage", name)) for name, make in augmentors.items()}
    rows = list[Row]()
    for epoch, path in weights.items():
        model = network_of(run, path)
        for name, view in views.items():
            found = coverage_ratio(model, x, view)
            rows += [{"epoch": epoch, "augmentation": name, **row, "images": len(x)} for row in found]
            if watch is not None:
                watch(1, len(weights) * len(views))
    return rows


def coverage_figure(rows: Sequence[Row], title: str) -> Figure:
    """The mean ratio over training: a column for each block, a line for each augmentation, red dashes at 2.

    Rows that have a key "trained" are told apart by it, a row of panels for each training augmentation.
    """
    drawn = [
        {"series": row["augmentation"], "x": row["epoch"], "y": row["ratio"], "block": row["block"]}
        | ({"trained": f"trained with {row['trained']}"} if "trained" in row else {})
        for row in rows
        if row["ratio"] is not None
    ]
    figure = over_epochs("coverage", title, drawn, "mean of |h − μ| / σ")
    figure.spec["layer"].append(line_at(LIMIT, "2 σ"))
    return faceted(figure, column="block", row="trained" if any("trained" in row for row in rows) else "")


def coverage_section(question: Question, gaps: list[str]) -> Section:
    """Diffusion coverage of augmentations that the runs did not train with."""
    trained = {label: _trained_with(run) for label, run in question.runs.items()}
    shared = [name for name, count in Counter(trained.values()).items() if count > 1]

    def rows_of(label: str, run: Run) -> list[Row]:
        seen = overlaps_of(build_method(run.config), transform_of(run.config, build_source(run.config)))
        unseen = {spaced(name): make for name, make in AUGMENTATIONS.items() if name not in seen}
        with counting_bar(f"coverage of {label}", None, "pass") as count:
            found = coverage_over_training(run, unseen, images=question.images, seed=question.seed, watch=count)
        name = trained[label] + f", {label}" * (trained[label] in shared)
        return [{"trained": name, **row} for row in found]

    rows = question.rows_of_each(gaps, rows_of)
    words = (
        "An image gives μ and σ at each ADD block, an augmented view of it gives h; the figure has the mean of "
        "|h − μ| / σ over all elements. Where it is below 2, the red line, a view is on average a normal sample of its "
        "image's diffusion (the 2-σ rule). The table also has the median, which a few large ratios do not move, and "
        "the share of elements within 2 σ. No noise is drawn: μ and h are the features as the network predicts, and "
        "σ = g(μ). Shown are augmentations that the run did not train with by that name; AugMix and the like may "
        "contain weaker ones of their kind. Weights: those of every kept epoch and of the last. "
        + counted({row["trained"]: row["images"] for row in rows})
    )
    figure = coverage_figure(rows, "Diffusion coverage: distance of unseen views from their image, in its σ")
    return Section(words=words, figure=figure, tables={"coverage": rows})


def _trained_with(run: Run) -> str:
    """The method's own augmentations, in words."""
    names = [name for name in overlaps_of(build_method(run.config), Identity()) if name != "identity"]
    return ", ".join(map(spaced, names)) or "no augmentation"


def _weights(run: Run) -> dict[int, Path]:
    """Of the kept epochs and of the last; refuses a run that cannot tell of coverage."""
    last, path = run.weights("last")
    try:
        add_blocks_of(run.load_weights(path))
    except UserError as error:
        raise UserError(f"{run.path} has no ADD blocks and no σ; train it with method.name=pde_plus") from error
    if not run.kept:
        raise UserError(f"{run.path} kept no epochs' weights; train it with train.keep_every=1")
    return run.kept | {last: path}


@final
class _Tally:
    """Counts elements batch by batch, in memory that does not grow."""

    def __init__(self) -> None:
        self._sum, self._elements, self._positive, self._within = 0.0, 0, 0, 0
        low, high = OCTAVES
        self._bins = torch.zeros((high - low) * PER_OCTAVE, dtype=torch.int64)

    def add(self, distance: Tensor, scale: Tensor) -> None:
        positive = scale > 0
        ratio = distance[positive].double() / scale[positive].double()
        self._sum += float(ratio.sum())
        self._elements += scale.numel()
        self._positive += ratio.numel()
        self._within += int((ratio <= LIMIT).sum())
        place = ((ratio.log2() - OCTAVES[0]) * PER_OCTAVE).clamp(0, len(self._bins) - 1).long()
        self._bins += torch.bincount(place, minlength=len(self._bins)).cpu()

    def row(self) -> Row:
        n = self._elements
        shares = {"within": self._within / n, "zero": 1 - self._positive / n}
        if not self._positive:
            return {"ratio": None, "median": None, **shares}
        middle = int((2 * self._bins.cumsum(0) >= self._positive).nonzero()[0])
        median = 2 ** (OCTAVES[0] + (middle + 0.5) / PER_OCTAVE) if middle else 0.0
        return {"ratio": self._sum / self._positive, "median": median, **shares}
