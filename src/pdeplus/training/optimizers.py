"""The one place that makes optimisers: for the task SGD, AdamW or Muon, as the settings say; for φ the method's own.

Vectors (biases, norms) and the head, the last linear layer, may have learning rates of their own.
"""

import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, cast, final

import torch
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer

from ..core.add_block import ADDBlock
from ..errors import UserError
from ..methods.base import Method
from .config import Train

NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
"""Coefficients of the quintic that draws singular values towards 1 (Jordan et al., 2024)."""
LEAST_NORM = 1e-7
STEPS = 5
"""Newton–Schulz steps: singular values come to lie between about 0.7 and 1.2."""


def build_optimizers(method: Method, model: nn.Module, settings: Train) -> dict[str, Optimizer]:
    """All optimisers of a run by the names that the method's objectives use."""
    head = head_of(model)
    if settings.backbone_lr or settings.freeze_epochs:
        if head is None:
            raise UserError("train.backbone_lr and freeze_epochs need a network with a linear layer at its end")
        heads = [m for m in model.modules() if isinstance(m, nn.Linear) and m.weight is head]
        parts = [*heads, *(m for m in model.modules() if isinstance(m, ADDBlock))]
        fresh = {id(p) for part in parts for p in part.parameters()}  # what fine-tuning begins anew
        return method.optimizers(model, partial(_tuning_optimizer, settings=settings, fresh=fresh))
    return method.optimizers(model, partial(build_optimizer, settings=settings, head=head))


def _tuning_optimizer(parameters: Iterable[nn.Parameter], settings: Train, fresh: set[int]) -> Optimizer:
    """The task's optimiser where the backbone has a rate of its own, or is frozen at first.

    Each group decays in proportion to its own rate: what was learnt before is not drawn to zero by a head's.
    """
    every, s, groups = list(parameters), settings, list[dict[str, Any]]()
    for backbone in (True, False):
        for vectors in (False, True):
            chosen = [p for p in every if (id(p) not in fresh) == backbone and (p.ndim < 2) == vectors]
            chosen = [p for p in chosen if p.requires_grad] if backbone else chosen
            decay = 0.0 if vectors and s.decay == "matrices" else s.weight_decay
            rate = (s.backbone_lr or s.lr) if backbone else s.lr
            groups.append({"params": chosen, "lr": rate, "weight_decay": decay, "backbone": backbone})
    return _optimizer([group for group in groups if group["params"]], s)


def head_of(model: nn.Module) -> nn.Parameter | None:
    """The matrix of the model's last linear layer, ADD blocks aside."""
    within = {module for block in model.modules() if isinstance(block, ADDBlock) for module in block.modules()}
    matrices = [m.weight for m in model.modules() if isinstance(m, nn.Linear) and m not in within]
    return cast(nn.Parameter, matrices[-1]) if matrices else None


def build_optimizer(parameters: Iterable[nn.Parameter], settings: Train, head: nn.Parameter | None = None) -> Optimizer:
    """The task's optimiser for some parameters, in groups by learning rate and decay; Muon leaves the head to SGD."""
    return _optimizer(parameter_groups(parameters, settings, head), settings)


def _optimizer(groups: list[dict[str, Any]], settings: Train) -> Optimizer:
    s = settings
    if s.optimizer == "sgd":
        return SGD(groups, s.lr, s.momentum, weight_decay=s.weight_decay, nesterov=s.nesterov)
    if s.optimizer == "adamw":
        return AdamW(groups, s.lr, (s.momentum, 0.999), weight_decay=s.weight_decay)
    options = {"lr": s.lr, "momentum": s.momentum, "weight_decay": s.weight_decay}
    return Muon(groups, **options, nesterov=s.nesterov, filter_norm=s.filter_norm)


def parameter_groups(
    parameters: Iterable[nn.Parameter], settings: Train, head: nn.Parameter | None = None
) -> list[dict[str, Any]]:
    """The parameters in groups: matrices first, then vectors and the head where they learn or decay otherwise.

    In a step every group that decays shrinks by the same share, lr · weight_decay, whatever its own learning rate.
    """
    every, s = list(parameters), settings
    vectors = [p for p in every if p.ndim < 2] if s.bias_lr or s.decay == "matrices" else []
    heads = [p for p in every if p is head] if s.head_lr or s.optimizer == "muon" else []
    apart = {id(p) for p in (*vectors, *heads)}
    groups: list[dict[str, Any]] = [{"params": [p for p in every if id(p) not in apart]}]
    for chosen, rate, decays in ((vectors, s.bias_lr or s.lr, s.decay == "all"), (heads, s.head_lr or s.lr, True)):
        if chosen:
            decay = s.weight_decay * s.lr / rate if decays else 0.0
            groups.append({"params": chosen, "lr": rate, "weight_decay": decay, "plain": True})
    return [group for group in groups if group["params"]]


@final
class Muon(Optimizer):
    """Momentum made orthogonal (Jordan et al., 2024) for matrices and filters, SGD for vectors and `plain` groups.

    A filter bank of shape O×I×k×k is a matrix of O rows. The step of a matrix has singular values near 1, times
    √max(1, rows / columns); weight decay is decoupled: every parameter first shrinks by lr · weight_decay. With
    `filter_norm` a matrix of n rows is first rescaled to the norm √n, which leaves weight decay without effect on it.
    """

    def __init__(
        self,
        params: Iterable[dict[str, Any]],
        *,
        lr: float,
        momentum: float = 0.95,
        weight_decay: float = 0.0,
        nesterov: bool = True,
        filter_norm: bool = False,
    ) -> None:
        options = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "nesterov": nesterov}
        super().__init__(params, options | {"filter_norm": filter_norm, "plain": False})
        if not any(p.ndim > 1 for group in self.param_groups for p in group["params"] if not group["plain"]):
            way_out = "besides its last layer; take sgd or adamw"
            raise UserError(f"train.optimizer=muon needs a network with matrices or filters {way_out}")

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[reportIncompatibleMethodOverride]
        """Change every parameter that has a gradient."""
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                p.mul_(1 - group["lr"] * group["weight_decay"])
                if group["filter_norm"] and p.ndim > 1 and not group["plain"]:
                    p.mul_(math.sqrt(len(p)) / p.norm().clamp(min=LEAST_NORM))
                p.add_(self._direction(p, group), alpha=-group["lr"])
        return closure() if closure is not None else None

    def _direction(self, p: nn.Parameter, group: dict[str, Any]) -> Tensor:
        gradient = p.grad
        assert gradient is not None
        if group["momentum"]:
            average = self.state[p].setdefault("momentum_buffer", torch.zeros_like(p))
            average.mul_(group["momentum"]).add_(gradient)
            gradient = gradient.add(average, alpha=group["momentum"]) if group["nesterov"] else average
        if p.ndim < 2 or group["plain"]:
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
