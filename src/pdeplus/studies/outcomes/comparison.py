"""The study's table: accuracy, mCE, rmCE, calibration and cost of every row, differences to some, and a figure."""

from collections.abc import Mapping, Sequence

from ...evaluation.metrics import Difference
from ...evaluation.summary import Series, compare, training_ratio
from ...reports.figures import Figure, Row
from ...reports.paper import paper_numbers
from ...reports.tables import MISSING, Table, percent
from ..analysis.figures import dots_figure
from ..study import Done, Made, Study, describe_place, lines_of

COLUMNS = {
    "clean": "clean",
    "corrupted": "corrupted",
    "severe": "severity 5",
    "mce": "mCE",
    "rmce": "rmCE",
    "ece": "ECE",
    "without_overlaps": "without overlaps",
}
"""Scores and their titles."""
SHOWN = {"clean": "clean", "corrupted": "corrupted", "severe": "severity 5"}
"""Those in the figure."""
_MARKS = "dots: means, bars: lowest to highest seed; × operations of training against ERM"
PAPER = {"clean": "paper: clean", "corrupted": "paper: corrupted"}
_NOTES = (
    "per cent; corrupted: mean over fifteen corruptions and five severities; ± half the 95 % interval over seeds",
    "mCE and rmCE: relative to the ERM of this table; ECE: of the corrupted images",
    "without overlaps: only corruptions that the method's own augmentations do not resemble",
    "cost: operations of training, × ERM's",
    "differences: of corrupted accuracy in points, with the 95 % interval of a paired bootstrap over test images; what "
    "other seeds would change is in it only as far as there are seeds",
    "columns of the paper are its full-scale values, not to be mixed with ours",
)


def make(study: Study) -> Made:
    """A table and a figure for each place; option `against`: labels of the rows to compare with."""
    figures = list[Figure]()
    rows = dict[str, Sequence[Row]]()
    for place in study.places:
        name = "-".join(["methods", *place.values()])
        rows[name] = _dots(study.at(place))
        said = "; ".join(filter(None, [describe_place(place), _MARKS]))
        figures.append(dots_figure(name, study.caption(said), rows[name], "accuracy, %"))
    return Made(tables=[_table(study, place) for place in study.places], figures=figures, rows=rows)


def _dots(done: Sequence[Done]) -> list[Row]:
    """The best under corruptions first; behind each name its cost."""
    scored = [line for line in lines_of(done) if "corrupted" in line.scores]
    rows = list[Row]()
    for line in sorted(scored, key=lambda line: -line.scores["corrupted"].mean):
        name = f"{line.name} ({cost(line.series, line.baseline)} ×)"
        for score, series in SHOWN.items():
            found = line.scores[score]
            low, high = 100 * min(found.values), 100 * max(found.values)
            rows.append({"row": name, "series": series, "x": 100 * found.mean, "low": low, "high": high})
    return rows


def _table(study: Study, place: Mapping[str, str]) -> Table:
    done = study.at(place)
    lines = lines_of(done)
    known = paper_numbers("paper", done[0].cell.config.data.name if done else "")
    first = {line.cell.label: line.series for line in reversed(lines)}
    against = [first[label] for label in study.options.get("against", ()) if label in first]
    rows = [
        (
            line.name,
            str(len(line.series.seeds)),
            *(percent(line.scores.get(score)) for score in COLUMNS),
            cost(line.series, line.baseline),
            *(difference(line.series, other) for other in against),
            *(known.get(line.cell.paper, {}).get(score) or MISSING for score in PAPER),
        )
        for line in lines
    ]
    beside = tuple(f"against {other.label}" for other in against)
    columns = ("method", "seeds", *COLUMNS.values(), "cost", *beside, *PAPER.values())
    return Table(study.title_at(place), columns, tuple(rows), (*study.lacking(place), *_NOTES))


def cost(series: Series, baseline: Series | None) -> str:
    """Operations of training against the baseline's, where both are known."""
    ratio = training_ratio(series, baseline)
    return f"{ratio:.1f}" if ratio else MISSING


def difference(series: Series, other: Series) -> str:
    """Such as "+1.20 (+0.50 to +1.90)"."""
    gain: Difference | None = None if series is other else compare(series, other)
    if gain is None:
        return MISSING
    return f"{100 * gain.mean:+.2f} ({100 * gain.low:+.2f} to {100 * gain.high:+.2f})"
