"""Table 2: learnt from one domain, tested on each of the others; the paper's values beside ours."""

from ...report.paper import paper_numbers
from ...report.tables import MISSING, Table, percent
from ...summary import cell_accuracies, scores
from ..study import Made, Study, in_words, series_by_label


def make(study: Study) -> Made:
    """One table: rows are source domains and methods, columns target domains."""
    domains = [place[next(iter(place))] for place in study.places]
    rows, notes = list[tuple[str, ...]](), study.all_lacking
    for place, source in zip(study.places, domains, strict=True):
        done = study.at(place)
        papers = {one.cell.label: one.cell.paper for one in done}
        known = paper_numbers("paper_domains", source) if done and done[0].cell.config.data.name == "pacs" else {}
        for label, group in series_by_label(done).items():
            for series in group:
                each = {name: value for (name, _), value in cell_accuracies(series).items()}
                found = scores(series)
                paper = known.get(papers[label], {})
                ours = [percent(each.get(name), 1) for name in domains] + [percent(found.get("domains"), 1)]
                theirs = [paper.get(name) or MISSING for name in (*domains, "mean")]
                rows.append((source, label, percent(found.get("clean"), 1), *ours, *theirs))
    columns = [in_words(name) for name in domains]
    titles = ("source", "method", "own domain", *columns, "mean", *(f"paper: {c}" for c in (*columns, "mean")))
    notes.append("accuracy in per cent; own domain: its held-out part; mean: over the three others")
    notes.append("columns of the paper are its full-scale values, not to be mixed with ours")
    return Made(tables=[Table(study.title, titles, tuple(rows), tuple(notes))])
