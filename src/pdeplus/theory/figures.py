"""The figures of `pdeplus theory`, drawn without a display; each is a function of values computed elsewhere."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from .._lib.files import write_file
from .._lib.registry import require
from . import smoothness
from .checks import CONFIDENCE, Agreement, Order
from .directional import Directed
from .problems import listed
from .surfaces import SHOWN, Points, Surface, Surfaces

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, ORANGE, GREEN, PURPLE, YELLOW = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00"
INK, FAINT = "#20262e", "#c9d0d8"
MARKERS = ("o", "^")
TITLES = {"none": "no diffusion", "small": "small", "large": "large", "adaptive": "adaptive σ(x)"}
FONT = 12
PURPOSE = "a figure of the theory"
PNG_DPI = 110


def save_figure(figure: "Figure", folder: Path, name: str) -> bytes:
    """Write a figure as PNG and SVG; the PNG comes back."""
    images = dict[str, bytes]()
    for kind in ("svg", "png"):
        buffer = io.BytesIO()
        figure.savefig(buffer, format=kind, dpi=PNG_DPI, metadata={"Date": None} if kind == "svg" else None)
        figure.set_layout_engine("none")  # the places found the first time serve the second
        images[kind] = buffer.getvalue()
        write_file(folder / f"{name}.{kind}", images[kind])
    return images["png"]


def surfaces_figure(found: Surfaces) -> "Figure":
    """Upper row: u(x, 0) as a surface; lower row: its contours with the training points."""
    figure = _figure(16, 8.6)
    for column, surface in enumerate(found.surfaces):
        _draw_surface(figure.add_subplot(2, 4, column + 1, projection="3d"), surface)
        slopes = f"mean |∇u| {surface.roughness:.2f}"
        _draw_contour(figure.add_subplot(2, 4, column + 5), surface, found.fitted.train, slopes)
    return _with_legend(figure, 1, columns=5)


def directions_figure(found: Sequence[Directed], points: Points) -> "Figure":
    """u(x, 0) on one field with no diffusion, isotropic, directional and both; slopes along the arms and across."""
    figure = _figure(16, 5.2)
    for column, one in enumerate(found):
        axes = figure.add_subplot(1, len(found), column + 1)
        _draw_contour(axes, one, points, f"mean slope along the arms {one.along:.2f}, across {one.across:.2f}")
        axes.set_title("no diffusion" if one.name == "none" else one.name, fontsize=FONT + 2)
    return _with_legend(figure, 0, columns=4)


def agreement_figure(found: Sequence[Agreement]) -> "Figure":
    """What grid and paths give beyond the closed form, in thousandths, for every problem that has one."""
    figure = _figure(16, 7.2)
    for i, one in enumerate(found):
        axes = _axes(figure, 2, 4, i + 1, one.title, "x" if i >= 4 else "", "" if i % 4 else "difference × 1000")
        axes.axhline(0, color=INK, lw=1.5, label="closed form")
        centre, half = 1000 * (one.mean - one.exact), 1000 * (one.high - one.mean)
        bars = f"paths, {100 * CONFIDENCE:g} % interval"
        axes.errorbar(one.x, centre, half, fmt=".", color=ORANGE, capsize=4, label=bars)
        axes.plot(one.x, 1000 * (one.grid - one.exact), "o", mfc="none", mec=BLUE, ms=9, mew=1.5, label="grid")
        axes.margins(y=0.2)
        note = f"{one.inside} of {len(one.x)} intervals hold the closed form"
        axes.text(0.5, 0.98, note, transform=axes.transAxes, ha="center", va="top", fontsize=FONT - 1)
    return _with_legend(figure, 0, columns=3)


def orders_figure(grids: Sequence[Order], paths: Sequence[Order]) -> "Figure":
    """Errors under refinement, with the fitted slopes."""
    figure = _figure(13, 5.2)
    sides = (("grid spacing h", "grid: error falls as h³", grids), ("time step Δt", "Euler-Maruyama: as Δt", paths))
    for i, (label, title, orders) in enumerate(sides):
        axes = _axes(figure, 1, 2, i + 1, title, label, "" if i else "largest error")
        for order, colour, marker in zip(orders, (BLUE, ORANGE, GREEN, PURPLE, YELLOW), "os^Dv", strict=False):
            name = f"{order.title.split(', ', 1)[1]}: {order.slope:.3f} ± {order.slope_error:.3f}"
            axes.loglog(order.steps, order.errors, marker + "-", color=colour, label=name)
        axes.set_ylim(min(e for order in orders for e in order.errors) / (25 if len(orders) > 2 else 4))
        axes.legend(title="fitted slope", fontsize=FONT - 1, title_fontsize=FONT - 1, frameon=False, loc="lower right")
    return figure


def smoothness_figure(found: smoothness.Smoothness) -> "Figure":
    """Theorem 1: all differences under the sharp bound; what small σ does; and a bounded drift that escapes."""
    figure = _figure(16, 5.2)
    axes = _axes(figure, 1, 3, 1, "o = sign(x), random drifts", "κ(L) ‖δ‖/σ", "largest |u(x+δ,0) − u(x,0)|")
    _draw_differences(axes, found)
    axes = _axes(figure, 1, 3, 2, "‖δ‖ = σ/10 as σ → 0", "σ", "difference ÷ ‖δ‖")
    names = {"step": (BLUE, "o", "o = sign(x): grows as 1/σ"), "slope": (GREEN, "^", "o = tanh(2x): levels off")}
    for ending, (colour, marker, name) in names.items():
        some = [s for s in found.samples if s.ending == ending and abs(s.distance / s.sigma - 0.1) < 1e-9]
        slopes = [s.difference / s.distance for s in some]
        axes.loglog([s.sigma for s in some], slopes, marker, color=colour, label=name)
    axes.legend(fontsize=FONT - 1, frameon=False)
    axes = _axes(figure, 1, 3, 3, "F = tanh(x/σ²), |F| ≤ 1, at ‖δ‖ = σ²", "σ", "")
    sigmas = [e.sigma for e in found.escapes]
    axes.loglog(sigmas, [e.difference for e in found.escapes], "s-", color=ORANGE, label="difference: does not fall")
    for alpha, style in ((1.0, "-"), (0.5, "--")):
        axes.loglog(sigmas, [s**alpha for s in sigmas], style, color=BLUE, label=f"(‖δ‖/σ)^{alpha:g}")
    axes.legend(fontsize=FONT - 1, frameon=False)
    return figure


def corollary_figure() -> "Figure":
    """The corollary's bound over σ for several N, and the N it takes to say anything."""
    figure = _figure(13, 5.2)
    sigmas = np.geomspace(0.1, 30, 200)
    constant = smoothness.smoothness_constant(oscillation=1.0)
    terms = [smoothness.smoothness_term(float(s), distance=1.0, constant=constant) for s in sigmas]
    left = _axes(figure, 1, 2, 1, "the bound, K = 10 cells, ε = 0.05", "σ ÷ ‖δ'‖", "bound ÷ largest loss")
    for n, colour in ((10**2, PURPLE), (10**3, GREEN), (10**4, BLUE), (10**6, ORANGE)):
        bounds = np.array(terms) + smoothness.sampling_term(n, cells=10, failure=0.05)
        left.loglog(sigmas, bounds, color=colour, label=f"N = {n:,}")
    left.axhspan(1, 10, color=FAINT, alpha=0.5, lw=0)
    left.text(1, 3, "says nothing: no loss is larger", fontsize=FONT, ha="left")
    left.set_ylim(0.01, 6)
    left.legend(fontsize=FONT - 1, frameon=False, loc="lower left")
    right = _axes(figure, 1, 2, 2, "samples until it says anything, ε = 0.05", "σ ÷ ‖δ'‖", "N")
    for cells, colour in ((10, BLUE), (1000, GREEN), (10**6, ORANGE)):
        needed = [smoothness.samples_needed(term, cells=cells, failure=0.05) for term in terms]
        right.loglog(sigmas, [n or np.nan for n in needed], color=colour, label=f"K = {cells:,} cells")
    right.axvspan(sigmas[0], constant, color=FAINT, alpha=0.5, lw=0)
    right.text(0.105, 1e4, "no N is\nenough", fontsize=FONT)
    right.legend(fontsize=FONT - 1, frameon=False)
    return figure


