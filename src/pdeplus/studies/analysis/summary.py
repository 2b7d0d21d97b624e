"""Everything that finished runs tell about themselves, as figures, tables and one summary.

Here too are the sections that need no network: losses, accuracies and σ over training, and accuracy against severity.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from ..._lib.files import write_file
from ..._lib.registry import require
from ...corruptions.base import SEVERITIES
from ...errors import UserError, check_least
from ...evaluation.records import CLEAN, RECORDS, Record, read_records
from ...reports.charts import ACCURACY, LOSS, SIGMA, severity_lines
from ...reports.figures import Figure, Row, Spec
from ...reports.inputs import groups_of
from ...reports.tables import MISSING, Table, escape_markdown
from ...training.run_folder import Run, build_method
from .boundary import boundary_section
from .coverage import coverage_section
from .figures import faceted, lines_figure, over_epochs, save_figure, save_rows
from .probes import Question, Section
from .smoothness import smoothness_section


def analyse(runs: Sequence[Run], out: str | Path, *, images: int = 256, seed: int = 0) -> Path:
    """Write every analysis that the runs allow into a folder, and return its summary.md.

    Each figure comes as PNG, SVG and PDF, each table as CSV; files of an earlier analysis are replaced. What a run does
    not allow is said in the summary; that nothing at all can be analysed is an error. Of each run at most so many
    validation images are used, which were never learnt from.
    """
    check_least("images", images, 1)
    require("vl_convert", purpose="pdeplus analyse", extra="plots")  # before any network is run
    question = Question(runs=label_runs(runs), images=images, seed=seed)
    folder, gaps, sections = Path(out), dict[str, list[str]](), dict[str, Section]()
    for title, find in SECTIONS.items():
        gaps[title] = []
        try:
            sections[title] = find(question, gaps[title])
        except UserError as error:
            gaps[title].append(str(error))
            continue
        save_figure(sections[title].figure, folder)
        for name, rows in sections[title].tables.items():
            save_rows(rows, folder, name)
    if not sections:
        raise UserError("nothing can be analysed: " + "; ".join(dict.fromkeys(sum(gaps.values(), list[str]()))))
    write_file(folder / "summary.md", _summary(question, sections, gaps).encode())
    return folder / "summary.md"


def label_runs(runs: Sequence[Run]) -> dict[str, Run]:
    """Each run under a label of its own: its method, and its data, seed or folder where the method does not tell."""
    unique = list({run.path.resolve(): run for run in runs}.values())
    if not unique:
        raise UserError("runs is empty; give at least one run folder")
    configs = [run.config for run in unique]
    labels = [build_method(config).label for config in configs]
    data, seeds = [config.data.name for config in configs], [f"seed {config.seed}" for config in configs]
    for more in (data, seeds, [run.path.resolve().name for run in unique], [str(run.path) for run in unique]):
        alike = {label: {word for other, word in zip(labels, more, strict=True) if other == label} for label in labels}
        labels = [
            f"{label}, {word}" if alike[label] != {word} else label for label, word in zip(labels, more, strict=True)
        ]
    return dict(zip(labels, unique, strict=True))


def _summary(question: Question, sections: Mapping[str, Section], gaps: Mapping[str, list[str]]) -> str:
    """What was found, what it shows and what is missing, in Markdown."""
    columns = ("run", "folder", "data", "epochs", "validation accuracy, %", "kept epochs")
    rows = list[tuple[str, ...]]()
    for label, run in question.runs.items():
        metrics, config = run.metrics, run.config
        done = f"{len(metrics)} of {config.train.epochs}"
        accuracy = f"{100 * metrics[-1]['validation/accuracy']:.2f}" if metrics else MISSING
        rows.append((label, run.path.resolve().name, config.data.name, done, accuracy, str(len(run.kept))))
    runs = Table("Runs", columns, tuple(rows))
    about = (
        f"Images: at most {question.images} of each run's own validation images, drawn with seed {question.seed}; none "
        "of them was learnt from, none is a test image. The test images are in the section on severity alone."
    )
    parts = ["# Analysis", runs.to_markdown(), about, *(_chapter(*one) for one in sections.items())]
    missing = list[str]()
    for title, reason in ((title, reason) for title, found in gaps.items() for reason in found):
        for run in sorted(question.runs.values(), key=lambda run: -len(str(run.path))):
            reason = reason.replace(str(run.path), run.path.name)  # the summary may go where the folders do not
        missing.append(f"- {title}: {escape_markdown(reason)}")
    if missing:
        parts.append("\n".join(["## What could not be made", "", *missing]))
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _chapter(title: str, section: Section) -> str:
    figure = section.figure
    formats = ", ".join(f"[{ending.upper()}]({figure.name}.{ending})" for ending in ("png", "svg", "pdf"))
    tables = ", ".join(f"[{name}.csv]({name}.csv)" for name in section.tables)
    picture = f"![{figure.caption}]({figure.name}.png)"
    return "\n\n".join([f"## {title}", picture, section.words, f"Figure: {formats}. Numbers: {tables}."])


CURVES = {
    f"{LOSS}coverage": ("coverage loss", 1.0),
    f"{LOSS}task": ("task loss (cross-entropy)", 1.0),
    "accuracy": ("training accuracy, %", 100.0),
    ACCURACY: ("validation accuracy, %", 100.0),
}
"""What the metrics call them, what the figure does, and in which units, in the paper's order of columns."""


