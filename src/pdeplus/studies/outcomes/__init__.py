"""What an experiment ends in: `outcome = "NAME"` in its file names one of these functions of a study."""

from collections.abc import Callable, Mapping

from ..study import Outcome, Study
from . import costs, figures, tables

OUTCOMES: Mapping[str, Callable[[Study], Outcome]] = {
    "scores": tables.scores_table,
    "comparison": tables.comparison,
    "domains": tables.domains,
    "per_corruption": tables.per_corruption,
    "distributions": figures.distributions,
    "heat": figures.heat,
    "severity": figures.severity,
    "coverage": figures.coverage,
    "scale": figures.scale,
    "losses": figures.losses,
    "surfaces": figures.surfaces,
    "selection": tables.selection,
    "time_to_accuracy": costs.time_to_accuracy,
    "parts": tables.parts,
}
