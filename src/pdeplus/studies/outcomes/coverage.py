"""Diffusion coverage: distance over σ in each block during training, for augmentations that training has not seen."""

from ..._lib.registry import build
from ...reports.figures import Row
from ...reports.tables import MISSING, Table
from ..analysis.coverage import coverage_figure, coverage_over_training
from ..study import Made, Study, in_words


def make(study: Study) -> Made:
    """A row of panels for each training augmentation, and a table of the last epoch."""
    augmentors = {in_words(name): build("augment", name, {}) for name in study.options["augmentations"]}
    rows = list[Row]()
    for one in study.done:
        if one.cell.config.seed == 0:
            found = coverage_over_training(one.run, augmentors, images=study.options["images"])
            rows += [{"trained": one.cell.label, **row} for row in found]
    return Made(
        tables=[_table(study, rows)],
        figures=[coverage_figure(rows, study.caption())] if rows else [],
        rows={"coverage": rows},
    )


def _table(study: Study, rows: list[Row]) -> Table:
    """The last epoch's ratios, and the share of elements within two standard deviations."""
    last = max((row["epoch"] for row in rows), default=0)
    ending = [row for row in rows if row["epoch"] == last]
    cells = tuple(
        (r["trained"], r["augmentation"], r["block"], _number(r["ratio"]), _number(r["median"]), _number(r["within"]))
        for r in ending
    )
    columns = ("trained with", "tested with", "block", "mean of distance / σ", "median", "share within 2 σ")
    notes = study.all_lacking
    notes.append(f"after epoch {last}; the paper gives its curves without numbers")
    return Table(study.title, columns, cells, tuple(notes))


def _number(value: float | None) -> str:
    return MISSING if value is None else f"{value:.3f}"
