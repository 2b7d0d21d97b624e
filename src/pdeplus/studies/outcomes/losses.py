"""Losses: the coverage loss, the cross-entropy and both accuracies over training."""

from ...reports.tables import Table
from ..analysis.trends import curve_rows, curves_figure
from ..study import Made, Study


def make(study: Study) -> Made:
    """The curves of seed 0, and a table of where they begin and end."""
    rows = curve_rows(study.first_runs) if study.first_runs else []
    lines = list[tuple[str, ...]]()
    for run, measure in dict.fromkeys((row["run"], row["metric"]) for row in rows):
        curve = [row["value"] for row in rows if (row["run"], row["metric"]) == (run, measure)]
        lines.append((run, measure, f"{curve[0]:.4g}", f"{curve[-1]:.4g}"))
    notes = study.all_lacking
    notes.append("the paper gives its curves without numbers")
    table = Table(study.title, ("network", "measure", "first epoch", "last epoch"), tuple(lines), tuple(notes))
    return Made(tables=[table], figures=[curves_figure(rows, study.caption())] if rows else [], rows={"losses": rows})