def _draw_surface(axes: Any, surface: Surface) -> None:
    x, y, u = _shown(surface, 140)
    axes.plot_surface(
        x, y, u, cmap=_classes(), vmin=0, vmax=1, rstride=1, cstride=1, lw=0, antialiased=False, rasterized=True
    )
    axes.set(zlim=(0, 1), xticks=[], yticks=[], zticks=[0, 0.5, 1])
    axes.tick_params(labelsize=FONT - 2)
    axes.view_init(elev=38, azim=-62)
    axes.set_box_aspect((1, 1, 0.55), zoom=1.15)
    sigma = f", σ = {surface.sigma:g}" if surface.sigma else ""
    axes.set_title(TITLES[surface.name] + sigma, fontsize=FONT + 2)


def _draw_contour(axes: "Axes", surface: Surface | Directed, points: Points, slopes: str) -> None:
    x, y, u = _shown(surface, 200)
    axes.contourf(x, y, u, levels=np.linspace(0, 1, 11), cmap=_classes(), vmin=0, vmax=1)
    axes.contour(x, y, u, levels=[0.5], colors=INK, linewidths=1.5)
    predicted, told = surface.solution.at(points.x) > 0.5, points.given == 1
    for right in (True, False):
        for label in (0, 1):
            rows = (told == bool(label)) & ((predicted == told) == right)
            fill = [ORANGE if p else BLUE for p in listed(predicted[rows])]
            edge, wide, size = ("white", 0.7, 34) if right else ("black", 1.8, 60)
            name = f"label {label}, {'predicted so' if right else 'predicted otherwise'}"
            axes.scatter(*points.x[rows].T, c=fill, marker=MARKERS[label], s=size, edgecolors=edge, lw=wide, label=name)
    axes.set(xlim=SHOWN[0], ylim=SHOWN[1], xticks=[], yticks=[], aspect="equal")
    numbers = f"train {100 * surface.train_accuracy:.1f} %, held out {100 * surface.held_out_accuracy:.1f} %"
    axes.set_xlabel(f"{numbers}\n{slopes}", fontsize=FONT)