def curve_rows(runs: Mapping[str, Run]) -> list[Row]:
    """Run (its label), epoch, metric and value, accuracies in per cent; a run has what its method logs of the four."""
    rows = [
        {"run": label, "epoch": record["epoch"], "metric": shown, "value": unit * record[name]}
        for name, (shown, unit) in CURVES.items()
        for label, run in runs.items()
        for record in run.metrics
        if name in record
    ]
    if not rows:
        raise UserError(f"no epoch is done in {', '.join(runs) or 'no run'}; train one first")
    return rows


def curves_figure(rows: Sequence[Row], title: str) -> Figure:
    """A column for each quantity with its own axis, a line for each run."""
    drawn = [{"series": row["run"], "x": row["epoch"], "y": row["value"], "metric": row["metric"]} for row in rows]
    return faceted(over_epochs("curves", title, drawn, ""), column="metric", own_axis=True)


def curves_section(question: Question, gaps: list[str]) -> Section:
    """Losses and accuracies over training."""
    rows = curve_rows(question.runs)
    words = (
        "Losses and training accuracy are means over each epoch while the network learns, with noise and on augmented "
        "images where the method has them; validation accuracy is that of the network as it predicts, after the epoch. "
        "The coverage loss is −log p of the augmented features under the diffused sample, without constants; only "
        "methods that learn σ have it."
    )
    figure = curves_figure(rows, "Losses and accuracies during training")
    return Section(words=words, figure=figure, tables={"curves": rows})


def scale_rows(runs: Mapping[str, Run]) -> list[Row]:
    """Run (its label), epoch, block and sigma: the mean over the epoch's training images and all elements.

    A run without ADD blocks gives no row; where none gives any, that is refused.
    """
    rows = [
        {"run": label, "epoch": record["epoch"], "block": name.removeprefix(SIGMA), "sigma": float(value)}
        for label, run in runs.items()
        for record in run.metrics
        for name, value in record.items()
        if name.startswith(SIGMA)
    ]
    if not rows:
        raise UserError(f"no σ in the metrics of {', '.join(runs) or 'no run'}; train one with method.name=pde_plus")
    return rows


def scale_figure(rows: Sequence[Row], title: str) -> Figure:
    """A panel for each run, a line for each block."""
    drawn = [{"series": row["block"], "x": row["epoch"], "y": row["sigma"], "run": row["run"]} for row in rows]
    return faceted(over_epochs("scale", title, drawn, "mean σ"), column="run")


def scale_section(question: Question, gaps: list[str]) -> Section:
    """The mean σ of every block over training."""
    rows = scale_rows(question.runs)
    shown = {row["run"] for row in rows}
    gaps += [f"{label}: its method learns no σ" for label in question.runs if label not in shown]
    words = (
        "σ is the scale of the noise that each ADD block learns, a mean over the epoch's training images and all "
        "elements of the block's features. Follow it within a block; features of different blocks differ in size."
    )
    figure = scale_figure(rows, "Mean diffusion scale σ of each ADD block during training")
    return Section(words=words, figure=figure, tables={"scale": rows})


def severity_rows(records: Iterable[Record]) -> list[Row]:
    """Data, series, severity (0 is clean), accuracy in per cent, and the ends of its 95 % interval over seeds.

    Accuracy is the mean over the fifteen corruptions; a severity at which one of them is missing has no row. Images
    of different origin are different data.
    """
    groups = [group for group in groups_of(records, "ERM") if group.suite == "corruptions"]  # no score has a baseline
    named = Counter(group.data for group in groups)
    rows = [
        {"data": group.data if named[group.data] == 1 else group.title, "series": row["series"]}
        | {"severity": 0 if row["x"] == CLEAN else row["x"]}
        | {"accuracy": row["y"], "low": row["low"], "high": row["high"]}
        for group in groups
        for row in severity_lines(group).rows
    ]
    if not rows:
        raise UserError("no record covers the fifteen corruptions at any severity: pdeplus evaluate RUN makes them")
    return rows


def severity_figure(rows: Sequence[Row], title: str) -> Figure:
    """A panel for each data set, a line for each series, bands for the intervals."""
    drawn = [
        {"series": row["series"], "x": row["severity"] or CLEAN, "y": row["accuracy"]}
        | {key: row[key] for key in ("low", "high", "data")}
        for row in rows
    ]
    x: Spec = {"field": "x", "type": "ordinal", "sort": [CLEAN, *SEVERITIES], "title": "severity"}
    figure = lines_figure("severity", title, drawn, x | {"axis": {"labelAngle": 0}}, "accuracy, %", band=True)
    return faceted(figure, column="data")


def severity_section(question: Question, gaps: list[str]) -> Section:
    """Accuracy against severity."""
    records, lacking = list[Record](), list[str]()
    for label, run in question.runs.items():
        if (run.path / RECORDS).is_file():
            records += read_records(run.path / RECORDS)
        else:
            lacking.append(f"{label}: it was not evaluated yet: pdeplus evaluate {run.path}")
    if not records:
        raise UserError("; ".join(lacking))
    rows = severity_rows(records)
    gaps += lacking
    selections = ", ".join(sorted({record.selection for record in records}))
    words = (
        f"Accuracy on the test images, clean and at each severity, a mean over the fifteen corruptions; bands are 95 % "
        f"intervals over seeds, where there are several. Weights selected by: {selections}."
    )
    figure = severity_figure(rows, "Accuracy against the severity of corruption")
    return Section(words=words, figure=figure, tables={"severity": rows})


SECTIONS: dict[str, Callable[[Question, list[str]], Section]] = {
    "Training curves": curves_section,
    "Diffusion scale": scale_section,
    "Diffusion coverage": coverage_section,
    "Severity": severity_section,
    "Smoothness": smoothness_section,
    "σ and the decision boundary": boundary_section,
}
"""What an analysis consists of, in this order."""
