"""Draw the figures of the documentation into docs/figures: `make figures`.

    python tools/figures.py method cost
    python tools/figures.py answers sigma --models runs/erm runs/pde --data cifar10

`method` and `cost` need only the repository; `answers` and `sigma` need the test images (`pdeplus data get cifar10`)
and take the networks of results/weights unless others are named.
"""

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import torch
from matplotlib import pyplot as plt
from torch import Tensor, nn
from torch.nn import functional as F

import pdeplus as pp
from pdeplus._lib import registry
from pdeplus.data.base import Images, Source
from pdeplus.evaluation.summary import scores, series_of
from pdeplus.training.run_folder import build_method

ROOT = Path(__file__).parents[1]
MODELS = [ROOT / "results" / "weights" / name for name in ("erm", "augmix", "pde_plus")]
PER_ELEMENT = ROOT / "results" / "weights" / "pde_plus_per_element"
"""Whose σ differs over an image."""
STAGES = 4
LIGHT = {
    "paper": "#ffffff",
    "ink": "#1f2328",
    "faint": "#6e7781",
    "box": "#eaeef2",
    "blue": "#0969da",
    "red": "#cf222e",
}
DARK = {"paper": "#0d1117", "ink": "#e6edf3", "faint": "#8b949e", "box": "#21262d", "blue": "#58a6ff", "red": "#ff7b72"}


def method_figure() -> str:
    """PDE+ in one figure, as SVG that follows the reader's light or dark scheme."""
    parts = [_text(24, 34, "PDE+: adaptive distributional diffusion", "title")]
    parts += [_box(24, 70, 92, 56, "image x", "box"), _box(24, 150, 92, 56, "view a(x)", "box")]
    for k in range(STAGES):
        left = 160 + 178 * k
        parts += [_arrow(left - 40, 138, left - 4, 138), _box(left, 108, 84, 60, f"stage {k + 1}", "box")]
        parts += [_arrow(left + 84, 138, left + 98, 138), _box(left + 100, 112, 38, 52, "+σε", "add")]
    end = 160 + 178 * STAGES
    parts += [_arrow(end - 40, 138, end - 4, 138), _box(end, 108, 70, 60, "head", "box")]
    parts += [_text(end + 35, 188, "prediction", "small", "middle")]
    parts += ['<path class="line" d="M116 98 C 124 98 120 138 132 138 M116 178 C 124 178 120 138 132 138"/>']
    parts += ['<path class="guide" d="M260 168 L 150 248 M294 168 L 430 248"/>']
    parts += [
        '<rect class="frame" x="24" y="248" width="500" height="156" rx="8"/>',
        _text(40, 274, "An ADD block", "strong"),
    ]
    parts += [_text(46, 326, "h", "math"), _arrow(62, 320, 92, 320)]
    parts += [
        _box(96, 294, 142, 52, "small network g", "add"),
        _arrow(238, 320, 266, 320),
        _text(272, 326, "σ", "math red"),
    ]
    parts += [_arrow(290, 320, 318, 320), _text(326, 326, "h + σ·ε,  ε ~ N(0, I)", "math")]
    parts += ['<path class="line" d="M54 334 V 372 H 340 V 342" marker-end="url(#tip)"/>']
    parts += [_text(214, 392, "off at test time: the plain network, no extra cost", "small", "middle")]
    parts += [
        '<rect class="frame" x="548" y="248" width="394" height="156" rx="8"/>',
        _text(564, 274, "What σ learns", "strong"),
    ]
    parts += ['<circle class="cloud" cx="644" cy="336" r="54"/><circle class="cloud" cx="644" cy="336" r="28"/>']
    parts += ['<circle class="dot" cx="644" cy="336" r="5"/>', _text(630, 328, "h", "math", "end")]
    parts += [
        f'<circle class="twin" cx="{x}" cy="{y}" r="4.5"/>' for x, y in ((676, 312), (618, 366), (686, 352), (632, 298))
    ]
    parts += [_text(690, 310, "h of views", "small red"), _text(770, 322, "coverage loss:", "strong")]
    parts += [
        _text(770, 344, "−log N(h of view; h, σ²)", "small"),
        _text(770, 366, "wide where views differ,", "small"),
    ]
    parts += [_text(770, 384, "narrow where they agree", "small")]
    return _svg(968, 424, parts)


