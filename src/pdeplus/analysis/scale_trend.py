"""The mean σ of every ADD block over training (the paper's Fig. Scale), from the runs' own records of it."""

from collections.abc import Mapping, Sequence

from .._errors import UserError
from ..report.specs import Figure, Row
from ..report.training import SIGMA
from ..run import Run
from .figures import faceted, over_epochs


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
