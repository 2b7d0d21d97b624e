"""The sections of an analysis that look at how the runs were trained and tested: their figures, rows and words."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import final

from torch import Tensor, nn

from ..._lib.progress import counting_bar
from ..._lib.seeds import generator_for
from ...augment.base import Augmentor
from ...augment.brightness import Brightness
from ...augment.gaussian_noise import GaussianNoise
from ...augment.identity import Identity
from ...augment.rotation import Rotation
from ...data.base import Images
from ...errors import UserError
from ...evaluation.records import read_records
from ...methods.base import overlaps_of
from ...reports.figures import Figure, Row
from ...reports.inputs import RECORDS
from ...training.run_folder import Run, build_method, build_source
from .boundary import boundary_figure, boundary_rows, rank_correlations
from .coverage import coverage_figure, coverage_over_training
from .figures import values
from .probes import held_out, network_of
from .smoothness import smoothness_figure, smoothness_rows
from .trends import curve_rows, curves_figure, scale_figure, scale_rows, severity_figure, severity_rows


@final
@dataclass(frozen=True, kw_only=True)
class Question:
    """What is analysed, and on how many images."""

    runs: Mapping[str, Run]
    """By their labels."""
    images: int
    seed: int


@final
@dataclass(frozen=True, kw_only=True)
class Section:
    """One finding: a figure, what it shows in words, and its rows by the name of their file."""

    words: str
    figure: Figure
    tables: Mapping[str, Sequence[Row]]


Gaps = list[str]
"""What could not be made of a run and why, a line each."""


def of_each_run(question: Question, gaps: Gaps, make: Callable[[str, Run], list[Row]]) -> list[Row]:
    """The rows of all runs that allow them; of the others the reason goes to the gaps. Refuses where none does."""
    rows, reasons = list[Row](), Gaps()
    for label, run in question.runs.items():
        try:
            rows += make(label, run)
        except (UserError, OSError) as error:  # such as a data set that is no longer there
            reasons.append(f"{label}: {error}")
    if not rows:
        raise UserError("; ".join(reasons))
    gaps += reasons
    return rows


def curves(question: Question, gaps: Gaps) -> Section:
    """Losses and accuracies over training."""
    rows = curve_rows(question.runs)
    words = (
        "Losses and training accuracy are means over each epoch while the network learns, with noise and on augmented "
        "images where the method has them; validation accuracy is that of the network as it predicts, after the epoch. "
        "The coverage loss is −log p of the augmented features under the diffused sample, without constants; only "
        "methods that learn σ have it."
    )
    figure = curves_figure(rows, "Losses and accuracies during training")
    return Section(words=words, figure=figure, tables={"curves": rows})


def scale(question: Question, gaps: Gaps) -> Section:
    """The mean σ of every block over training."""
    rows = scale_rows(question.runs)
    shown = {row["run"] for row in rows}
    gaps += [f"{label}: its method learns no σ" for label in question.runs if label not in shown]
    words = (
        "σ is the scale of the noise that each ADD block learns, a mean over the epoch's training images and all "
        "elements of the block's features. Follow it within a block; features of different blocks differ in size."
    )
    figure = scale_figure(rows, "Mean diffusion scale σ of each ADD block during training")
    return Section(words=words, figure=figure, tables={"scale": rows})


def severity(question: Question, gaps: Gaps) -> Section:
    """Accuracy against severity."""
    files = {label: run.path / RECORDS for label, run in question.runs.items()}
    records = [record for file in files.values() if file.is_file() for record in read_records(file)]
    lacking = [
        f"{label}: it was not evaluated yet: pdeplus evaluate {question.runs[label].path}"
        for label, file in files.items()
        if not file.is_file()
    ]
    if not records:
        raise UserError("; ".join(lacking))
    rows = severity_rows(records)
    gaps += lacking
    selections = ", ".join(sorted({record.selection for record in records}))
    words = (
        f"Accuracy on the test images, clean and at each severity, a mean over the fifteen corruptions; bands are 95 % "
        f"intervals over seeds, where there are several. Weights selected by: {selections}."
    )
    figure = severity_figure(rows, "Accuracy against the severity of corruption")
    return Section(words=words, figure=figure, tables={"severity": rows})


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
