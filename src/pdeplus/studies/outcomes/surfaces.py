"""Figure 2: solutions of the 2-D transport equation without, with little, much and learnt diffusion."""

import io

from ...reports.tables import Table
from ...theory.figures import surfaces_figure
from ...theory.surfaces import surfaces
from ..study import Made, Study


def make(study: Study) -> Made:
    """Surfaces and contours, and what each solution is worth."""
    found = surfaces(**study.options)
    pictures = dict[str, bytes]()
    for kind in ("png", "svg", "pdf"):
        drawn = io.BytesIO()
        surfaces_figure(found).savefig(drawn, format=kind, dpi=160)
        pictures[f"{study.experiment.name}.{kind}"] = drawn.getvalue()
    rows = tuple(
        (
            one.name,
            "learnt" if one.sigma is None else f"{one.sigma:g}",
            f"{100 * one.train_accuracy:.1f}",
            f"{100 * one.held_out_accuracy:.1f}",
            f"{one.roughness:.3f}",
        )
        for one in found.surfaces
    )
    columns = ("diffusion", "σ", "training accuracy, %", "held-out accuracy, %", "roughness")
    given = ", ".join(f"{value} {name}" for name, value in study.options.items())
    points = found.fitted.train
    right = 100 * float((points.given == points.labels).float().mean())
    notes = (
        f"{given}, seed 0; {right:.1f} % of the training labels are right, which is what a perfect rule would score",
        "roughness: mean of |∇u| at t = 0 over what is drawn; the paper shows its surfaces without numbers",
    )
    return Made(tables=[Table(study.title, columns, rows, notes)], pictures=pictures)
