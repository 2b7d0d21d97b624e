"""The interactive page: one file with sliders for σ and time that needs no network."""

import base64
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib import resources
from string import Template
from typing import Any, final

import torch
from torch import Tensor

from .. import __version__
from ._numerics import flags, rows
from .surfaces import LAYERS, TIMES, Surface, Surfaces, flow

SHOWN_CELLS = 72
"""Of the pictures along each side."""
SIDE = 2.6
"""Half the side of the pictures: larger than at t = 0, since the points move."""


@final
@dataclass(frozen=True)
class Plate:
    """A figure in the page: a heading, what it says, and the picture."""

    heading: str
    text: str
    alt: str
    png: bytes


def page_text(found: Surfaces, more: Sequence[Surface], plates: Sequence[Plate]) -> str:
    """The page's HTML.

    Args:
        found: the four surfaces of the figure.
        more: further fixed scales for the slider.
        plates: the figures below.
    """
    *fixed, adaptive = [*found.surfaces[:2], *more, *found.surfaces[2:]]
    script = _part("page.js").replace("\r\n", "\n")
    return Template(_part("page.html")).substitute(
        hash=f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'",
        style=_part("page.css"),
        script=script,
        last_sigma=len(fixed) - 1,
        last_time=len(TIMES) - 1,
        sections="".join(_section(plate) for plate in plates),
        version=__version__,
        seed=found.fitted.seed,
        data=_data(found, [*fixed, adaptive]),
    )


def _data(found: Surfaces, surfaces: Sequence[Surface]) -> str:
    """What page.js reads; numbers and words of our own only, so that nothing in it can end the script element."""
    train = found.fitted.train
    values = torch.stack([_bytes(surface) for surface in surfaces])
    along = flow(found.fitted.velocity, train.x)
    places = [along[round(t * LAYERS)] for t in TIMES]
    data: dict[str, Any] = {
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
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"))


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


def _section(plate: Plate) -> str:
    image = f'<img alt="{escape(plate.alt)}" src="data:image/png;base64,{base64.b64encode(plate.png).decode()}">'
    return f"<section><h2>{escape(plate.heading)}</h2><p>{escape(plate.text)}</p><figure>{image}</figure></section>"


def _part(name: str) -> str:
    return (resources.files("pdeplus.theory") / name).read_text("utf-8")
