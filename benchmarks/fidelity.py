"""What the readings of the paper and of the authors' code differ in, on an untrained ResNet-18: docs/fidelity.md.

python benchmarks/fidelity.py
"""

import torch
from torch import Tensor, nn

import pdeplus as pp
from pdeplus.augment.augmix import AugMix
from pdeplus.core.context import Trace
from pdeplus.core.surgery import add_blocks_of
from pdeplus.data.base import Batch
from pdeplus.methods.pde_plus import PDEPlus
from pdeplus.models.resnet18 import build

IMAGES, SEED = 8, 0


def main() -> None:
    """Print each figure on a line of its own."""
    torch.manual_seed(SEED)
    x = torch.rand(IMAGES, 3, 32, 32)
    twin = AugMix()(x, torch.Generator().manual_seed(SEED))
    for head, start in (("relu", 0.0), ("softplus", 0.0), ("softplus", 0.05)):
        _scales(head, start, x, twin)
    _gradients(x, twin)
    _batch_norm_updates(x)
    for operations in (9, 13):
        shared = ", ".join(AugMix(operations=operations).overlaps) or "none"
        print(f"AugMix of {operations} operations overlaps with: {shared}")


def _net(method: PDEPlus, x: Tensor) -> nn.Module:
    torch.manual_seed(SEED)
    return method.prepare(build(classes=10, channels=3), x).train()


def _traces(net: nn.Module, x: Tensor, twin: Tensor) -> tuple[Trace, Trace]:
    with pp.diffusion(net, generator=torch.Generator().manual_seed(SEED)) as trace:
        net(x)
    with pp.diffusion(net, active=False) as plain:
        net(twin)
    return trace, plain


def _scales(head: str, start: float, x: Tensor, twin: Tensor) -> None:
    """σ and the coverage loss at the start, σ as a variance."""
    method = PDEPlus(block="paper", head=head, initial_scale=start, sigma_is="variance")
    trace, plain = _traces(_net(method, x), x, twin)
    with torch.no_grad():
        loss = float(method.coverage(plain, trace))
        zero = float(torch.cat([scale.flatten() for scale in trace.scales]).eq(0).float().mean())
        mean = [round(float(scale.mean()), 3) for scale in trace.scales]
    print(f"head {head}, initial_scale {start}: mean σ {mean}, {100 * zero:.1f} % exactly 0, coverage loss {loss:.3g}")


def _gradients(x: Tensor, twin: Tensor) -> None:
    """Where the authors' coverage gradient goes: to θ, and to φ₁ from its own stage and from later ones."""
    method = PDEPlus(
        block="paper",
        head="relu",
        initial_scale=0.0,
        sigma_is="variance",
        schedule="alternating",
        coverage_gradient="through",
    )
    net = _net(method, x)
    phi = [p for block in add_blocks_of(net) for p in block.parameters()]
    theta = [p for p in net.parameters() if not any(p is other for other in phi)]
    first = list(add_blocks_of(net)[0].parameters())

    def norm(parameters: list[nn.Parameter], stages: slice) -> float:
        net.zero_grad()
        trace, plain = _traces(net, x, twin)
        parts = Trace(trace.names[stages], trace.means[stages], trace.scales[stages])
        twins = Trace(plain.names[stages], plain.means[stages])
        method.coverage(twins, parts).backward()
        return sum(float(p.grad.square().sum()) for p in parameters if p.grad is not None) ** 0.5

    everything, own, later = norm(theta, slice(None)), norm(first, slice(0, 1)), norm(first, slice(1, None))
    print(f"authors' coverage gradient: norm {everything:.2g} at θ, where it is thrown away")
    print(f"at the first ADD block: {own:.2g} from its own stage, {later:.2g} from later ones ({later / own:.0f} ×)")


def _batch_norm_updates(x: Tensor) -> None:
    """How often a step updates the backbone's running statistics."""
    for schedule in ("fused", "alternating", "authors"):
        method = PDEPlus(block="paper", schedule=schedule)
        net = _net(method, x)
        norm = next(module for module in net.modules() if isinstance(module, nn.BatchNorm2d))
        before = int(norm.num_batches_tracked)
        stream = torch.Generator().manual_seed(SEED)
        batch = Batch(x, torch.arange(IMAGES) % 10, lambda images, generator: images, stream)
        for _ in method.objectives(net, batch):
            pass
        print(f"schedule {schedule}: {int(norm.num_batches_tracked) - before} updates of BatchNorm statistics a step")


if __name__ == "__main__":
    main()
