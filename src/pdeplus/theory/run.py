"""Everything of the theory at once: solve, measure, draw, and write figures, numbers and the interactive page."""

import base64
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .._lib.files import make_folder, write_file
from .._lib.pages import render_page
from .._lib.registry import require
from ..errors import UserError
from .checks import Agreement, Order, agreements, cases, euler_order, grid_order, sampled_order
from .directional import directions
from .figures import (
    agreement_figure,
    corollary_figure,
    directions_figure,
    orders_figure,
    save_figure,
    smoothness_figure,
    surfaces_figure,
)
from .problems import listed
from .smoothness import SIGMAS, Smoothness, corollary_row, measure_smoothness, smoothness_constant
from .surfaces import HALF_WIDTH, LAYERS, TIMES, Surface, Surfaces, between, flow, surfaces
from .transport import box

SHOWN_CELLS = 72
"""Cells of the page's pictures along each side."""
SIDE = 2.6
"""Half the side of the page's pictures: larger than at t = 0, since the points move."""


def run_theory(out: str | Path = "theory", *, quick: bool = False, seed: int = 0) -> Path:
    """Write every figure, theory.html, summary.json and summary.md into a folder, and return the folder.

    Equal seeds give equal numbers. Nothing is printed but progress, and that on a terminal only.

    Args:
        out: the folder; files of the same names in it are replaced.
        quick: coarser and rougher, in seconds instead of a minute or two; not for quoting.
        seed: of points, fields and paths.
    """
    folder = Path(out)
    if folder.exists() and not folder.is_dir():
        raise UserError(f"out={folder} is a file; choose a folder")
    require("matplotlib", purpose="pdeplus theory", extra="plots")  # before a minute of work
    make_folder(folder)
    shown = surfaces(seed=seed, points=60, iterations=60, cells=160) if quick else surfaces(seed=seed)
    more = () if quick else between(shown)
    directed = directions(shown.fitted, box(2, HALF_WIDTH, 40 if quick else 100))
    agreed = agreements(paths=300, steps=100, points=5, seed=seed) if quick else agreements(seed=seed)
    smooth = [case for case in cases() if "|x|" not in case.title]  # of a parabola the grid makes no error
    grid_orders = [grid_order(case) for case in (smooth[1:2] if quick else smooth)]
    path_orders = [euler_order(), sampled_order(paths=10_000 if quick else 400_000, seed=seed)]
    measured = measure_smoothness(seed=seed, fields=2 if quick else 5, sigmas=SIGMAS[: 2 if quick else None])
    drawn = {
        "surfaces": surfaces_figure(shown),
        "directions": directions_figure(directed, shown.fitted.train),
        "agreement": agreement_figure(agreed),
        "orders": orders_figure(grid_orders, path_orders),
        "smoothness": smoothness_figure(measured),
        "corollary": corollary_figure(),
    }
    figures = {name: save_figure(figure, folder, f"theory-{name}") for name, figure in drawn.items()}
    command = f"pdeplus theory{' --quick' if quick else ''} --seed {seed}"
    summary = {"command": command} | _numbers(shown, more, agreed, [*grid_orders, *path_orders], measured)
    kept = ("train_accuracy", "held_out_accuracy", "along", "across")
    summary["directions"] = {one.name: {name: getattr(one, name) for name in kept} for one in directed}
    write_file(folder / "theory.html", page_text(shown, more, figures).encode())
    write_file(folder / "summary.json", json.dumps(summary, indent=1, ensure_ascii=False, allow_nan=False).encode())
    write_file(folder / "summary.md", _summary_text(summary).encode())
    return folder


def _numbers(
    shown: Surfaces, more: Sequence[Surface], agreed: Sequence[Agreement], orders: Sequence[Order], smooth: Smoothness
) -> dict[str, Any]:
    """Every number as plain values."""
    scales = shown.scale_at_points
    least, mean, most = (float(part) for part in (scales.min(), scales.mean(), scales.max()))
    numbers = ("sigma", "train_accuracy", "held_out_accuracy", "roughness")
    return {
        "surfaces": {
            one.name: {name: getattr(one, name) for name in numbers} | {"steps": one.solution.steps}
            for one in (*shown.surfaces, *more)
        },
        "learnt_scale_at_points": {"least": least, "mean": mean, "most": most},
        "network_to_equation_gap": shown.network_gap,
        "agreement": {
            one.title: {
                "inside": one.inside,
                "points": len(one.x),
                "largest_grid_error": float((one.grid - one.exact).abs().max()),
                "largest_path_error": float((one.mean - one.exact).abs().max()),
            }
            for one in agreed
        },
        "orders": {
            one.title: {"slope": one.slope, "slope_error": one.slope_error, "steps": one.steps, "errors": one.errors}
            for one in orders
        },
        "theorem_1": {
            "exponents_sign": smooth.step._asdict(),
            "exponents_tanh_small_sigma": smooth.slope_small._asdict(),
            "largest_difference_over_bound": smooth.tightest,
            "least_constant": smooth.constant,
            "constant_of_the_bound": smoothness_constant(expansion=max(smooth.expansions)),
            "expansions": list(smooth.expansions),
            "samples": len(smooth.samples),
            "benes": [one._asdict() for one in smooth.escapes],
        },
        "corollary": [corollary_row(sigma) for sigma in (0.3, 0.5, 1.0, 2.0, 10.0)],
    }


