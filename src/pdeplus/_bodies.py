"""What an ADD block computes before its head: the layers of g_φ for each shape of features."""

from typing import Literal

import torch
from torch import nn

from ._errors import UserError

Block = Literal["paper", "light"]


def body_for(name: str, shape: torch.Size, block: Block) -> nn.Sequential:
    """A body for features of this shape, which the module `name` returns."""
    if len(shape) == 4:
        return paper_body(shape[1]) if block == "paper" else light_body(shape[1])
    if len(shape) in (2, 3):
        return token_body(shape[-1])
    raise UserError(f"after: module {name!r} returns shape {tuple(shape)}; 2, 3 or 4 dimensions are needed")


def paper_body(c: int) -> nn.Sequential:
    """The paper's g_φ before its head: 36c² + 9c parameters."""
    return nn.Sequential(
        nn.Conv2d(c, 2 * c, 3, padding=1),
        nn.BatchNorm2d(2 * c),
        nn.ReLU(inplace=True),
        nn.Conv2d(2 * c, c, 3, padding=1),
        nn.BatchNorm2d(c),
    )


def light_body(c: int) -> nn.Sequential:
    """A depthwise 3×3 and a pointwise convolution: c² + 15c parameters, a thirtieth of the paper's."""
    return nn.Sequential(
        nn.Conv2d(c, c, 3, padding=1, groups=c),
        nn.BatchNorm2d(c),
        nn.ReLU(inplace=True),
        nn.Conv2d(c, c, 1),
        nn.BatchNorm2d(c),
    )


def token_body(c: int) -> nn.Sequential:
    """The same shape for features in the last dimension: B×C or B×N×C."""
    return nn.Sequential(
        nn.Linear(c, 2 * c), nn.LayerNorm(2 * c), nn.ReLU(inplace=True), nn.Linear(2 * c, c), nn.LayerNorm(c)
    )
