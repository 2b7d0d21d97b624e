"""Fixed against adaptive diffusion: accuracy under each corruption, a column for each network."""

from ...corruptions.suite import CORRUPTIONS
from ...evaluation.summary import corruption_accuracies
from ...reports.figures import Figure, Row
from ...reports.tables import Table, percent
from ..study import Made, Study, in_words, series_by_label


def make(study: Study) -> Made:
    """The table and the heat map; the best of each corruption has a frame."""
    found = {label: corruption_accuracies(group[0]) for label, group in series_by_label(study.done).items()}
    lines = tuple((in_words(name), *(percent(each.get(name), 1) for each in found.values())) for name in CORRUPTIONS)
    squares: list[Row] = [
        {
            "corruption": in_words(name),
            "network": label,
            "accuracy": round(100 * each[name].mean, 2),
            "shown": percent(each[name], 1).split()[0],
        }
        for label, each in found.items()
        for name in CORRUPTIONS
        if name in each
    ]
    for name in CORRUPTIONS:
        here = [square for square in squares if square["corruption"] == in_words(name)]
        for square in here:
            square["best"] = square["accuracy"] == max(one["accuracy"] for one in here)
    notes = study.all_lacking
    notes.append("accuracy in per cent, mean over five severities; the paper gives this as a figure without numbers")
    table = Table(study.title, ("corruption", *found), lines, tuple(notes))
    return Made(tables=[table], figures=[_figure(study, squares, list(found))], rows={study.experiment.name: squares})


def _figure(study: Study, squares: list[Row], networks: list[str]) -> Figure:
    names = [in_words(name) for name in CORRUPTIONS]
    axis = {"labelAngle": 0, "orient": "top", "labelLimit": 120}
    x = {"field": "network", "type": "nominal", "sort": networks, "title": "scale of the diffusion", "axis": axis}
    y = {"field": "corruption", "type": "nominal", "sort": names, "title": None}
    scale = {"scheme": "viridis"}
    colour = {"field": "accuracy", "type": "quantitative", "scale": scale, "legend": {"title": "accuracy, %"}}
    inside = {"width": {"band": 0.96}, "height": {"band": 0.9}}  # so that no neighbour covers a side of it
    frame = {"type": "rect", "filled": False, "stroke": "#C1121F", "strokeWidth": 2.5, **inside}
    dark = "luminance(scale('color', datum.accuracy)) < 0.179"  # where white and black stand out alike
    text = {"field": "shown", "type": "nominal"}  # as in the table, ties included
    shade = {"condition": {"test": dark, "value": "white"}, "value": "black"}
    layer = [
        {"mark": "rect", "encoding": {"color": colour}},
        {"mark": frame, "transform": [{"filter": "datum.best"}]},
        {"mark": {"type": "text", "fontSize": 11}, "encoding": {"text": text, "color": shade}},
    ]
    spec = {"width": 62 * len(networks), "height": 22 * len(names), "encoding": {"x": x, "y": y}, "layer": layer}
    caption = study.caption("framed: the best under each corruption")
    return Figure(name=study.experiment.name, caption=caption, spec=spec, rows=squares)
