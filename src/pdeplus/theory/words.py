"""What is said of the figures and of the numbers."""

from collections.abc import Mapping
from typing import Any

PLATES = {
    "surfaces": (
        "One velocity field, four diffusions",
        "Without diffusion the solution follows single wrong labels in thin tongues. A small fixed σ leaves some of "
        "them, a large one blurs the middle, where the classes lie close together. The learnt σ(x) is smaller there "
        "than outside.",
        "Four surfaces above four contour plots with training points: no, small, large and adaptive diffusion",
    ),
    "agreement": (
        "Grid and paths against closed forms",
        "Wherever the solution is known in closed form, the grid's error is below what sampling can show, and the "
        "99.9 % intervals of the simulated paths are compared with the closed form.",
        "Six panels of differences from the closed form near zero",
    ),
    "orders": (
        "Orders of convergence",
        "Halving the grid spacing divides the grid's error by eight; halving the time step halves the error of "
        "Euler-Maruyama.",
        "Errors over step sizes on logarithmic axes, straight lines with slopes near three and one",
    ),
    "smoothness": (
        "Theorem 1: how much diffusion smooths",
        "Left: the largest difference over all x stays under the sharp bound. Middle: with a jump at the end the slope "
        "grows as 1/σ, with a smooth end it levels off. Right: a drift that is bounded, but whose Lipschitz constant "
        "grows as σ falls, keeps its difference while every power of ‖δ‖/σ falls to 0.",
        "Three panels: differences under the bound, slopes as σ falls, a drift that escapes the theorem",
    ),
    "corollary": (
        "Corollary: what the bound is worth",
        "The bound on the generalisation error says something only where σ is at least 0.4 of the width of a cell, and "
        "then needs more samples than there are cells.",
        "The bound over σ for several sample sizes, and the samples needed",
    ),
}
"""Heading, text and alternative text of each figure."""


def summary_text(summary: Mapping[str, Any]) -> str:
    """The main numbers as Markdown."""
    parts = [f"# Theory, measured\n\n`{summary['command']}`"]
    parts += [_surfaces(summary["surfaces"]), _agreement(summary["agreement"]), _orders(summary["orders"])]
    return "\n\n".join([*parts, _theorem(summary["theorem_1"])]) + "\n"


def _surfaces(rows: Mapping[str, Any]) -> str:
    lines = ["| diffusion | train | held out | mean slope |", "|---|---:|---:|---:|"]
    for name, row in rows.items():
        right = f"{100 * row['train_accuracy']:.1f} % | {100 * row['held_out_accuracy']:.1f} %"
        lines.append(f"| {name} | {right} | {row['roughness']:.2f} |")
    return "\n".join(lines)


def _agreement(rows: Mapping[str, Any]) -> str:
    lines = ["| closed form | inside the 99.9 % interval | largest grid error |", "|---|---:|---:|"]
    for name, row in rows.items():
        cell = name.replace("|", "\\|")
        lines.append(f"| {cell} | {row['inside']} of {row['points']} | {row['largest_grid_error']:.1e} |")
    return "\n".join(lines)


def _orders(rows: Mapping[str, Any]) -> str:
    lines = ["| refinement | fitted order |", "|---|---:|"]
    lines += [f"| {name} | {row['slope']:.3f} ± {row['slope_error']:.3f} |" for name, row in rows.items()]
    return "\n".join(lines)


def _theorem(found: Mapping[str, Any]) -> str:
    fit = found["exponents_sign"]
    distance = f"‖δ‖ to {fit['distance']:.3f} ± {fit['distance_error']:.3f}"
    sigma = f"σ to {fit['sigma']:.3f} ± {fit['sigma_error']:.3f}"
    constants = f"least C {found['least_constant']:.3f}, that of the bound {found['constant_of_the_bound']:.3f}"
    ratio = f"largest difference ÷ bound {found['largest_difference_over_bound']:.3f}"
    return f"Theorem 1, sign(x) at the end, {found['samples']} samples: {distance}, {sigma}; {constants}; {ratio}."
