"""The demo: ERM against PDE+ on real digits, clean and corrupted, as a table and a figure."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import torch
from torch import Tensor

from ._errors import UserError
from ._progress import progress_bar
from ._seeds import generator_for
from .config import Config, load_config, to_tables
from .corruptions._frost import describe_frost
from .corruptions.base import Family
from .corruptions.suite import CORRUPTIONS, SUITE, corrupt
from .data.base import Images, index_batches
from .run import Run, build_method, build_source, resume, train

METHODS = {"ERM": "erm", "PDE+": "pde_plus"}
COLOURS = ("#7f8fa6", "#d35400")
SEVERITY = 5


def run_demo(out: str | Path, overrides: Sequence[str] = ()) -> None:
    """Train both methods, test them under the fifteen corruptions, print a table, write it with a figure into `out`.

    Called again with the same folder it goes on where it stopped and trains nothing twice.
    """
    folder = Path(out)
    _check_channels(load_config("demo", overrides))
    runs = {label: _train(folder / name, name, label, overrides) for label, name in METHODS.items()}
    scores = {label: accuracies(run) for label, run in runs.items()}
    table = format_table(scores)
    (folder / "table.md").write_text(table, "utf-8")
    draw_figure(runs, scores, folder / "figure.png")
    print(table)
    gain = _mean_corrupted(scores["PDE+"]) - _mean_corrupted(scores["ERM"])
    print(f"Severity {SEVERITY} of CIFAR-C's corruptions, regenerated; frost: {describe_frost()}")
    print(f"Corrupted, PDE+ is {100 * gain:+.1f} points against ERM (one seed, small data: read it as a taste).")
    print(f"Figure: {folder / 'figure.png'}   Runs: {', '.join(str(run.path) for run in runs.values())}")
    print("Next:   pdeplus train demo data.name=synthetic     another data set, four drawing styles")
    print("        pdeplus train demo method.samples=10       noise at test, averaged over 10 passes")
    print("        pdeplus corrupt digits --sheet sheet.png   all 19 corruptions at a glance")
    print("        pdeplus list methods                       every option of every method")


def accuracies(run: Run) -> dict[str, float]:
    """Accuracy of a run's network on the clean test images and under each of the fifteen corruptions."""
    config = run.config
    network, method = run.model, build_method(config)
    test = next(iter(build_source(config).test().values()))

    def accuracy(pixels: Tensor) -> float:
        correct = 0
        for part in index_batches(torch.arange(len(test)), 250):
            x = pixels[part].permute(0, 3, 1, 2).float().div_(255)
            probabilities = method.predict(network, x, generator_for(config.seed, "demo", int(part[0])))
            correct += int((probabilities.argmax(-1) == test.labels[part]).sum())
        return correct / len(test)

    return {name: accuracy(pixels) for name, pixels in versions(test).items()}


def versions(images: Images) -> dict[str, Tensor]:
    """The images clean and under each corruption, uint8 N×H×W×3."""
    clean = images.images.permute(0, 2, 3, 1).contiguous()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the demo says itself which ice it has
        return {"clean": clean} | {name: corrupt(clean, name, SEVERITY) for name in CORRUPTIONS}


def by_family(row: dict[str, float]) -> dict[str, float]:
    """Clean accuracy, the mean over each family of corruptions, and the mean over all fifteen."""
    families = {family: [row[n] for n in CORRUPTIONS if SUITE[n].family == family] for family in get_args(Family)}
    means = {family: sum(values) / len(values) for family, values in families.items()}
    return {"clean": row["clean"], **means, "mean of 15": _mean_corrupted(row)}


def format_table(scores: dict[str, dict[str, float]]) -> str:
    """Accuracies in per cent as a Markdown table."""
    columns = list(by_family(next(iter(scores.values()))))
    lines = ["| accuracy, % | " + " | ".join(columns) + " |", "|---|" + "---:|" * len(columns)]
    for label, row in scores.items():
        lines.append(f"| {label} | " + " | ".join(f"{100 * value:.1f}" for value in by_family(row).values()) + " |")
    return "\n".join(lines) + "\n"


def draw_figure(runs: dict[str, Run], scores: dict[str, dict[str, float]], path: Path) -> None:
    """What the corruptions look like, what they cost each method, and how accuracy and σ went in training."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure = plt.figure(figsize=(11, 8.5), layout="constrained")
    rows: Any = figure.subfigures(3, 1, height_ratios=[1.1, 1.6, 1.5])
    _show_corruptions(rows[0], next(iter(runs.values())).config)
    _show_bars(rows[1], scores)
    _show_training(rows[2], runs)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _show_corruptions(row: Any, config: Config) -> None:
    test = next(iter(build_source(config).test().values()))
    shown = versions(test.take(torch.arange(1)))
    for axis, (name, pixels) in zip(row.subplots(2, len(shown) // 2).flat, shown.items(), strict=True):
        axis.imshow(pixels[0].numpy())
        axis.set_title(name.replace("_", " "), fontsize=8)
        axis.set_axis_off()


def _show_bars(row: Any, scores: dict[str, dict[str, float]]) -> None:
    axis, width = row.subplots(), 0.8 / len(scores)
    for i, (label, values) in enumerate(scores.items()):
        places = [k + (i - (len(scores) - 1) / 2) * width for k in range(len(values))]
        bars = axis.bar(places, [100 * v for v in values.values()], width, label=label, color=COLOURS[i])
        axis.bar_label(bars, fmt="%.0f", fontsize=7)
    names = [name.replace("_", "\n") for name in next(iter(scores.values()))]
    axis.set_xticks(range(len(names)), names, fontsize=8)
    axis.set(ylabel="test accuracy, %", ylim=(0, 108))
    axis.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=len(scores), frameon=False)


def _show_training(row: Any, runs: dict[str, Run]) -> None:
    learning, scale = row.subplots(1, 2)
    for i, (label, run) in enumerate(runs.items()):
        epochs = [record["epoch"] for record in run.metrics]
        learning.plot(epochs, [100 * r["validation/accuracy"] for r in run.metrics], label=label, color=COLOURS[i])
        for name in [key for key in run.metrics[-1] if key.startswith("sigma/")]:
            scale.plot(epochs, [record[name] for record in run.metrics], label=name.removeprefix("sigma/"))
    learning.set(xlabel="epoch", ylabel="validation accuracy, %")
    learning.legend()
    scale.set(xlabel="epoch", ylabel="mean σ of each ADD block")
    scale.legend()


def _train(folder: Path, method: str, label: str, overrides: Sequence[str]) -> Run:
    config = load_config("demo", [*overrides, f"method.name={method}"])
    begun = (folder / "config.toml").exists()
    if begun and to_tables(Run.load(folder).config) != to_tables(config):
        raise UserError(f"{folder} holds a run with other settings; choose another --out")
    with progress_bar(label) as watch:
        return resume(folder, watch=watch) if begun else train(config, folder, watch=watch)


def _check_channels(config: Config) -> None:
    """Refuse before training what the corruptions cannot take."""
    channels = build_source(config).train().take(torch.arange(1)).images.shape[1]
    if channels != 3:
        raise UserError(f"the demo's corruptions need images of three channels, not {channels}; add data.channels=3")


def _mean_corrupted(row: dict[str, float]) -> float:
    return sum(row[name] for name in CORRUPTIONS) / len(CORRUPTIONS)
