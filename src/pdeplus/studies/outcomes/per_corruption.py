"""Table 3: accuracy under each corruption over all severities, mCE and rmCE, with the paper's row below ours."""

from collections.abc import Mapping

from ...corruptions.suite import CORRUPTIONS
from ...evaluation.summary import corruption_accuracies, find_baseline, scores
from ...reports.paper import paper_numbers
from ...reports.tables import MISSING, Table, percent
from ..study import Made, Study, in_words, series_by_label

TOTALS = {"corrupted": "mean", "mce": "mCE", "rmce": "rmCE"}
PAPER = {"corrupted": "acc", "mce": "mce", "rmce": "rmce"}


def make(study: Study) -> Made:
    """A table for each place."""
    return Made(tables=[_table(study, place) for place in study.places])


def _table(study: Study, place: Mapping[str, str]) -> Table:
    done = study.at(place)
    found = series_by_label(done)
    every = [series for group in found.values() for series in group]
    papers = {one.cell.label: one.cell.paper for one in done}
    known = paper_numbers("paper_corruptions", done[0].cell.config.data.name) if done else {}
    rows = list[tuple[str, ...]]()
    for series in every:
        label = series.label.partition(" #")[0]
        each, total = corruption_accuracies(series), scores(series, find_baseline(series, every, "ERM"))
        ours = [percent(each.get(name), 1) for name in CORRUPTIONS] + [percent(total.get(name), 1) for name in TOTALS]
        rows.append((label, *ours))
        paper = known.get(papers[label])
        if paper is not None:
            theirs = [paper[name] for name in CORRUPTIONS] + [paper[PAPER[name]] or MISSING for name in TOTALS]
            rows.append((f"{label}, paper at full scale", *theirs))
    titles = [in_words(name) for name in CORRUPTIONS]
    notes = study.lacking(place)
    return Table(
        study.title_at(place),
        ("method", *titles, *TOTALS.values()),
        tuple(rows),
        (*notes, "accuracies in per cent, mean over the five severities; a paper's row is below ours where it has one"),
    )
