"""Diffusion scale: the mean σ of each block over training."""

from ...reports.tables import Table
from ..analysis.trends import scale_figure, scale_rows
from ..study import Made, Study


def make(study: Study) -> Made:
    """The curves of seed 0, and a table of where they begin and end."""
    rows = scale_rows(study.first_runs) if study.first_runs else []
    lines = list[tuple[str, ...]]()
    for run, block in dict.fromkeys((row["run"], row["block"]) for row in rows):
        curve = [row["sigma"] for row in rows if (row["run"], row["block"]) == (run, block)]
        shown = (curve[0], curve[len(curve) // 2], curve[-1])
        lines.append((run, block, *(f"{value:.4f}" for value in shown)))
    columns = ("network", "block", "σ in the first epoch", "half-way", "in the last")
    notes = study.all_lacking
    notes.append("mean over each epoch's training images; the paper gives its curves without numbers")
    table = Table(study.title, columns, tuple(lines), tuple(notes))
    return Made(tables=[table], figures=[scale_figure(rows, study.caption())] if rows else [], rows={"scale": rows})