def _shown(surface: Surface | Directed, n: int) -> tuple[Any, Any, Any]:
    """The drawn part of a solution at t = 0, n×n."""
    sides = [torch.linspace(low, high, n, dtype=torch.float64) for low, high in SHOWN]
    x, y = torch.meshgrid(*sides, indexing="ij")
    u = surface.solution.at(torch.stack([x, y], -1).reshape(-1, 2)).reshape(n, n).clamp(0, 1)
    return x.numpy(), y.numpy(), u.numpy()


def _draw_differences(axes: "Axes", found: smoothness.Smoothness) -> None:
    steps = [s for s in found.samples if s.ending == "step"]
    sigmas = sorted({s.sigma for s in steps}, reverse=True)
    for sigma, colour, marker in zip(sigmas, (ORANGE, YELLOW, GREEN, BLUE, PURPLE), "os^Dv", strict=False):
        some = [s for s in steps if s.sigma == sigma]
        ratio = [smoothness.spreading_factor(found.expansions[s.field]) * s.distance / sigma for s in some]
        axes.loglog(ratio, [s.difference for s in some], marker, color=colour, ms=6, label=f"σ = {sigma:g}")
    ratios = np.geomspace(0.1, 10, 80)
    sharp = [smoothness.difference_bound(float(r), 1.0) for r in ratios]
    axes.loglog(ratios, sharp, color=INK, lw=2, label="sharp bound")
    axes.loglog(ratios, smoothness.smoothness_constant() * ratios, "--", color=INK, lw=1, label="C‖δ‖/σ")
    axes.set_ylim(0.05, 4)
    exponents = f"fitted: ‖δ‖ to {found.step.distance:.3f}, σ to {found.step.sigma:.3f}".replace("-", "−")
    axes.text(0.03, 0.95, exponents, transform=axes.transAxes, va="top", fontsize=FONT)
    axes.legend(fontsize=FONT - 1, frameon=False, loc="lower right")


def _figure(width: float, height: float) -> "Figure":
    (drawing,) = require("matplotlib.figure", purpose=PURPOSE, extra="plots")
    return drawing.Figure(figsize=(width, height), layout="constrained")


def _classes() -> Any:
    """Colours from that of class 0 to that of class 1."""
    (colors,) = require("matplotlib.colors", purpose=PURPOSE, extra="plots")
    return colors.LinearSegmentedColormap.from_list("classes", [BLUE, "#f7f7f7", ORANGE])


def _with_legend(figure: "Figure", panel: int, *, columns: int) -> "Figure":
    """The figure with one panel's legend below all of them."""
    handles, labels = figure.axes[panel].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, fontsize=FONT, frameon=False)
    return figure


def _axes(figure: "Figure", rows: int, columns: int, place: int, title: str, x: str, y: str) -> "Axes":
    axes = figure.add_subplot(rows, columns, place)
    axes.set_title(title, fontsize=FONT + 1)
    axes.set_xlabel(x, fontsize=FONT)
    axes.set_ylabel(y, fontsize=FONT)
    axes.tick_params(labelsize=FONT - 1)
    axes.grid(color=FAINT, lw=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    return axes
