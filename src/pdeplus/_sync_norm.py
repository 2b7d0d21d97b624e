"""BatchNorm over the batches of all processes together.

Within `SyncBatchNorm` every BatchNorm layer that trains uses these statistics, whatever its class: the layers stay
as they are, and so do the names of their weights. torch's own layer of this kind refuses the CPU and cannot be
differentiated twice, which gradient regularisation needs.
"""

from collections.abc import Callable
from typing import Any, cast, final

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from ._processes import Processes


@final
class SyncBatchNorm(TorchFunctionMode):
    """Within it `F.batch_norm` in training takes its statistics from the batches of all processes."""

    def __init__(self, processes: Processes) -> None:
        super().__init__()
        self.processes = processes

    def __torch_function__(
        self, func: Callable[..., Any], types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is F.batch_norm and kwargs.get("training"):
            return sync_batch_norm(self.processes, *args, **kwargs)
        return func(*args, **kwargs)


def sync_batch_norm(
    processes: Processes,
    x: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """What `F.batch_norm` in training makes of the rows of all processes joined, for this process's rows.

    Running statistics and gradients are those of the joined batch too, if all processes differentiate the sum of
    their losses. All processes must come here, with any number of rows each.

    Args:
        processes: who takes part.
        x: B×C×….
        running_mean: C, updated in place, as is running_var.
        running_var: C.
        weight: C.
        bias: C.
        training: taken for true.
        momentum: share of this batch in the running statistics.
        eps: added to the variance.
    """
    weight = x.new_ones(x.shape[1], dtype=torch.float32) if weight is None else weight
    bias = torch.zeros_like(weight) if bias is None else bias
    y, mean, var, count = cast(tuple[Tensor, ...], _Normalise.apply(x, weight, bias, eps, processes))
    if running_mean is not None and running_var is not None:
        with torch.no_grad():
            running_mean.lerp_(mean.to(running_mean.dtype), momentum)
            running_var.lerp_((var * count / (count - 1)).to(running_var.dtype), momentum)
    return y


@final
class _Normalise(torch.autograd.Function):
    """The normalised rows of this process, and the joint statistics, by torch's own BatchNorm kernels.

    With N, Σ over all processes, x̂ the normalised rows and s = weight / √(var + eps), the gradient g becomes
    s · (g - Σg/N - x̂ · Σ(g·x̂)/N). Where it is to be differentiated again, the formula is left to autograd.
    """

    @staticmethod
    def forward(  # type: ignore[reportIncompatibleMethodOverride]
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, eps: float, processes: Processes
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        exact = x.to(torch.promote_types(x.dtype, torch.float32))
        mean, var, count = joint_statistics(processes, *torch.batch_norm_update_stats(exact, None, None, 0.0), exact)
        ctx.save_for_backward(x, weight, bias, mean, var, count)
        ctx.eps, ctx.processes = eps, processes
        ctx.mark_non_differentiable(mean, var, count)
        return F.batch_norm(x, mean, var, weight, bias, False, 0.0, eps), mean, var, count

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, *rest: Any) -> tuple[Tensor | None, ...]:  # type: ignore[reportIncompatibleMethodOverride]
        x, weight, bias, mean, var, count = ctx.saved_tensors
        if torch.is_grad_enabled():
            y = differentiable_norm(ctx.processes, x, weight, bias, ctx.eps)
            return (
                *torch.autograd.grad(y, (x, weight, bias), gradient, create_graph=True, allow_unused=True),
                None,
                None,
            )
        fixed = (None, None, False, ctx.eps, [True, True, True])
        scaled, products, sums = torch.ops.aten.native_batch_norm_backward(gradient, x, weight, mean, var, *fixed)
        total = -ctx.processes.sum(torch.stack([products, sums])) * weight * (var + ctx.eps).rsqrt() / count
        scaled += F.batch_norm(x, mean, var, total[0], total[1], False, 0.0, ctx.eps)
        return scaled, products, sums, None, None


def differentiable_norm(processes: Processes, x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """The normalised rows of this process, by formulas that can be differentiated any number of times."""
    exact = x.to(torch.promote_types(x.dtype, torch.float32))
    var, mean = torch.var_mean(exact, [d for d in range(x.dim()) if d != 1], correction=0)
    mean, var, _ = joint_statistics(processes, mean, var, exact)
    shape = (1, -1, *[1] * (x.dim() - 2))
    y = (exact - mean.view(shape)) * ((var + eps).rsqrt() * weight).view(shape)  # the mean taken off first: else its
    return (y + bias.view(shape)).to(x.dtype)  # product with the scale is large, and gradients lose digits


def joint_statistics(processes: Processes, mean: Tensor, var: Tensor, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean and variance (divided by the count) of each channel over all processes, C each, and their count.

    Each process's own are sent, in a row of their own, and joined by Chan's formula: the difference of two large
    sums, which would lose digits, is not taken.

    Args:
        processes: who takes part.
        mean: of this process's rows, C.
        var: of this process's rows, C.
        x: those rows, B×C×….
    """
    row = torch.cat([mean, var, x.new_full((1,), x.numel() / x.shape[1])])
    above, below = (
        row.new_zeros(processes.rank, len(row)),
        row.new_zeros(processes.world - 1 - processes.rank, len(row)),
    )
    rows = cast(Tensor, _Sum.apply(torch.cat([above, row[None], below]), processes))
    means, variances, counts = rows[:, : len(mean)], rows[:, len(mean) : -1], rows[:, -1:]
    total = counts.sum()
    mean = (counts / total * means).sum(0)
    return mean, (counts / total * (variances + (means - mean) ** 2)).sum(0), total


@final
class _Sum(torch.autograd.Function):
    """The sum over all processes; its gradient is the sum of what all of them send back."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, processes: Processes) -> Tensor:  # type: ignore[reportIncompatibleMethodOverride]
        ctx.processes = processes
        return processes.sum(values)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:  # type: ignore[reportIncompatibleMethodOverride]
        return cast(Tensor, _Sum.apply(gradient, ctx.processes)), None
