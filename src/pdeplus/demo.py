"""The demo: ERM against PDE+ on real digits, clean and shifted, as a table and a figure."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ._errors import UserError
from ._progress import progress_bar
from ._seeds import generator_for
from .config import Config, load_config, to_tables
from .data.base import index_batches
from .run import Run, build_method, build_source, resume, train

METHODS = {"ERM": "erm", "PDE+": "pde_plus"}
COLOURS = ("#7f8fa6", "#d35400")


def run_demo(out: str | Path, overrides: Sequence[str] = ()) -> None:
    """Train both methods, test them under shift, print the table and write it with a figure into `out`.

    Called again with the same folder it goes on where it stopped and trains nothing twice.
    """
    folder = Path(out)
    runs = {label: _train(folder / name, name, label, overrides) for label, name in METHODS.items()}
    scores = {label: accuracies(run) for label, run in runs.items()}
    table = format_table(scores)
    (folder / "table.md").write_text(table, "utf-8")
    draw_figure(runs, scores, folder / "figure.png")
    print(table)
    gain = _mean_shifted(scores["PDE+"]) - _mean_shifted(scores["ERM"])
    print(f"Under shift PDE+ is {100 * gain:+.1f} points against ERM (one seed, small data: read it as a taste).")
    print(f"Figure: {folder / 'figure.png'}   Runs: {', '.join(str(run.path) for run in runs.values())}")
    print("Next:   pdeplus train demo data.name=synthetic     another data set, four drawing styles")
    print("        pdeplus train demo method.samples=10       noise at test, averaged over 10 passes")
    print("        pdeplus list methods                       every option of every method")


def gaussian_noise(x: Tensor) -> Tensor:
    """Independent noise of standard deviation 0.25 on every pixel."""
    return (x + 0.25 * torch.randn(x.shape, generator=generator_for(0, "demo"))).clamp(0, 1)


def blur(x: Tensor) -> Tensor:
    """A Gaussian blur of 2.5 pixels."""
    taps = torch.exp(-0.5 * (torch.arange(-7, 8) / 2.5) ** 2)
    kernel = (taps / taps.sum()).repeat(x.shape[1], 1, 1, 1)
    across = F.conv2d(F.pad(x, [7, 7, 0, 0], mode="replicate"), kernel, groups=x.shape[1])
    return F.conv2d(F.pad(across, [0, 0, 7, 7], mode="replicate"), kernel.mT, groups=x.shape[1])


def contrast(x: Tensor) -> Tensor:
    """A fifth of the contrast, about each image's mean."""
    mean = x.mean((1, 2, 3), keepdim=True)
    return mean + 0.2 * (x - mean)


def brightness(x: Tensor) -> Tensor:
    """Half of the range added."""
    return (x + 0.5).clamp(0, 1)


def pixelate(x: Tensor) -> Tensor:
    """A third of the resolution."""
    small = F.interpolate(x, scale_factor=0.34, mode="area")
    return F.interpolate(small, x.shape[-2:], mode="nearest")


SHIFTS: dict[str, Callable[[Tensor], Tensor]] = {
    "noise": gaussian_noise,
    "blur": blur,
    "contrast": contrast,
    "brightness": brightness,
    "pixelate": pixelate,
}


def accuracies(run: Run) -> dict[str, float]:
    """Accuracy of a run's network on the clean test images and on each shifted version."""
    config = run.config
    network, method = run.model, build_method(config)
    test = next(iter(build_source(config).test().values()))

    def accuracy(x: Tensor) -> float:
        correct = 0
        for part in index_batches(torch.arange(len(test)), 250):
            probabilities = method.predict(network, x[part], generator_for(config.seed, "demo", int(part[0])))
            correct += int((probabilities.argmax(-1) == test.labels[part]).sum())
        return correct / len(test)

    return {"clean": accuracy(test.floats())} | {name: accuracy(f(test.floats())) for name, f in SHIFTS.items()}


def format_table(scores: dict[str, dict[str, float]]) -> str:
    """Accuracies in per cent as a Markdown table, with the mean over the shifts."""
    columns = [*next(iter(scores.values())), "mean of shifts"]
    lines = ["| accuracy, % | " + " | ".join(columns) + " |", "|---|" + "---:|" * len(columns)]
    for label, row in scores.items():
        cells = [f"{100 * value:.1f}" for value in (*row.values(), _mean_shifted(row))]
        lines.append(f"| {label} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def draw_figure(runs: dict[str, Run], scores: dict[str, dict[str, float]], path: Path) -> None:
    """What the shifts look like, what they cost each method, and how accuracy and σ went in training."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure = plt.figure(figsize=(10, 7), layout="constrained")
    rows: Any = figure.subfigures(3, 1, height_ratios=[0.7, 1.6, 1.6])
    _show_shifts(rows[0], next(iter(runs.values())).config)
    _show_bars(rows[1], scores)
    _show_training(rows[2], runs)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _show_shifts(row: Any, config: Config) -> None:
    test = next(iter(build_source(config).test().values()))
    examples = test.take(torch.arange(3)).floats()
    versions = {"clean": examples} | {name: shift(examples) for name, shift in SHIFTS.items()}
    for axis, (name, images) in zip(row.subplots(1, len(versions)), versions.items(), strict=True):
        axis.imshow(torch.cat(list(images), 2).permute(1, 2, 0).squeeze(-1).numpy(), cmap="gray", vmin=0, vmax=1)
        axis.set_title(name)
        axis.set_axis_off()


def _show_bars(row: Any, scores: dict[str, dict[str, float]]) -> None:
    axis, width = row.subplots(), 0.8 / len(scores)
    for i, (label, values) in enumerate(scores.items()):
        places = [k + (i - (len(scores) - 1) / 2) * width for k in range(len(values))]
        bars = axis.bar(places, [100 * v for v in values.values()], width, label=label, color=COLOURS[i])
        axis.bar_label(bars, fmt="%.0f", fontsize=8)
    axis.set_xticks(range(len(SHIFTS) + 1), ["clean", *SHIFTS])
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


def _mean_shifted(row: dict[str, float]) -> float:
    shifted = [value for name, value in row.items() if name != "clean"]
    return sum(shifted) / len(shifted)