def _svg(width: int, height: int, parts: Iterable[str]) -> str:
    style = (
        "text{font-family:system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif;font-size:15px;fill:var(--ink)}"
        ".title{font-size:19px;font-weight:600}.strong{font-weight:600}.small{font-size:13px}"
        ".math{font-size:18px;font-style:italic}.red{fill:var(--red)}.box{fill:var(--box);stroke:var(--faint)}"
        ".add{fill:none;stroke:var(--red);stroke-width:2}.line{fill:none;stroke:var(--ink);stroke-width:1.5}"
        ".guide{stroke:var(--faint);stroke-dasharray:4 4;fill:none}.frame{fill:none;stroke:var(--faint)}"
        ".cloud{fill:var(--blue);fill-opacity:.18}.dot{fill:var(--blue)}.twin{fill:var(--red)}"
        "#tip path{fill:var(--ink)}"
    )
    light, dark = (";".join(f"--{name}:{value}" for name, value in colours.items()) for colours in (LIGHT, DARK))
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img">',
        "<title>PDE+: ADD blocks behind the stages of a network, and how their scale is learned</title>",
        f"<style>svg{{{light}}}@media(prefers-color-scheme:dark){{svg{{{dark}}}}}{style}</style>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0 L8 4 L0 8 z"/></marker></defs>',
        f'<rect width="{width}" height="{height}" rx="10" style="fill:var(--paper)"/>',
        *parts,
        "</svg>\n",
    ])  # fmt: skip


def _text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    return f'<text x="{x}" y="{y}" class="{kind}" text-anchor="{anchor}">{words}</text>'


def _box(x: float, y: float, width: float, height: float, words: str, kind: str) -> str:
    shape = f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}" rx="6"/>'
    return shape + _text(x + width / 2, y + height / 2 + 5, words, "red" if words == "+σε" else "", "middle")


def _arrow(x: float, y: float, to_x: float, to_y: float) -> str:
    return f'<path class="line" d="M{x} {y} L{to_x} {to_y}" marker-end="url(#tip)"/>'


def cost_points(path: Path, unit: float | None = None) -> tuple[dict[str, tuple[float, float]], float]:
    """Training cost and corrupted accuracy in per cent of each method, and the FLOPs that are the unit: ERM's."""
    series = [one for one in series_of(pp.read_records(path)) if one.suite == "corruptions" and one.any.train_flops]
    unit = unit or next(one.any.train_flops for one in series if one.label == "ERM")
    found = {one.label: scores(one).get("corrupted") for one in series}
    costs = {one.label: one.any.train_flops / unit for one in series}
    return {name: (costs[name], 100 * value.mean) for name, value in found.items() if value}, unit


def cost_figure(results: Path, methods: str, compute: str) -> Any:
    """Corrupted accuracy against training cost, and where there are records the same FLOPs for all."""
    points, unit = cost_points(results / methods / "records.jsonl")
    equal = results / compute / "records.jsonl"
    longer = cost_points(equal, unit)[0] if equal.is_file() else {}
    figure, axis = plt.subplots(figsize=(8.5, 5), layout="constrained")
    axis.set_xscale("log")
    for name, (cost, accuracy) in points.items():
        own = name.startswith("PDE+") or "diffused" in name
        axis.plot(cost, accuracy, "o", color="tab:red" if own else "tab:blue", ms=7)
    texts = [(cost, accuracy, name) for name, (cost, accuracy) in points.items()]
    for name, (cost, accuracy) in longer.items():
        if name in points and abs(cost / points[name][0] - 1) > 0.02:
            axis.plot(cost, accuracy, "o", mfc="white", color="tab:blue", ms=7)
            line = {"arrowstyle": "->", "color": "0.75", "shrinkA": 5, "shrinkB": 5}
            axis.annotate("", (cost, accuracy), points[name], arrowprops=line)
    most = max(3.3, *(1.3 * cost for cost, *_ in texts))  # a tenth more must not look like twice as much
    axis.set_xlim(0.7, most)
    _label_points(axis, texts, list(longer.values()))
    ticks = [tick for tick in (1, 1.5, 2, 3, 5, 8) if tick < most]
    axis.set_xticks(ticks, [f"{tick:g} ×" for tick in ticks])
    axis.minorticks_off()
    axis.set_xlabel("training FLOPs, relative to ERM's")
    axis.set_ylabel("accuracy under corruptions, %")
    notes = [("tab:red", "tab:red", "with diffusion: PDE+ and its variants"), ("tab:blue", "tab:blue", "without")]
    notes += [("tab:blue", "white", "the FLOPs of PDE+ (more or fewer epochs)")] if longer else []
    handles = [axis.plot([], [], "o", color=edge, mfc=face, label=words)[0] for edge, face, words in notes]
    axis.legend(handles=handles, frameon=False, fontsize=9, loc="lower right")
    axis.spines[["top", "right"]].set_visible(False)
    return figure


