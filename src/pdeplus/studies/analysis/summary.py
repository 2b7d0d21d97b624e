"""Everything that finished runs tell about themselves, as figures, tables and one summary."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ..._lib.files import write_file
from ...errors import UserError
from ...reports.tables import MISSING, Table, escape_markdown
from ...training.run_folder import Run, build_method
from .boundary import boundary_section
from .coverage import coverage_section
from .figures import save_figure, save_rows
from .probes import Question, Section
from .smoothness import smoothness_section
from .trends import curves_section, scale_section, severity_section

SECTIONS: dict[str, Callable[[Question, list[str]], Section]] = {
    "Training curves": curves_section,
    "Diffusion scale": scale_section,
    "Diffusion coverage": coverage_section,
    "Severity": severity_section,
    "Smoothness": smoothness_section,
    "σ and the decision boundary": boundary_section,
}


def analyse(runs: Sequence[Run], out: str | Path, *, images: int = 256, seed: int = 0) -> Path:
    """Write every analysis that the runs allow into a folder, and return its summary.md.

    Each figure comes as PNG, SVG and PDF, each table as CSV. What a run does not allow is said in the summary; that
    nothing at all can be made is an error. Images are validation images of each run, never learnt from.

    Args:
        runs: at least one; they may differ in everything.
        out: the folder; files of an earlier analysis are replaced.
        images: at most so many of each run's validation images.
        seed: of the choice of images, of the views and of the random directions.
    """
    if images < 1:
        raise UserError(f"images={images} must be at least 1")
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
    """What was found, what it shows and what could not be made, in Markdown."""
    about = (
        f"Images: at most {question.images} of each run's own validation images, drawn with seed {question.seed}; none "
        "of them was learnt from, none is a test image. The test images are in the section on severity alone."
    )
    parts = ["# Analysis", _runs_table(question).to_markdown(), about, *(_chapter(*one) for one in sections.items())]
    reasons = [(title, _without_paths(reason, question)) for title, found in gaps.items() for reason in found]
    missing = [f"- {title}: {escape_markdown(reason)}" for title, reason in reasons]
    if missing:
        parts.append("\n".join(["## What could not be made", "", *missing]))
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _chapter(title: str, section: Section) -> str:
    figure = section.figure
    formats = ", ".join(f"[{ending.upper()}]({figure.name}.{ending})" for ending in ("png", "svg", "pdf"))
    tables = ", ".join(f"[{name}.csv]({name}.csv)" for name in section.tables)
    picture = f"![{figure.caption}]({figure.name}.png)"
    return "\n\n".join([f"## {title}", picture, section.words, f"Figure: {formats}. Numbers: {tables}."])


def _without_paths(reason: str, question: Question) -> str:
    """Runs by the names of their folders: the summary may go where these do not."""
    for run in sorted(question.runs.values(), key=lambda run: -len(str(run.path))):
        reason = reason.replace(str(run.path), run.path.name)
    return reason


def _runs_table(question: Question) -> Table:
    columns = ("run", "folder", "data", "epochs", "validation accuracy, %", "kept epochs")
    rows = list[tuple[str, ...]]()
    for label, run in question.runs.items():
        metrics, config = run.metrics, run.config
        done = f"{len(metrics)} of {config.train.epochs}"
        accuracy = f"{100 * metrics[-1]['validation/accuracy']:.2f}" if metrics else MISSING
        rows.append((label, run.path.resolve().name, config.data.name, done, accuracy, str(len(run.kept))))
    return Table("Runs", columns, tuple(rows))