def _summary_text(summary: Mapping[str, Any]) -> str:
    """The main numbers as Markdown."""
    accuracies = ("train_accuracy", "held_out_accuracy")
    surfaces = [
        (name, *(f"{100 * row[key]:.1f} %" for key in accuracies), f"{row['roughness']:.2f}")
        for name, row in summary["surfaces"].items()
    ]
    agreement = [
        (name, f"{row['inside']} of {row['points']}", f"{row['largest_grid_error']:.1e}")
        for name, row in summary["agreement"].items()
    ]
    orders = [(name, f"{row['slope']:.3f} ± {row['slope_error']:.3f}") for name, row in summary["orders"].items()]
    found = summary["theorem_1"]
    fit = found["exponents_sign"]
    distance = f"‖δ‖ to {fit['distance']:.3f} ± {fit['distance_error']:.3f}"
    sigma = f"σ to {fit['sigma']:.3f} ± {fit['sigma_error']:.3f}"
    constants = f"least C {found['least_constant']:.3f}, that of the bound {found['constant_of_the_bound']:.3f}"
    ratio = f"largest difference ÷ bound {found['largest_difference_over_bound']:.3f}"
    directed = [
        (name, *(f"{100 * row[key]:.1f} %" for key in accuracies), f"{row['along']:.2f}", f"{row['across']:.2f}")
        for name, row in summary["directions"].items()
    ]
    parts = [
        f"# Theory, measured\n\n`{summary['command']}`",
        _table(("diffusion", "train", "held out", "mean slope"), surfaces),
        _table(("diffusion", "train", "held out", "slope along the arms", "across"), directed),
        _table(("closed form", "inside the 99.9 % interval", "largest grid error"), agreement),
        _table(("refinement", "fitted order"), orders),
        f"Theorem 1, sign(x) at the end, {found['samples']} samples: {distance}, {sigma}; {constants}; {ratio}.",
    ]
    return "\n\n".join(parts) + "\n"


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [" | ".join(cell.replace("|", "\\|") for cell in row) for row in (titles, *rows)]
    lines = [f"| {line} |" for line in lines]
    return "\n".join([lines[0], "|---|" + "---:|" * (len(titles) - 1), *lines[1:]])


def page_text(found: Surfaces, more: Sequence[Surface], figures: Mapping[str, bytes]) -> str:
    """The interactive page's HTML: sliders for σ and time over the solutions, and PNGs; templates hold its text.

    Besides the four surfaces of the figure there may be more, of further fixed scales for the slider.
    """
    every = [*found.surfaces[:2], *more, *found.surfaces[2:]]
    train, along = found.fitted.train, flow(found.fitted.velocity, found.fitted.train.x)
    places = [listed(along[round(t * LAYERS)]) for t in TIMES]
    values = torch.stack([_bytes(surface) for surface in every])
    data = {
        "cells": SHOWN_CELLS,
        "low": -SIDE,
        "high": SIDE,
        "times": TIMES,
        "names": [f"{surface.sigma:g}" if surface.sigma is not None else "adaptive" for surface in every],
        "told": [_sentence(surface) for surface in every],
        "places": [[[round(x, 3), round(y, 3)] for x, y in place] for place in places],
        "given": "".join(map(str, listed(train.given))),
        "predicted": ["".join(map(str, listed((one.solution.at(train.x) > 0.5).int()))) for one in every],
        "values": base64.b64encode(values.numpy().tobytes()).decode(),
    }
    return render_page(
        "pdeplus.theory",
        last_sigma=len(every) - 2,  # the last one is adaptive
        last_time=len(TIMES) - 1,
        figures={name: base64.b64encode(png).decode() for name, png in figures.items()},
        seed=found.fitted.seed,
        data=data,
    )


def _bytes(surface: Surface) -> Tensor:
    """u at every kept time in the pictures' cells, times×cells×cells, 0 to 255."""
    step = 2 * SIDE / SHOWN_CELLS
    side = torch.arange(SHOWN_CELLS, dtype=torch.float64) * step - SIDE + step / 2
    x = torch.stack(torch.meshgrid(side, side, indexing="ij"), -1).reshape(-1, 2)
    u = torch.stack([surface.solution.at(x, t) for t in TIMES])
    return (255 * u.clamp(0, 1)).round().to(torch.uint8)


def _sentence(surface: Surface) -> str:
    right = f"{100 * surface.train_accuracy:.1f} % of the training labels, {100 * surface.held_out_accuracy:.1f} %"
    kind = "Learnt σ(x)" if surface.sigma is None else f"σ = {surface.sigma:g}"
    return f"{kind}: {right} of held-out points right; mean slope |∇u| {surface.roughness:.2f} at t = 0."
