"""The sections of an analysis that put validation images through the runs' networks."""

from collections import Counter
from collections.abc import Mapping

from torch import Tensor, nn

from .._progress import counting_bar
from .._seeds import generator_for
from ..augment.base import Augmentor
from ..augment.brightness import Brightness
from ..augment.gaussian_noise import GaussianNoise
from ..augment.identity import Identity
from ..augment.rotation import Rotation
from ..data.base import Images
from ..overlap import overlaps_of
from ..report.specs import Row
from ..run import Run, build_method, build_source
from ._images import held_out, network_of
from ._sections import Gaps, Question, Section, of_each_run
from .boundary import boundary_figure, boundary_rows, rank_correlations
from .coverage import coverage_figure, coverage_over_training
from .figures import values
from .smoothness import smoothness_figure, smoothness_rows

TESTED: dict[str, Augmentor] = {
    "brightness": Brightness(),
    "gaussian_noise": GaussianNoise(fraction=1.0),
    "rotation": Rotation(),
}
"""The paper's three by their names in the registry, each on every image."""


def coverage(question: Question, gaps: Gaps) -> Section:
    """Diffusion coverage of augmentations that the runs did not train with."""

    trained = {label: _trained_with(run) for label, run in question.runs.items()}
    shared = [name for name, count in Counter(trained.values()).items() if count > 1]

    def rows_of(label: str, run: Run) -> list[Row]:
        unseen = {_words(name): make for name, make in TESTED.items() if name not in _seen(run)}
        with counting_bar(f"coverage of {label}", None, "pass") as count:
            found = coverage_over_training(run, unseen, images=question.images, seed=question.seed, watch=count)
        name = trained[label] + f", {label}" * (trained[label] in shared)
        return [{"trained": name, **row} for row in found]

    rows = of_each_run(question, gaps, rows_of)
    words = (
        "An image gives μ and σ at each ADD block, an augmented view of it gives h; the figure has the mean of "
        "|h − μ| / σ over all elements. Where it is below 2, the red line, a view is on average a normal sample of its "
        "image's diffusion (the 2-σ rule). The table also has the median, which a few large ratios do not move, and "
        "the share of elements within 2 σ. No noise is drawn: μ and h are the features as the network predicts, and "
        "σ = g(μ). Shown are augmentations that the run did not train with by that name; AugMix and the like may "
        "contain weaker ones of their kind. Weights: those of every kept epoch and of the last. "
        + _counted({row["trained"]: row["images"] for row in rows})
    )
    figure = coverage_figure(rows, "Diffusion coverage: distance of unseen views from their image, in its σ")
    return Section(words=words, figure=figure, tables={"coverage": rows})


def smoothness(question: Question, gaps: Gaps) -> Section:
    """Local Lipschitz estimates."""

    def rows_of(label: str, run: Run) -> list[Row]:
        network, chosen = _best(run, question)
        x = chosen.floats()
        with counting_bar(f"smoothness of {label}", None, "direction") as count:
            found = smoothness_rows(network, x, _views(x, question.seed), seed=question.seed, watch=count)
        return [{"run": label, **row} for row in found]

    rows = of_each_run(question, gaps, rows_of)
    words = (
        "How much the class probabilities change for a change of the image, both as Euclidean lengths (pixels from 0 "
        "to 1): towards an augmented view, in random directions of given length, and in the steepest direction there "
        "is, the spectral norm of the Jacobian by power iteration. Marks are medians over images, bars go from the 5 "
        "to the 95 % quantile; further down is smoother. A network that is very sure is flat as well, so compare "
        "networks of like accuracy. Weights: the epoch with the best validation score; no noise at "
        "prediction. " + _counted({row["run"]: row["n"] for row in rows if row["direction"] == "steepest"})
    )
    figure = smoothness_figure(rows, "Smoothness: how fast the class probabilities change around an image")
    return Section(words=words, figure=figure, tables={"smoothness": rows})


def boundary(question: Question, gaps: Gaps) -> Section:
    """σ against the distance to the decision boundary."""

    def rows_of(label: str, run: Run) -> list[Row]:
        network, chosen = _best(run, question)
        return [{"run": label, **row} for row in boundary_rows(network, chosen.floats(), chosen.labels)]

    rows = of_each_run(question, gaps, rows_of)
    by_run = {label: [row for row in rows if row["run"] == label] for label in values(rows, "run")}
    correlations = [{"run": label, **row} for label, mine in by_run.items() for row in rank_correlations(mine)]
    words = (
        "A dot is an image: how far it lies from the nearest other decision (margin over the norm of its gradient, a "
        "first-order estimate in Euclidean norm, pixels from 0 to 1), and the mean σ that an ADD block gives it. The "
        "black line joins the medians of eight equally filled bins; ρ is Spearman's rank correlation and its 95 % "
        "interval over images: one that holds 0 shows no relation. Weights: the epoch with the best validation "
        "score. " + _counted({row["run"]: row["images"] for row in correlations})
    )
    figure = boundary_figure(rows, "Mean σ of an image against its distance to the decision boundary")
    tables = {"boundary": rows, "boundary-correlations": correlations}
    return Section(words=words, figure=figure, tables=tables)


def _best(run: Run, question: Question) -> tuple[nn.Module, Images]:
    """The network of the best epoch, and held-out images for it."""
    network = network_of(run, run.weights("validation")[1])
    return network, held_out(run, question.images, question.seed)


def _views(x: Tensor, seed: int) -> dict[str, Tensor]:
    return {_words(name): make(x, generator_for(seed, "smoothness", name)) for name, make in TESTED.items()}


def _counted(images: Mapping[str, int]) -> str:
    return "Validation images: " + ", ".join(f"{n} for {label}" for label, n in images.items()) + "."


def _seen(run: Run) -> set[str]:
    """The augmentations that its training images went through, by their names in the registry."""
    return set(overlaps_of(build_method(run.config), build_source(run.config).transform))


def _trained_with(run: Run) -> str:
    """The method's own augmentations, in words."""
    names = [name for name in overlaps_of(build_method(run.config), Identity()) if name != "identity"]
    return ", ".join(map(_words, names)) or "no augmentation"


def _words(name: str) -> str:
    return name.replace("_", " ")
