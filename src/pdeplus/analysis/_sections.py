"""The sections of an analysis that look at how the runs were trained and tested: their figures, rows and words."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import final

from .._errors import UserError
from ..records import read_records
from ..report.inputs import RECORDS
from ..report.specs import Figure, Row
from ..run import Run
from .curves import curve_rows, curves_figure
from .scale_trend import scale_figure, scale_rows
from .severity import severity_figure, severity_rows


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
