"""PDE+ (Yuan et al., 2024): every sample diffuses into a distribution that covers its similar samples.

Idea: a residual network carries its input along a transport equation; a diffusion term makes the solution smooth.
How far each feature diffuses is learnt, so that the neighbourhood of a sample holds its augmentations, and so,
perhaps, corruptions that nobody has seen.
Formula: after each stage an ADD block gives σ_l = g_φl(h_l), and h_l becomes h_l + σ_l · N(0, I). Coverage, for φ:
Σ_l mean[log σ_l + (h_l(a(x)) - h_l(x))² / 2σ_l²]. Task, for everything: CE on [x; a(x)], both diffused ("mixture"),
and, ours, jsd · JS(p(x), p(a(x))), the agreement of those two predictions.
Source: Yuan et al., PDE+: enhancing generalization via PDE with adaptive distributional diffusion, AAAI 2024.
Defaults: AugMix of severity 3, width 3 and nine operations; a light block after each stage, σ from 0.05; Adam
0.001 on φ; jsd 6; one backward pass for both objectives; no noise at test. Presets: pde_plus, paper, authors.
Cost: a gradient-free pass of one image, and a forward and backward pass of two: 7.1 forward passes' worth against
ERM's 3, with the paper's block, which is as large as the network, 10.8; AugMix once. A sample at test is a pass.
Published: ResNet-18, accuracy clean / corrupted: CIFAR-10 95.59 / 89.11, CIFAR-100 78.84 / 65.62 (no noise at test).
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Adam, Optimizer

from ..augment.augmix import AugMix
from ..augment.base import Augmentor
from ..core.add_block import Block, Head
from ..core.context import Trace, diffusion
from ..core.network import logits_of
from ..core.prediction import Average
from ..core.surgery import add_blocks_of, add_diffusion
from ..data.base import Batch
from ..errors import UserError
from ..functional import Prior, coverage_nll, jensen_shannon
from ..models.base import placed
from ._views import augmented_view, clean_and_augmented
from .base import BuildOptimizer, Method, Objective, accuracy, check_range

LEAST_VARIANCE = 1e-6
"""Where a ReLU head gives σ = 0 the coverage loss sees this variance, as in the authors' code."""


