"""Table 2: learnt from one domain, tested on each of the others; the paper's values beside ours, and a figure."""

from collections.abc import Sequence

from ...evaluation.summary import Series, accuracies_by_test, scores
from ...reports.figures import Row
from ...reports.paper import paper_numbers
from ...reports.tables import MISSING, Table, percent
from ..analysis.figures import dots_figure
from ..study import Made, Study, in_words, series_by_label
from .comparison import difference

_NOTES = (
    "accuracy in per cent, ± half the 95 % interval over seeds; own domain: its held-out part; mean: over the others",
    "differences: of the mean in points, with the 95 % interval of a paired bootstrap over test images; what other "
    "seeds would change is in it only as far as there are seeds",
    "columns of the paper are its full-scale values, not to be mixed with ours",
)


def make(study: Study) -> Made:
    """Rows are source domains and methods, columns target domains; option `against`: methods to compare with."""
    domains = [place[next(iter(place))] for place in study.places]
    against: list[str] = list(study.options.get("against", ()))
    rows, dots = list[tuple[str, ...]](), list[Row]()
    for place, source in zip(study.places, domains, strict=True):
        done = study.at(place)
        papers = {one.cell.label: one.cell.paper for one in done}
        known = paper_numbers("paper_domains", source) if done and done[0].cell.config.data.name == "pacs" else {}
        by_label = series_by_label(done)
        for label, group in by_label.items():
            for series in group:
                each = {name: value for (name, _), value in accuracies_by_test(series).items()}
                found = scores(series)
                paper = known.get(papers[label], {})
                ours = [percent(each.get(name), 1) for name in domains] + [percent(found.get("domains"), 1)]
                gains = [difference(series, by_label[other][0]) if other in by_label else MISSING for other in against]
                theirs = [paper.get(name) or MISSING for name in (*domains, "mean")]
                rows.append((source, label, percent(found.get("clean"), 1), *ours, *gains, *theirs))
        dots += _dots(in_words(source), [series for group in by_label.values() for series in group])
    columns = [in_words(name) for name in domains]
    beside = (*(f"against {other}" for other in against), *(f"paper: {c}" for c in (*columns, "mean")))
    titles = ("source", "method", "own domain", *columns, "mean", *beside)
    table = Table(study.title, titles, tuple(rows), (*study.all_lacking, *_NOTES))
    said = "learnt from one domain, tested on the others; dots: means, bars: lowest to highest seed"
    figure = dots_figure("domains", study.caption(said), dots, "mean accuracy on the other domains, %")
    return Made(tables=[table], figures=[figure] if dots else [], rows={"domains": dots})


def _dots(source: str, group: Sequence[Series]) -> list[Row]:
    rows = list[Row]()
    for series in group:
        found = scores(series).get("domains")
        if found:
            x, low, high = (100 * value for value in (found.mean, min(found.values), max(found.values)))
            rows.append({"row": source, "series": series.label, "x": x, "low": low, "high": high})
    return rows