def _label_points(axis: Any, points: list[tuple[float, float, str]], others: list[tuple[float, float]]) -> None:
    """Names beside their points, each where no other name or point stands; far ones with a line."""
    axis.margins(x=0.12, y=0.08)
    axis.figure.canvas.draw()
    half = 4.5 * axis.figure.dpi / 72
    dots = [axis.transData.transform(point[:2]) for point in [*points, *others]]
    taken = [mpl.transforms.Bbox.from_bounds(x - half, y - half, 2 * half, 2 * half) for x, y in dots]
    around = ((7, -3), (0, 7), (0, -13), (-7, -3), (6, 6), (6, -12), (-6, 6), (-6, -12))
    offsets = [(dx * reach, dy * reach) for reach in (1, 2, 3, 4, 5) for dx, dy in around]
    for cost, accuracy, name in sorted(points, key=lambda point: -point[1]):
        for dx, dy in offsets:
            align = "left" if dx > 0 else "right" if dx < 0 else "center"
            spot = (cost, accuracy), (dx, dy)
            text = axis.annotate(name, *spot, textcoords="offset points", ha=align, fontsize=8)
            box = text.get_window_extent(axis.figure.canvas.get_renderer())
            if not any(box.overlaps(other) for other in taken) or (dx, dy) == offsets[-1]:
                break
            text.remove()
        taken.append(box)
        if abs(dx) + abs(dy) > 14:
            line = {"arrowstyle": "-", "color": "0.6", "lw": 0.6}
            axis.annotate("", spot[0], (dx, dy + 3), textcoords="offset points", arrowprops=line)


def network_of(path: Path) -> tuple[str, nn.Module]:
    """A method's label and its trained network, of a run folder or a shared one."""
    run = pp.Run.load(path)
    return build_method(run.config).label, run.model


def answers_figure(models: dict[str, nn.Module], data: Source, test: Images, name: str, severity: int) -> Any:
    """One picture, clean and corrupted, and each model's three most probable classes."""
    chosen = _telling_image(models, test, name, severity)
    clean = test.take(torch.tensor([chosen])).images
    pictures = {"clean": clean, f"{name.replace('_', ' ')}, severity {severity}": _corrupted(clean, name, severity)}
    figure, axes = plt.subplots(2, 1 + len(models), figsize=(2.2 + 2.6 * len(models), 4.6), layout="constrained")
    truth = int(test.labels[chosen])
    for row, (words, image) in enumerate(pictures.items()):
        axes[row, 0].imshow(image[0].permute(1, 2, 0).numpy())
        axes[row, 0].set_title(f"{words}\n({data.classes[truth]})" if row == 0 else words, fontsize=10)
        axes[row, 0].set_axis_off()
        for column, (label, net) in enumerate(models.items(), start=1):
            likely, which = _probabilities(net, image)[0].topk(3)
            axis = axes[row, column]
            colours = ["tab:green" if int(k) == truth else "0.7" for k in which]
            axis.barh(range(3), 100 * likely.numpy(), color=colours)
            for place, k in enumerate(which):
                axis.text(
                    2, place, f"{data.classes[int(k)]}  {100 * float(likely[place]):.0f} %", va="center", fontsize=10
                )
            axis.invert_yaxis()
            axis.set(xlim=(0, 100), yticks=[], xticks=[])
            axis.set_title(label if row == 0 else "", fontsize=11)
            axis.spines[:].set_visible(False)
    return figure