@final
@dataclass(frozen=True, kw_only=True)
class PDEPlus(Method):
    """Adaptive distributional diffusion. The defaults are the preset `pde_plus`."""

    placement: Literal["stage", "block"] | tuple[str, ...] = "stage"
    """ADD blocks after each stage (authors' code), each residual block (paper), or the named modules."""
    block: Block = "light"
    """A light ADD block (a depthwise and a pointwise convolution), or the paper's, thirty times as large."""
    head: Head = "softplus"
    """What makes σ positive: softplus with a floor, or ReLU (authors' code; σ can be 0)."""
    initial_scale: float = 0.05
    """σ at the start; 0 leaves it to BatchNorm, which starts it as large as the features."""
    sigma_is: Literal["std", "variance"] = "std"
    """What σ is in the coverage loss; the noise always uses it as a standard deviation."""
    prior: Prior = "gaussian"
    """Family of the noise, in the loss and in the diffusion."""
    schedule: Literal["fused", "alternating", "authors"] = "fused"
    """One backward for both objectives; Algorithm 1 in two updates; or the authors' three full passes."""
    coverage_gradient: Literal["local", "through"] = "local"
    """The coverage loss of block l reaches φ_l only, or (authors' code) every earlier φ as well."""
    coverage_reduction: Literal["sum", "mean"] = "sum"
    """How the blocks' losses become one: the paper's sum, or the authors' mean."""
    coverage_weight: float = 1.0
    """Weight of the coverage loss, against the task's gradient at φ (fused) or alone."""
    twins: Literal["plain", "diffused"] = "plain"
    """Whose features the coverage loss covers: those of a plain pass of the augmentations, or (fused) their own rows of
    the diffused pass before each block's noise, which saves that pass."""
    mixture: bool = True
    """Cross-entropy on originals and augmentations; false is the paper's "PDE+ w/o aug"."""
    supervised: Literal["both", "original"] = "both"
    """Whose cross-entropy is in the mixture: both views' (paper), or the original's, so that the other only agrees."""
    views: Literal["original+augmented", "both augmented"] = "original+augmented"
    """The paper's pair, or the authors' code, which augments the originals too."""
    augmentor: Augmentor = AugMix()
    """What makes semantically similar samples."""
    diffusion_lr: float = 0.001
    """Learning rate of Adam on φ."""
    diffusion_schedule: Literal["constant", "cosine"] = "constant"
    """Schedule of that learning rate: constant, or the run's own warm-up and cosine."""
    jsd: float = 6.0
    """Weight of the agreement of the two diffused predictions (Jensen-Shannon, as in AugMix; ours); 0 for none (paper,
    authors). Without the mixture there is but one prediction, and none."""
    label_smoothing: float = 0.0
    """Label smoothing of the cross-entropy."""
    samples: int = 0
    """Noisy passes E at test; 0 is the plain network."""
    average: Average = "probabilities"
    """What those passes average."""

    def __post_init__(self) -> None:
        check_range(0, 1, label_smoothing=self.label_smoothing)
        check_range(0, math.inf, diffusion_lr=self.diffusion_lr, coverage_weight=self.coverage_weight)
        check_range(0, math.inf, jsd=self.jsd, samples=self.samples)
        if self.schedule == "fused" and self.coverage_gradient == "through":
            raise UserError(
                "method.coverage_gradient='through' needs two backward passes: set method.schedule='alternating'"
            )
        if self.twins == "diffused" and not (self.schedule == "fused" and self.mixture):
            raise UserError("method.twins='diffused' needs method.schedule='fused' and method.mixture=true")

    @property
    def label(self) -> str:
        other = [] if isinstance(self.augmentor, AugMix) else [type(self.augmentor).__name__]
        other += [] if self.prior == "gaussian" else [self.prior]
        return "PDE+" + " w/o aug" * (not self.mixture) + f" ({', '.join(other)})" * bool(other)

    @property
    def learns_plain(self) -> bool:
        return self.twins == "plain"

    def prepare(self, model: nn.Module, example: Tensor) -> nn.Module:
        return add_diffusion(
            model,
            after=placed(model, self.placement),
            example=example,
            block=self.block,
            head=self.head,
            initial_scale=self.initial_scale or None,
            prior=self.prior,
        )

    def optimizers(self, model: nn.Module, build: BuildOptimizer) -> dict[str, Optimizer]:
        """Adam on φ. The task's optimiser has all parameters, but for fused, where Adam has φ to itself."""
        phi = [p for block in add_blocks_of(model) for p in block.parameters()]
        mine = {id(p) for p in phi} if self.schedule == "fused" else set[int]()
        theta = [p for p in model.parameters() if id(p) not in mine]
        group = {"params": phi, "lr": self.diffusion_lr, "schedule": self.diffusion_schedule}
        return {"task": build(theta), "diffusion": Adam([group])}

    def objectives(self, model: nn.Module, batch: Batch) -> Iterator[Objective]:
        """Algorithm 1."""
        original, similar = self._views(batch)
        if self.schedule == "fused":
            yield self._fused(model, original, similar, batch)
            return
        trace, twin = self._coverage_passes(model, original, similar, batch.generator)
        coverage = self.coverage_weight * self.coverage(twin, trace)
        reach = "all" if self.schedule == "authors" else "updated"
        scales = mean_scales(trace)
        yield Objective(coverage, parts={"coverage": coverage}, update=("diffusion",), reach=reach, metrics=scales)
        inputs, labels = self._task_inputs(original, similar, batch.labels)
        with diffusion(model, generator=batch.generator):
            logits = logits_of(model(inputs))
        parts = self._task(logits, labels)
        yield Objective(self._sum(parts), parts=parts, metrics={"accuracy": accuracy(logits, labels)})

    def coverage(self, twin: Trace, trace: Trace) -> Tensor:
        """The diffusion distribution coverage objective: -log p(h_l^a | h_l), summed over the blocks."""
        losses = list[Tensor]()
        for h_twin, h, scale in zip(twin.means, trace.means, trace.scales, strict=True):
            if self.coverage_gradient == "local":
                h_twin, h = h_twin.detach(), h.detach()
            std = self._std(scale.float())
            losses.append(coverage_nll(h_twin.float(), h[: len(scale)].float(), std, self.prior))
        total = torch.stack(losses)
        return total.sum() if self.coverage_reduction == "sum" else total.mean()

    def _std(self, scale: Tensor) -> Tensor:
        """The coverage loss's standard deviation; only a ReLU head can give less than the least."""
        if self.sigma_is == "variance":
            return (scale.clamp(min=LEAST_VARIANCE) if self.head == "relu" else scale).sqrt()
        return scale.clamp(min=LEAST_VARIANCE**0.5) if self.head == "relu" else scale

    def _fused(self, model: nn.Module, original: Tensor, similar: Tensor, batch: Batch) -> Objective:
        """One gradient-free plain pass, unless twins are diffused, one diffused pass, one backward.

        g_φ sees detached features, so the summed loss gives φ the gradient of both terms and everything
        else that of the task alone.
        """
        twin = Trace()
        if self.twins == "plain":
            with torch.no_grad(), diffusion(model, active=False) as twin:
                model(similar)
        inputs, labels = self._task_inputs(original, similar, batch.labels)
        with diffusion(model, generator=batch.generator, local=True, learn_from=len(original)) as trace:
            logits = logits_of(model(inputs))
        if self.twins == "diffused":
            twin = Trace(trace.names, [h[len(original) :] for h in trace.means])
        parts = self._task(logits, labels) | {"coverage": self.coverage_weight * self.coverage(twin, trace)}
        metrics = {"accuracy": accuracy(logits, labels), **mean_scales(trace)}
        return Objective(self._sum(parts), parts=parts, update=("task", "diffusion"), metrics=metrics)

    def _task(self, logits: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """Cross-entropy, and the agreement of both views where there are two and it has a weight."""
        seen = len(logits) // 2 if self.mixture and self.supervised == "original" else len(logits)
        task = F.cross_entropy(logits[:seen], labels[:seen], label_smoothing=self.label_smoothing)
        if not (self.jsd and self.mixture):
            return {"task": task}
        return {"task": task, "consistency": jensen_shannon(logits.float().view(2, len(logits) // 2, -1))}

    def _sum(self, parts: Mapping[str, Tensor]) -> Tensor:
        weights = {"consistency": self.jsd}
        return torch.stack([weights.get(name, 1.0) * part for name, part in parts.items()]).sum()

    def _coverage_passes(
        self, model: nn.Module, original: Tensor, similar: Tensor, generator: torch.Generator
    ) -> tuple[Trace, Trace]:
        """The diffused pass of the originals and the plain pass of their twins.

        Only the authors' schedule builds graphs that the update of φ does not need.
        """
        local = self.coverage_gradient == "local"
        authors = self.schedule == "authors"
        with torch.set_grad_enabled(authors or not local), diffusion(model, generator=generator, local=local) as trace:
            model(original)
        with torch.set_grad_enabled(authors), diffusion(model, active=False) as twin:
            model(similar)
        return trace, twin

    def _views(self, batch: Batch) -> list[Tensor]:
        if self.views == "original+augmented":
            return clean_and_augmented(batch, [self.augmentor])
        return [augmented_view(batch, self.augmentor) for _ in range(2)]

    def _task_inputs(self, original: Tensor, similar: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        if not self.mixture:
            return original, labels
        return torch.cat([original, similar]), labels.repeat(2)


def mean_scales(trace: Trace) -> dict[str, Tensor]:
    """The mean σ of every block, for the log."""
    return {f"sigma/{name}": s.detach().mean() for name, s in zip(trace.names, trace.scales, strict=True)}
