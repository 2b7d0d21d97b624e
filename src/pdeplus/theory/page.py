"""The interactive page: one file with sliders for σ and time that needs no network; templates hold its text."""

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from .._lib.pages import render_page
from ._numerics import flags, rows
from .surfaces import LAYERS, TIMES, Surface, Surfaces, flow

SHOWN_CELLS = 72
"""Cells of the pictures along each side."""
SIDE = 2.6
"""Half the side of the pictures: larger than at t = 0, since the points move."""


def page_text(found: Surfaces, more: Sequence[Surface], figures: Mapping[str, bytes]) -> str:
    """The page's HTML.

    Args:
        found: the four surfaces of the figure.
        more: further fixed scales for the slider.
        figures: PNGs of surfaces, agreement, orders, smoothness and corollary.
    """
    *fixed, adaptive = [*found.surfaces[:2], *more, *found.surfaces[2:]]
    return render_page(
        "pdeplus.theory",
        last_sigma=len(fixed) - 1,
        last_time=len(TIMES) - 1,
        figures={name: base64.b64encode(png).decode() for name, png in figures.items()},
        seed=found.fitted.seed,
        data=_data(found, [*fixed, adaptive]),
    )


def _data(found: Surfaces, surfaces: Sequence[Surface]) -> dict[str, Any]:
    """What page.js reads."""
    train = found.fitted.train
    values = torch.stack([_bytes(surface) for surface in surfaces])
    along = flow(found.fitted.velocity, train.x)
    places = [along[round(t * LAYERS)] for t in TIMES]
    return {
        "cells": SHOWN_CELLS,
        "low": -SIDE,
        "high": SIDE,
        "times": TIMES,
        "names": [f"{surface.sigma:g}" if surface.sigma is not None else "adaptive" for surface in surfaces],
        "told": [_told(surface) for surface in surfaces],
        "places": [[[round(x, 3), round(y, 3)] for x, y in rows(place)] for place in places],
        "given": _digits(train.given == 1),
        "predicted": [_digits(surface.solution.at(train.x) > 0.5) for surface in surfaces],
        "values": base64.b64encode(values.numpy().tobytes()).decode(),
    }


def _bytes(surface: Surface) -> Tensor:
    """u at every kept time in the pictures' cells, times×cells×cells, 0 to 255."""
    step = 2 * SIDE / SHOWN_CELLS
    side = torch.arange(SHOWN_CELLS, dtype=torch.float64) * step - SIDE + step / 2
    x = torch.stack(torch.meshgrid(side, side, indexing="ij"), -1).reshape(-1, 2)
    u = torch.stack([surface.solution.at(x, t) for t in TIMES])
    return (255 * u.clamp(0, 1)).round().to(torch.uint8)


def _told(surface: Surface) -> str:
    right = f"{100 * surface.train_accuracy:.1f} % of the training labels, {100 * surface.held_out_accuracy:.1f} %"
    kind = "Learnt σ(x)" if surface.sigma is None else f"σ = {surface.sigma:g}"
    return f"{kind}: {right} of held-out points right; mean slope |∇u| {surface.roughness:.2f} at t = 0."


def _digits(mask: Tensor) -> str:
    return "".join("1" if flag else "0" for flag in flags(mask))
