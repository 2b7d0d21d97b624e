"""What runs logged and records hold: losses, accuracies and σ over training, and accuracy against severity."""

from collections.abc import Iterable, Mapping, Sequence

from ...corruptions.base import SEVERITIES
from ...errors import UserError
from ...evaluation.records import CLEAN, Record, read_records
from ...reports.charts import ACCURACY, LOSS, SIGMA, severity_lines
from ...reports.figures import Figure, Row, Spec
from ...reports.inputs import RECORDS, Group, groups_of
from ...training.run_folder import Run
from .figures import faceted, lines_figure, over_epochs
from .probes import Gaps, Question, Section

PERCENT = ", %"
CURVES = {
    f"{LOSS}coverage": "coverage loss",
    f"{LOSS}task": "task loss (cross-entropy)",
    "accuracy": "training accuracy" + PERCENT,
    ACCURACY: "validation accuracy" + PERCENT,
}
"""What the metrics call them and what the figure does, in the paper's order of columns."""


def curve_rows(runs: Mapping[str, Run]) -> list[Row]:
    """Run, epoch, metric and value, accuracies in per cent; a run has those of the four that its method logs.

    The losses and the training accuracy are means over an epoch while the network learns, with noise and on augmented
    images where the method has them; the validation accuracy is that of the network as it predicts, after the epoch.

    Args:
        runs: by the label that the rows call them.
    """
    rows = [
        {"run": label, "epoch": record["epoch"], "metric": shown, "value": _value(record[name], shown)}
        for name, shown in CURVES.items()
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
    return faceted(figure, column="metric", own_scale=True)


def curves_section(question: Question, gaps: Gaps) -> Section:
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
    """Run, epoch, block and sigma: the mean over the epoch's training images and all elements.

    A run without ADD blocks gives no row; where none gives any, that is refused.

    Args:
        runs: by the label that the rows call them.
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


def scale_section(question: Question, gaps: Gaps) -> Section:
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


STANDARD = "ERM"
"""No score here depends on the baseline; groups ask for a name."""


def severity_rows(records: Iterable[Record]) -> list[Row]:
    """Data, series, severity (0 is clean), accuracy in per cent, and the ends of its 95 % interval over seeds.

    Accuracy is the mean over the fifteen corruptions; a severity at which one of them is missing has no row. Images
    of different origin are different data.
    """
    groups = [group for group in groups_of(records, STANDARD) if group.suite == "corruptions"]
    rows = [
        {"data": _name(group, groups), "series": row["series"], "severity": 0 if row["x"] == CLEAN else row["x"]}
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


def severity_section(question: Question, gaps: Gaps) -> Section:
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


def _value(value: float, shown: str) -> float:
    return 100 * value if shown.endswith(PERCENT) else float(value)


def _name(group: Group, groups: Sequence[Group]) -> str:
    """The data set; with what else tells its images apart where there are several of that name."""
    return group.data if [other.data for other in groups].count(group.data) == 1 else group.title
