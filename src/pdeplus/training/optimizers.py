"""The one place that makes optimisers: for the task SGD, AdamW or Muon, as the settings say; for φ the method's own."""

import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer

from ..errors import UserError
from ..methods.base import Method
from .config import Train

NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
"""Coefficients of the quintic that draws singular values towards 1 (Jordan et al., 2024)."""
STEPS = 5
"""Newton–Schulz steps: singular values come to lie between about 0.7 and 1.2."""


def build_optimizers(method: Method, model: nn.Module, settings: Train) -> dict[str, Optimizer]:
    """All optimisers of a run by the names that the method's objectives use."""
    return method.optimizers(model, partial(build_optimizer, settings=settings))


def build_optimizer(parameters: Iterable[nn.Parameter], settings: Train) -> Optimizer:
    """The task's optimiser for some parameters; those that may not decay are a group of their own."""
    groups, s = parameter_groups(parameters, settings), settings
    if s.optimizer == "sgd":
        return SGD(groups, s.lr, s.momentum, weight_decay=s.weight_decay, nesterov=s.nesterov)
    if s.optimizer == "adamw":
        return AdamW(groups, s.lr, (s.momentum, 0.999), weight_decay=s.weight_decay)
    return Muon(groups, lr=s.lr, momentum=s.momentum, weight_decay=s.weight_decay, nesterov=s.nesterov)


def parameter_groups(parameters: Iterable[nn.Parameter], settings: Train) -> list[dict[str, Any]]:
    """One group of all parameters, or with train.decay=matrices a second, of vectors and scalars, that do not decay."""
    every = list(parameters)
    if settings.decay == "all":
        return [{"params": every}]
    decaying, others = [p for p in every if p.ndim > 1], [p for p in every if p.ndim < 2]
    return [{"params": decaying}, {"params": others, "weight_decay": 0.0}]


@final
class Muon(Optimizer):
    """Momentum made orthogonal (Jordan et al., 2024) for matrices and filters, SGD for vectors and scalars.

    A filter bank of shape O×I×k×k is a matrix of O rows. The step of a matrix has singular values near 1, times
    √max(1, rows / columns); weight decay is decoupled: every parameter first shrinks by lr · weight_decay.
    """

    def __init__(
        self,
        params: Iterable[dict[str, Any]],
        *,
        lr: float,
        momentum: float = 0.95,
        weight_decay: float = 0.0,
        nesterov: bool = True,
    ) -> None:
        options = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "nesterov": nesterov}
        super().__init__(params, options)
        if not any(p.ndim > 1 for group in self.param_groups for p in group["params"]):
            raise UserError("train.optimizer=muon needs a network with matrices or filters; take sgd or adamw")

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[reportIncompatibleMethodOverride]
        """Change every parameter that has a gradient."""
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.mul_(1 - group["lr"] * group["weight_decay"])
                    p.add_(self._direction(p, group), alpha=-group["lr"])
        return closure() if closure is not None else None

    def _direction(self, p: nn.Parameter, group: dict[str, Any]) -> Tensor:
        gradient = p.grad
        assert gradient is not None
        if group["momentum"]:
            average = self.state[p].setdefault("momentum_buffer", torch.zeros_like(p))
            average.mul_(group["momentum"]).add_(gradient)
            gradient = gradient.add(average, alpha=group["momentum"]) if group["nesterov"] else average
        if p.ndim < 2:
            return gradient
        rows, columns = len(p), p[0].numel()
        return orthogonalised(gradient.reshape(rows, columns)).view_as(p).mul(math.sqrt(max(1, rows / columns)))


def orthogonalised(matrix: Tensor, steps: int = STEPS) -> Tensor:
    """Nearly U Vᵀ for a matrix U S Vᵀ, by `steps` Newton–Schulz iterations; zero stays zero."""
    a, b, c = NEWTON_SCHULZ
    if matrix.shape[0] > matrix.shape[1]:
        return orthogonalised(matrix.t(), steps).t()
    x = torch.nn.functional.normalize(matrix, dim=(0, 1), eps=1e-7)  # type: ignore[reportArgumentType]
    for _ in range(steps):
        square = torch.mm(x, x.t())
        x = a * x + torch.mm(b * square + c * torch.mm(square, square), x)
    return x
