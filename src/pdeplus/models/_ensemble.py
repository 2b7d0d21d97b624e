"""Several networks of one kind that answer together."""

import copy
from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor, nn

from .._errors import UserError

REDRAW = ("reset_parameters", "_reset_parameters")
"""What torch's layers call the function that draws their weights; attention uses the second."""


@final
class Ensemble(nn.Module):
    """The mean of its members' logits, B×classes: images go through each member once."""

    def __init__(self, members: Sequence[nn.Module]) -> None:
        super().__init__()
        if not members:
            raise UserError("an ensemble of 0 networks says nothing; give it at least 1")
        self.members = nn.ModuleList(members)

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([member(x) for member in self.members]).mean(0)


def redrawn(model: nn.Module) -> nn.Module:
    """A copy of `model` whose layers have drawn their weights anew, from torch's own random state.

    Parameters of layers that cannot draw keep their values; a model of which none can is refused.
    """
    net = copy.deepcopy(model)
    for module in net.modules():
        draw = next((getattr(module, name) for name in REDRAW if hasattr(module, name)), None)
        if draw is not None:
            draw()
    pairs = zip(model.parameters(), net.parameters(), strict=True)
    if all(torch.equal(old, new) for old, new in pairs):
        raise UserError(f"{type(model).__name__} has no layer with reset_parameters(): its copies would all be alike")
    return net