def _telling_image(models: dict[str, nn.Module], test: Images, name: str, severity: int) -> int:
    """The first image that all models get right when clean and that not all get right when corrupted."""
    some = test.take(torch.arange(min(len(test), 500)))
    plain = torch.stack([_probabilities(net, some.images).argmax(1) == some.labels for net in models.values()])
    hard = _corrupted(some.images, name, severity)
    corrupted = torch.stack([_probabilities(net, hard).argmax(1) == some.labels for net in models.values()])
    telling = (plain.all(0) & corrupted.any(0) & ~corrupted.all(0)).nonzero()
    return int(telling[0]) if len(telling) else 0


def _corrupted(images: Tensor, name: str, severity: int) -> Tensor:
    rows = images.permute(0, 2, 3, 1).expand(-1, -1, -1, 3).contiguous()
    constants = "cifar" if rows.shape[1] <= 48 else "tiny" if rows.shape[1] <= 128 else "imagenet"
    return pp.corrupt(rows, name, severity, constants=constants).permute(0, 3, 1, 2)


@torch.no_grad()
def _probabilities(net: nn.Module, images: Tensor) -> Tensor:
    return torch.cat([net(part.float() / 255).softmax(1) for part in images.split(250)])


def sigma_figure(net: nn.Module, test: Images, count: int = 5) -> Any:
    """Pictures above σ over them, averaged over channels, one row for each ADD block."""
    images = test.take(torch.arange(count)).floats()
    with torch.no_grad(), pp.diffusion(net, generator=torch.Generator().manual_seed(0)) as trace:
        net(images)
    rows = 1 + len(trace.scales)
    figure, axes = plt.subplots(rows, count, figsize=(1.7 * count + 1, 1.7 * rows), layout="constrained")
    for column, image in enumerate(images):
        axes[0, column].imshow(image.permute(1, 2, 0).numpy())
    for row, scale in enumerate(trace.scales, start=1):
        maps = F.interpolate(scale.mean(1, keepdim=True), size=images.shape[-2:], mode="bilinear")[:, 0]
        low, high = np.percentile(maps.numpy(), [1, 99])
        for column, one in enumerate(maps):
            shown = axes[row, column].imshow(one.numpy(), vmin=low, vmax=high, cmap="magma")
        figure.colorbar(shown, ax=axes[row], label=f"σ, block {row}")
    for axis in axes.flat:
        axis.set_axis_off()
    return figure


def save(figure: Any, path: Path) -> None:
    """Without a date, so that equal records give equal files."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=160, metadata={"Software": None})
    plt.close(figure)
    print(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("figures", nargs="*", default=["method", "cost"], help="method, cost, answers, sigma")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "figures", metavar="DIR")
    parser.add_argument("--results", type=Path, default=ROOT / "results", metavar="DIR", help="where the records are")
    parser.add_argument("--methods", default="study_fast", help="experiment with equal epochs")
    parser.add_argument("--compute", default="study_compute", help="experiment with equal FLOPs")
    parser.add_argument("--models", nargs="+", type=Path, default=MODELS, metavar="DIR", help="runs or shared networks")
    parser.add_argument("--data", default="cifar10", help="whose test images")
    parser.add_argument("--corruption", default="glass_blur", help="of the figure of answers")
    parser.add_argument("--severity", type=int, default=4)
    options = parser.parse_args()
    if unknown := set(options.figures) - {"method", "cost", "answers", "sigma"}:
        parser.error(f"{', '.join(sorted(unknown))}: no such figure; there are method, cost, answers and sigma")
    if "method" in options.figures:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "method.svg").write_text(method_figure(), "utf-8")
        print(options.out / "method.svg")
    if "cost" in options.figures:
        save(cost_figure(options.results, options.methods, options.compute), options.out / "cost.png")
    if wanted := {"answers", "sigma"} & set(options.figures):
        source: Source = registry.build("data", options.data, {})
        test = source.test()["clean"]
        models = dict(map(network_of, options.models))
        if "answers" in wanted:
            drawn = answers_figure(models, source, test, options.corruption, options.severity)
            save(drawn, options.out / "answers.png")
        if "sigma" in wanted:
            shown = models if options.models != MODELS else dict([network_of(PER_ELEMENT)])
            diffused = [net for net in shown.values() if hasattr(net, "add_blocks")]
            if not diffused:
                parser.error("sigma: none of the models has ADD blocks")
            save(sigma_figure(diffused[-1], test), options.out / "sigma.png")


if __name__ == "__main__":
    mpl.use("agg")
    main()
