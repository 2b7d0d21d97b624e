"""Loss and accuracy over training (the paper's Fig. Losses), from the runs' own records of them."""

from collections.abc import Mapping, Sequence

from .._errors import UserError
from ..report.specs import Figure, Row
from ..report.training import ACCURACY, LOSS
from ..run import Run
from .figures import faceted, over_epochs

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


def _value(value: float, shown: str) -> float:
    return 100 * value if shown.endswith(PERCENT) else float(value)
