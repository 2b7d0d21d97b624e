"""Everything of the theory at once: solve, measure, draw, write."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from .._lib.files import make_folder, write_file
from .._lib.registry import require
from ..errors import UserError
from .checks import Agreement, Order, agreements, cases, euler_order, grid_order, sampled_order
from .figures import agreement_figure, corollary_figure, orders_figure, save_figure, smoothness_figure, surfaces_figure
from .page import page_text
from .smoothness import (
    SIGMAS,
    Smoothness,
    measure_smoothness,
    samples_needed,
    sampling_term,
    smoothness_constant,
    smoothness_term,
)
from .surfaces import Surface, Surfaces, between, surfaces


@final
@dataclass(frozen=True, kw_only=True)
class Findings:
    """All that was computed."""

    surfaces: Surfaces
    more: tuple[Surface, ...]
    agreements: tuple[Agreement, ...]
    grid_orders: tuple[Order, ...]
    path_orders: tuple[Order, ...]
    smoothness: Smoothness


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
    found = compute(quick=quick, seed=seed)
    summary = summarise(found, quick=quick, seed=seed)
    figures = _draw(found, folder)
    write_file(folder / "theory.html", page_text(found.surfaces, found.more, figures).encode())
    write_file(folder / "summary.json", json.dumps(summary, indent=1, ensure_ascii=False, allow_nan=False).encode())
    write_file(folder / "summary.md", summary_text(summary).encode())
    return folder


def compute(*, quick: bool, seed: int) -> Findings:
    """Solve and measure; `quick` leaves out what takes long."""
    shown = surfaces(seed=seed, points=60, iterations=60, cells=160) if quick else surfaces(seed=seed)
    smooth = [case for case in cases() if "|x|" not in case.title]  # of a parabola the grid makes no error
    return Findings(
        surfaces=shown,
        more=() if quick else between(shown),
        agreements=agreements(paths=300, steps=100, points=5, seed=seed) if quick else agreements(seed=seed),
        grid_orders=tuple(grid_order(case) for case in (smooth[1:2] if quick else smooth)),
        path_orders=(euler_order(), sampled_order(paths=10_000 if quick else 400_000, seed=seed)),
        smoothness=measure_smoothness(seed=seed, fields=2 if quick else 5, sigmas=SIGMAS[: 2 if quick else None]),
    )


def summarise(found: Findings, *, quick: bool, seed: int) -> dict[str, Any]:
    """Every number as plain values."""
    shown, smooth = found.surfaces, found.smoothness
    scales = shown.scale_at_points
    least, mean, most = (float(part) for part in (scales.min(), scales.mean(), scales.max()))
    return {
        "command": f"pdeplus theory{' --quick' if quick else ''} --seed {seed}",
        "surfaces": {one.name: _surface_row(one) for one in (*shown.surfaces, *found.more)},
        "learnt_scale_at_points": {"least": least, "mean": mean, "most": most},
        "network_to_equation_gap": shown.network_gap,
        "agreement": {one.title: _agreement_row(one) for one in found.agreements},
        "orders": {one.title: _order_row(one) for one in (*found.grid_orders, *found.path_orders)},
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
        "corollary": [_corollary_row(sigma) for sigma in (0.3, 0.5, 1.0, 2.0, 10.0)],
    }


def _surface_row(one: Surface) -> dict[str, float | int | None]:
    right = {"train_accuracy": one.train_accuracy, "held_out_accuracy": one.held_out_accuracy}
    return {"sigma": one.sigma, **right, "roughness": one.roughness, "steps": one.solution.steps}


def _agreement_row(one: Agreement) -> dict[str, float | int]:
    grid = float((one.grid - one.exact).abs().max())
    paths = float((one.mean - one.exact).abs().max())
    return {"inside": one.inside, "points": len(one.x), "largest_grid_error": grid, "largest_path_error": paths}


def _order_row(one: Order) -> dict[str, Any]:
    return {"slope": one.slope, "slope_error": one.slope_error, "steps": one.steps, "errors": one.errors}


def _corollary_row(sigma: float) -> dict[str, float | int | None]:
    """σ in parts of the cell's width, ten cells, ε = 0.05, an output in [0, 1] and a loss in [0, 1]."""
    smooth = smoothness_term(sigma, distance=1.0, constant=smoothness_constant(oscillation=1.0))
    bound = smooth + sampling_term(10_000, cells=10, failure=0.05)
    needed = samples_needed(smooth, cells=10, failure=0.05)
    return {"sigma_over_distance": sigma, "bound_at_10000": bound, "samples_needed": needed}


def _draw(found: Findings, folder: Path) -> dict[str, bytes]:
    """The figures as PNG, by name; each is a file, too."""
    figures = {
        "surfaces": surfaces_figure(found.surfaces),
        "agreement": agreement_figure(found.agreements),
        "orders": orders_figure(found.grid_orders, found.path_orders),
        "smoothness": smoothness_figure(found.smoothness),
        "corollary": corollary_figure(),
    }
    return {name: save_figure(figure, folder, f"theory-{name}") for name, figure in figures.items()}


def summary_text(summary: Mapping[str, Any]) -> str:
    """The main numbers as Markdown."""
    surfaces = [
        (
            name,
            *(f"{100 * row[key]:.1f} %" for key in ("train_accuracy", "held_out_accuracy")),
            f"{row['roughness']:.2f}",
        )
        for name, row in summary["surfaces"].items()
    ]
    agreement = [
        (name, f"{row['inside']} of {row['points']}", f"{row['largest_grid_error']:.1e}")
        for name, row in summary["agreement"].items()
    ]
    orders = [(name, f"{row['slope']:.3f} ± {row['slope_error']:.3f}") for name, row in summary["orders"].items()]
    parts = [
        f"# Theory, measured\n\n`{summary['command']}`",
        _table(("diffusion", "train", "held out", "mean slope"), surfaces),
        _table(("closed form", "inside the 99.9 % interval", "largest grid error"), agreement),
        _table(("refinement", "fitted order"), orders),
        _theorem(summary["theorem_1"]),
    ]
    return "\n\n".join(parts) + "\n"


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [" | ".join(cell.replace("|", "\\|") for cell in row) for row in (titles, *rows)]
    lines = [f"| {line} |" for line in lines]
    return "\n".join([lines[0], "|---|" + "---:|" * (len(titles) - 1), *lines[1:]])


def _theorem(found: Mapping[str, Any]) -> str:
    fit = found["exponents_sign"]
    distance = f"‖δ‖ to {fit['distance']:.3f} ± {fit['distance_error']:.3f}"
    sigma = f"σ to {fit['sigma']:.3f} ± {fit['sigma_error']:.3f}"
    constants = f"least C {found['least_constant']:.3f}, that of the bound {found['constant_of_the_bound']:.3f}"
    ratio = f"largest difference ÷ bound {found['largest_difference_over_bound']:.3f}"
    return f"Theorem 1, sign(x) at the end, {found['samples']} samples: {distance}, {sigma}; {constants}; {ratio}."
