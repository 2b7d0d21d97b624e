"""What the readings of the paper and of the authors' code differ in, on an untrained ResNet-18: docs/fidelity.md."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

import pdeplus as pp
from pdeplus.augment.augmix import AugMix
from pdeplus.core.context import Trace
from pdeplus.core.surgery import add_blocks_of
from pdeplus.data.base import Batch
from pdeplus.methods import IN_STAGES
from pdeplus.methods.pde_plus import PDEPlus
from pdeplus.models.resnet18 import build

from .results import Effort, Result

IMAGES, SEED = 8, 0
OWN = "at the first ADD block, from its own stage"


def measure(effort: Effort) -> Iterator[Result]:
    """Five small tables; nothing is timed."""
    width, heads = 8 if effort.quick else 64, (("relu", 0.0), ("softplus", 0.0), ("softplus", 0.05))
    with torch.random.fork_rng():
        torch.manual_seed(SEED)
        x = torch.rand(IMAGES, 3, 32, 32)
        twin = AugMix()(x, torch.Generator().manual_seed(SEED))
        starts = {f"head {head}, initial_scale {start}": _start(head, start, width, x, twin) for head, start in heads}
        for k, (what, unit) in enumerate((("mean σ", ""), ("σ exactly 0", "%"), ("coverage loss", ""))):
            yield Result(f"fidelity, {what} at the start", {name: row[k] for name, row in starts.items()}, unit)
        yield Result("fidelity, norm of the authors' coverage gradient", _gradients(width, x, twin), base=OWN)
        updates = {name: _batch_norm_updates(name, width, x) for name in ("fused", "alternating", "authors")}
        yield Result("fidelity, updates of BatchNorm statistics in a step of each schedule", updates)


def _in_stages(**options: Any) -> PDEPlus:
    return PDEPlus(**{**IN_STAGES, **options})


def _net(method: PDEPlus, width: int, x: Tensor) -> nn.Module:
    torch.manual_seed(SEED)
    return method.prepare(build(classes=10, channels=3, width=width), x).train()


def _traces(net: nn.Module, x: Tensor, twin: Tensor) -> tuple[Trace, Trace]:
    with pp.diffusion(net, generator=torch.Generator().manual_seed(SEED)) as trace:
        net(x)
    with pp.diffusion(net, active=False) as plain:
        net(twin)
    return trace, plain


@torch.no_grad()
def _start(head: str, start: float, width: int, x: Tensor, twin: Tensor) -> tuple[float, float, float]:
    """The mean of σ over blocks, the share that is 0 in per cent, and the coverage loss with σ as a variance."""
    method = _in_stages(block="paper", head=head, initial_scale=start, sigma_is="variance")
    trace, plain = _traces(_net(method, width, x), x, twin)
    zero = torch.cat([scale.flatten() for scale in trace.scales]).eq(0).float().mean()
    mean = torch.stack([scale.mean() for scale in trace.scales]).mean()
    return float(mean), 100 * float(zero), float(method.coverage(plain, trace))


def _gradients(width: int, x: Tensor, twin: Tensor) -> dict[str, float]:
    """Where the authors' coverage gradient goes: to θ, and to φ₁ from its own stage and from later ones."""
    authors = {"schedule": "alternating", "coverage_gradient": "through", "sigma_is": "variance"}
    method = _in_stages(block="paper", head="relu", initial_scale=0.0, **authors)
    net = _net(method, width, x)
    phi = [list(block.parameters()) for block in add_blocks_of(net)]
    theta = [p for p in net.parameters() if p not in set().union(*phi)]

    def norm(parameters: list[nn.Parameter], stages: slice) -> float:
        trace, plain = _traces(net, x, twin)
        parts = Trace(trace.names[stages], trace.means[stages], trace.scales[stages])
        loss = method.coverage(Trace(plain.names[stages], plain.means[stages]), parts)
        found = torch.autograd.grad(loss, parameters, allow_unused=True)
        return sum(float(gradient.square().sum()) for gradient in found if gradient is not None) ** 0.5

    return {
        OWN: norm(phi[0], slice(0, 1)),
        "at the first ADD block, from later stages": norm(phi[0], slice(1, None)),
        "at θ, where it is thrown away": norm(theta, slice(None)),
    }


def _batch_norm_updates(schedule: str, width: int, x: Tensor) -> int:
    """How often a step updates the backbone's running statistics."""
    method, stream = _in_stages(block="paper", schedule=schedule), torch.Generator().manual_seed(SEED)
    net = _net(method, width, x)
    before = int(net.bn1.num_batches_tracked)
    for _ in method.objectives(net, Batch(x, torch.arange(IMAGES) % 10, lambda images, generator: images, stream)):
        pass
    return int(net.bn1.num_batches_tracked) - before
