"""What runs logged and records hold: losses, accuracies and σ over training, and accuracy against severity."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from ...corruptions.base import SEVERITIES
from ...errors import UserError
from ...evaluation.records import CLEAN, Record, read_records
from ...reports.charts import ACCURACY, LOSS, SIGMA, severity_lines
from ...reports.figures import Figure, Row, Spec
from ...reports.inputs import RECORDS, groups_of
from ...training.run_folder import Run
from .figures import faceted, lines_figure, over_epochs
from .probes import Question, Section

CURVES = {
    f"{LOSS}coverage": ("coverage loss", 1.0),
    f"{LOSS}task": ("task loss (cross-entropy)", 1.0),
    "accuracy": ("training accuracy, %", 100.0),
    ACCURACY: ("validation accuracy, %", 100.0),
}
"""What the metrics call them, what the figure does, and in which units, in the paper's order of columns."""


def curve_rows(runs: Mapping[str, Run]) -> list[Row]:
    """Run (its label), epoch, metric and value, accuracies in per cent; a run has what its method logs of the four.

    The losses and the training accuracy are means over an epoch while the network learns, with noise and on augmented
    images where the method has them; the validation accuracy is that of the network as it predicts, after the epoch.
    """
    rows = [
        {"run": label, "epoch": record["epoch"], "metric": shown, "value": unit * record[name]}
        for name, (shown, unit) in CURVES.items()
        for label, run in runs.items()
        for record in run.metrics
        if name in record
    ]
    if not rows:
        raise UserError(f"no epoch is done in {', '.join(runs) or 'no run'}; train one first")
    return rows


def curves_figure(rows: Sequence[Row], title: str) -> Figure:
    """A column for each quantity with its own axis, a line for each run."""
    drawn = [{"series": row["run"], "x": row["epoch"], "y": row["value"], "metric": row["metric"]} for row in rows]
    figure = over_epochs("curves", title, drawn, "")
    return faceted(figure, column="metric", own_axis=True)


def curves_section(question: Question, gaps: list[str]) -> Section:
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


def scale_rows(runs: Mapping[str, Run]) -> list[Row]:
    """Run (its label), epoch, block and sigma: the mean over the epoch's training images and all elements.

    A run without ADD blocks gives no row; where none gives any, that is refused.
    """
    rows = [
        {"run": label, "epoch": record["epoch"], "block": name.removeprefix(SIGMA), "sigma": float(value)}
        for label, run in runs.items()
        for record in run.metrics
        for name, value in record.items()
        if name.startswith(SIGMA)
    ]
    if not rows:
        raise UserError(f"no σ in the metrics of {', '.join(runs) or 'no run'}; train one with method.name=pde_plus")
    return rows


def scale_figure(rows: Sequence[Row], title: str) -> Figure:
    """A panel for each run, a line for each block."""
    drawn = [{"series": row["block"], "x": row["epoch"], "y": row["sigma"], "run": row["run"]} for row in rows]
    return faceted(over_epochs("scale", title, drawn, "mean σ"), column="run")


def scale_section(question: Question, gaps: list[str]) -> Section:
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


def severity_rows(records: Iterable[Record]) -> list[Row]:
    """Data, series, severity (0 is clean), accuracy in per cent, and the ends of its 95 % interval over seeds.

    Accuracy is the mean over the fifteen corruptions; a severity at which one of them is missing has no row. Images
    of different origin are different data.
    """
    groups = [group for group in groups_of(records, "ERM") if group.suite == "corruptions"]  # no score has a baseline
    named = Counter(group.data for group in groups)
    rows = [
        {"data": group.data if named[group.data] == 1 else group.title, "series": row["series"]}
        | {"severity": 0 if row["x"] == CLEAN else row["x"]}
        | {"accuracy": row["y"], "low": row["low"], "high": row["high"]}
        for group in groups
        for row in severity_lines(group).rows
    ]
    if not rows:
        raise UserError("no record covers the fifteen corruptions at any severity: pdeplus evaluate RUN makes them")
    return rows


def severity_figure(rows: Sequence[Row], title: str) -> Figure:
    """A panel for each data set, a line for each series, bands for the intervals."""
    drawn = [
        {"series": row["series"], "x": row["severity"] or CLEAN, "y": row["accuracy"]}
        | {key: row[key] for key in ("low", "high", "data")}
        for row in rows
    ]
    x: Spec = {"field": "x", "type": "ordinal", "sort": [CLEAN, *SEVERITIES], "title": "severity"}
    figure = lines_figure("severity", title, drawn, x | {"axis": {"labelAngle": 0}}, "accuracy, %", band=True)
    return faceted(figure, column="data")


def severity_section(question: Question, gaps: list[str]) -> Section:
    """Accuracy against severity."""
    records, lacking = list[Record](), list[str]()
    for label, run in question.runs.items():
        if (run.path / RECORDS).is_file():
            records += read_records(run.path / RECORDS)
        else:
            lacking.append(f"{label}: it was not evaluated yet: pdeplus evaluate {run.path}")
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
