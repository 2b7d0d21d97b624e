"""PDE+ (Yuan et al., 2024): every sample diffuses into a distribution that covers its similar samples.

Idea: a residual network carries its input along a transport equation; a diffusion term makes the solution smooth.
How far each feature diffuses is learnt, so that the neighbourhood of a sample holds its augmentations, and so,
perhaps, corruptions that nobody has seen.
Formula: an ADD block gives σ_l = g_φl(h_l), and h_l becomes h_l + σ_l · N(0, I). Coverage, for φ:
Σ_l mean[log σ_l + (h_l(a(x)) - h_l(x))² / 2σ_l²], a mean over elements where the paper sums. Task, for everything: CE
of what has diffused. The paper has a block after each stage or residual block, and CE on [x; a(x)] ("mixture").
The default (ours): one block on the images themselves, h_0 = a(x), whose σ, one number for each image, covers x; it
diffuses 30 % of each batch (`share`), in the last 40 % of the training (`diffuse_after`). One pass, as AugMix's.
In stages (`pde_plus_stages`): a block after each stage, CE on [x; a(x)] and, ours, jsd · JS(p(x), p(a(x))).
Directional (ours, `covariance`): h_l + s ε (h_l(a(x)) - h_l(x)), ε ~ N(0, 1), and likewise for a(x); no φ, no coverage.
Source: Yuan et al., PDE+: enhancing generalization via PDE with adaptive distributional diffusion, AAAI 2024.
Defaults: AugMix of severity 3, width 3 and nine operations; σ from the first batch's ‖a(x) - x‖; Adam 0.005 on φ (in
stages: light blocks, σ from 0.05, Adam 0.001, jsd 6); one backward pass for both objectives; no noise at test. Presets:
pde_plus, paper (its E = 10 is the authors' code's, the paper gives none), authors. How they differ: docs/fidelity.md.
Cost: ERM's and AugMix once. In stages: a gradient-free pass of one image, and a forward and backward pass of two, 7.1
forward passes' worth against ERM's 3, with the paper's block 10.8. A sample at test is a pass.
Published: ResNet-18, accuracy clean / corrupted: CIFAR-10 95.59 / 89.11, CIFAR-100 78.84 / 65.62 (no noise at test).
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, final

import torch
from torch import Tensor, nn
from torch.optim import Adam, Optimizer

from .._lib.registry import NEW, new_since
from ..augment.augmix import AugMix
from ..augment.base import Augmentor
from ..core.add_block import Block, Covariance, Head, ScalePer
from ..core.batch_norm import unchanged_buffers
from ..core.context import Trace, diffusion
from ..core.network import logits_of
from ..core.prediction import Average
from ..core.surgery import add_blocks_of, add_diffusion
from ..data.base import Batch
from ..errors import UserError
from ..functional import Per, Prior, coverage_nll
from ..models.base import placed
from .base import BuildOptimizer, Objective, Views, WithViews, check_range, draw_views, objective_of, views_of

LOGGED = 64
"""Samples whose distance to their twins is logged."""
FIRST_OF: Mapping[Views, Views] = {"original+augmented": "original", "both augmented": "augmented"}
"""Views of which the first alone has a label, for those where both have."""
LEAST_VARIANCE = 1e-6
"""Where a ReLU head gives less, as σ = 0, the coverage loss sees this variance, as in the authors' code."""


@final
@dataclass(frozen=True, kw_only=True)
class PDEPlus(WithViews):
    """Adaptive distributional diffusion. The defaults are ours; `pde_plus_stages` is nearer the paper."""

    covariance: Covariance = field(default="isotropic", metadata=NEW)
    """Covariance of the noise: isotropic with the learnt scale σ (paper); directional, along the way to the similar
    sample (ours), without φ, coverage loss and plain pass; or both (ours)."""
    reach: float | tuple[float, ...] = field(default=0.5, metadata=NEW)
    """Directional: standard deviation along the way to the similar sample, in units of its length; a number, or one per
    block."""
    per: Per = field(default="sample", metadata=NEW)
    """Directional: one random number per sample, per position or per channel."""
    placement: Literal["stage", "block", "input"] | tuple[str, ...] = "input"
    """Where the ADD blocks are: on the images before the network (ours), after each stage (authors' code), after each
    residual block (paper), or after the named modules, of which the first may be "input"."""
    share: float = field(default=0.3, metadata=new_since(1.0))
    """Share of each batch that diffuses: all of it (1, paper) or a part (ours). The network is tested without noise, so
    BatchNorm's statistics should not come from noisy features alone."""
    diffuse_after: float = field(default=0.6, metadata=new_since(0.0))
    """Share of the training after which diffusion begins (ours; the paper's is 0). σ is learnt from the start."""
    block: Block = "light"
    """A light ADD block (a depthwise and a pointwise convolution), or the paper's, thirty times as large."""
    head: Head = "softplus"
    """What makes σ positive: softplus with a floor, or ReLU (authors' code; σ can be 0)."""
    initial_scale: float = 0.05
    """Initial σ; 0 leaves it to BatchNorm, which makes it as large as the features."""
    scale_from: Literal["given", "twins"] = field(default="twins", metadata=new_since("given"))
    """Where the initial σ comes from: `initial_scale` in every block, or (ours) the root mean square of h(a(x)) - h(x)
    over the first batch, block by block. A pretrained network needs this: its features may be 100 times larger."""
    scale_per: ScalePer = field(default="sample", metadata=new_since("element"))
    """One σ per element of the features (authors' code), or one per sample, as G(x, t) in the paper's equation. Then
    those parts of an image that an augmentation leaves unchanged diffuse as far as the others."""
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
    coverage_images: int = field(default=256, metadata=NEW)
    """Fused schedule: φ learns from at most this many images of a batch, which saves most of the coverage loss's time
    in large batches; the others diffuse all the same. The other schedules use the whole batch."""
    twins: Literal["plain", "diffused"] = "plain"
    """Which features of the augmentations the coverage loss covers: those of a plain pass, or (fused) those of the
    diffused pass before each block's noise, which saves the plain pass."""
    mixture: bool = True
    """False is an older name of method.views='original' without agreement, the paper's "PDE+ w/o aug"."""
    supervised: Literal["both", "original"] = "both"
    """"original" is an older name of method.views='original'."""
    views: Views = "augmented"
    """The views in the cross-entropy: one augmentation (ours), with its original as the similar sample; original and
    augmentation (the paper's mixture); two augmentations (authors' code); or the original alone, with an augmentation
    as the similar sample, which is covered and may agree but has no label."""
    agreeing: Literal[2, 3] = field(default=2, metadata=NEW)
    """Number of views that must agree: 2, or 3 with one more augmentation or the original."""
    augmentor: Augmentor = AugMix()
    """Augmentation that makes semantically similar samples."""
    diffusion_lr: float = 0.005
    """Learning rate of Adam on φ."""
    diffusion_schedule: Literal["constant", "cosine"] = "constant"
    """Schedule of that learning rate: constant, or the run's own warm-up and cosine."""
    jsd: float = 0.0
    """Weight of the Jensen-Shannon divergence between the diffused predictions of the views (as in AugMix; ours)."""
    samples: int = 0
    """Noisy passes E at test; 0 is the plain network."""
    average: Average = "probabilities"
    """What those passes average."""

    def __post_init__(self) -> None:
        check_range(0, math.inf, diffusion_lr=self.diffusion_lr, coverage_weight=self.coverage_weight)
        check_range(0, math.inf, samples=self.samples)
        self.check_agreement()
        check_range(2, math.inf, coverage_images=self.coverage_images)
        check_range(0, 1, share=self.share, diffuse_after=self.diffuse_after)
        if self.share < 1 or self.diffuse_after:
            for key, value in {"schedule": "fused", "covariance": "isotropic"}.items():
                if getattr(self, key) != value:
                    named = "pde_plus_directional" if self.covariance == "directional" else "pde_plus_stages"
                    raise UserError(
                        f"method.{key}={getattr(self, key)!r} needs method.share=1 and method.diffuse_after=0: "
                        f"take method.name={named}"
                    )
        if self.covariance != "isotropic":
            if not (self.schedule == "fused" and self.number == 2):
                need = (
                    "needs two views in one pass: leave method.schedule, method.views and method.agreeing as they are"
                )
                raise UserError(f"method.covariance={self.covariance!r} {need}")
            if self.samples:
                raise UserError(
                    f"method.samples={self.samples}: at test there are no twins to diffuse along; take 0 with "
                    f"method.covariance={self.covariance!r}"
                )
        if self.scale_from == "twins" and not self.initial_scale:
            raise UserError("method.scale_from='twins' needs method.initial_scale above 0, which it then replaces")
        if self.schedule == "fused" and self.coverage_gradient == "through":
            raise UserError(
                "method.coverage_gradient='through' needs two backward passes: set method.schedule='alternating'"
            )
        if self.twins == "diffused" and not (self.schedule == "fused" and self.number > 1):
            raise UserError(
                "method.twins='diffused' needs method.schedule='fused' and two views: a mixture or agreement"
            )
        if self.views in FIRST_OF.values() and (not self.mixture or self.supervised == "original"):
            older = "method.mixture=false and method.supervised='original' are older names of the same"
            raise UserError(f"method.views={self.views!r}: {older}; leave them out")

    @property
    def label(self) -> str:
        other = [] if isinstance(self.augmentor, AugMix) else [type(self.augmentor).__name__]
        other += [] if self.prior == "gaussian" else [self.prior]
        other += {"isotropic": [], "directional": ["directional"], "both": ["isotropic + directional"]}[self.covariance]
        other += ["ours"] if self.of_images else []
        without = self.number == 1 and self.chosen == "original"
        return "PDE+" + " w/o aug" * without + f" ({', '.join(other)})" * bool(other)

    @property
    def chosen(self) -> Views:
        both = self.mixture and self.supervised == "both"
        return self.views if both else FIRST_OF.get(self.views, self.views)

    @property
    def agreement(self) -> float:
        return self.jsd if self.mixture else 0.0

    @property
    def of_images(self) -> bool:
        """Whether the images diffuse, and no features."""
        return self.placement in ("input", ("input",))

    @property
    def overlaps(self) -> tuple[str, ...] | None:
        return ("gaussian_noise",) if "input" in (self.placement, *self.placement) else None

    @property
    def learns_plain(self) -> bool:
        return self.twins == "plain" and self.covariance != "directional" and not self.of_images

    def in_batches(self, size: int, usual: int) -> "PDEPlus":
        learnt = max(2, round(min(self.coverage_images, usual) * size / usual))  # of the fused schedule
        return replace(self, coverage_images=learnt)

    def prepare(self, model: nn.Module, example: Tensor) -> nn.Module:
        return add_diffusion(
            model,
            after=placed(model, self.placement),
            example=example,
            block=self.block,
            head=self.head,
            initial_scale=self.initial_scale or None,
            scale_per=self.scale_per,
            prior=self.prior,
            covariance=self.covariance,
            reach=self.reach,
            per=self.per,
        )

    def begin(self, model: nn.Module, batch: Batch) -> dict[str, float]:
        if self.scale_from == "given" or self.covariance == "directional":
            return {}
        views, similar = self._views(batch)
        pairs = torch.cat([views[0], similar])
        with torch.no_grad(), unchanged_buffers(model):
            distances = mean_distances(plain_features(model, pairs))
        blocks = {block.name: block for block in add_blocks_of(model)}
        for name, distance in zip(blocks, distances.values(), strict=True):
            blocks[name].start_at(max(float(distance), 2 * blocks[name].floor))
        return {f"sigma/{name}": float(distance) for name, distance in zip(blocks, distances.values(), strict=True)}

    def optimizers(self, model: nn.Module, build: BuildOptimizer) -> dict[str, Optimizer]:
        """Adam on φ. The task's optimiser has all parameters, but for fused, where Adam has φ to itself."""
        if self.covariance == "directional":
            return {"task": build(model.parameters())}
        theta, phi = theta_and_phi(model)
        if self.schedule != "fused":
            theta = list(model.parameters())
        group = {"params": phi, "lr": self.diffusion_lr, "schedule": self.diffusion_schedule}
        return {"task": build(theta), "diffusion": Adam([group])}

    def objectives(self, model: nn.Module, batch: Batch) -> Iterator[Objective]:
        """Algorithm 1. Only the authors' schedule builds graphs that the update of φ does not need."""
        views, similar = self._views(batch)
        original, inputs = views[0], torch.cat(views)
        if self.covariance == "directional":
            with diffusion(model, generator=batch.generator, twins=True) as trace:
                logits = logits_of(model(inputs))
            goal = self._task(logits, batch)
            yield replace(goal, metrics={**goal.metrics, **mean_distances(trace)})
            return
        if self.schedule == "fused":
            yield self._fused(model, inputs, similar, batch)
            return
        local, authors = self.coverage_gradient == "local", self.schedule == "authors"
        graph = authors or not local
        with torch.set_grad_enabled(graph), diffusion(model, generator=batch.generator, local=local) as trace:
            model(original)
        with torch.set_grad_enabled(authors):
            twin = plain_features(model, similar)
        coverage = self.coverage_weight * self.coverage(twin, trace)
        reach = "all" if authors else "updated"
        scales = mean_scales(trace)
        yield Objective(coverage, parts={"coverage": coverage}, update=("diffusion",), reach=reach, metrics=scales)
        with diffusion(model, generator=batch.generator):
            logits = logits_of(model(inputs))
        yield self._task(logits, batch)

    def _views(self, batch: Batch) -> tuple[list[Tensor], Tensor]:
        """The views in the loss, and what is similar to the first: the second, or of an augmentation its original."""
        if self.number == 1 and self.chosen == "augmented":
            clean, augmented = views_of(batch, self.augmentor)
            return [augmented], clean
        views = draw_views(batch, self.chosen, max(2, self.number), self.augmentor)
        return views[: self.number], views[1]

    def coverage(self, twin: Trace, trace: Trace) -> Tensor:
        """The diffusion distribution coverage objective: -log p(h_l^a | h_l), summed over the blocks."""
        losses = list[Tensor]()
        for h_twin, h, scale in zip(twin.means, trace.means, trace.scales, strict=True):
            if self.coverage_gradient == "local":
                h_twin, h = h_twin.detach(), h.detach()
            h_twin, h, std = precise(h_twin), precise(h[: len(scale)]), precise(scale)
            if self.head == "relu":  # no other head can give less than the least
                std = at_least(std if self.sigma_is == "variance" else std.square(), LEAST_VARIANCE).sqrt()
            elif self.sigma_is == "variance":
                std = std.sqrt()
            losses.append(coverage_nll(h_twin, h, std, self.prior))
        total = torch.stack(losses)
        return total.sum() if self.coverage_reduction == "sum" else total.mean()

    def _fused(self, model: nn.Module, inputs: Tensor, similar: Tensor, batch: Batch) -> Objective:
        """One gradient-free plain pass, unless twins are diffused, one diffused pass, one backward.

        g_φ sees detached features, so the summed loss gives φ the gradient of both terms and everything
        else that of the task alone.
        """
        twin, learnt = Trace(), similar[: self.coverage_images]
        if self.of_images:
            twin = Trace(["input"], [learnt])
        elif self.twins == "plain":
            with torch.no_grad():
                twin = plain_features(model, learnt)
        both, rows = self.covariance == "both", len(learnt)
        share = self.share if batch.progress >= self.diffuse_after else 0.0
        stream = batch.generator
        with diffusion(model, generator=stream, local=True, learn_from=rows, twins=both, share=share) as trace:
            logits = logits_of(model(inputs))
        if self.twins == "diffused" and not self.of_images:
            twin = Trace(trace.names, [h[len(similar) :][: len(learnt)] for h in trace.means])
        return self._task(logits, batch, covered=(twin, trace))

    def _task(self, logits: Tensor, batch: Batch, covered: tuple[Trace, Trace] | None = None) -> Objective:
        """Cross-entropy and agreement of the diffused views, and the coverage if fused."""
        by_view = logits.view(self.number, len(batch.labels), -1)
        goal = objective_of(by_view, batch, jsd=self.agreement, supervised=self.in_task)
        if not covered:
            return goal
        coverage = self.coverage_weight * self.coverage(*covered)
        parts, metrics = {**goal.parts, "coverage": coverage}, {**goal.metrics, **mean_scales(covered[1])}
        return Objective(goal.loss + coverage, parts=parts, update=("task", "diffusion"), metrics=metrics)


def theta_and_phi(model: nn.Module) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """The parameters of a network, and those of its ADD blocks, which are none where all noise is directional."""
    phi = [p for block in add_blocks_of(model) for p in block.parameters()]
    mine = {id(p) for p in phi}
    return [p for p in model.parameters() if id(p) not in mine], phi


def plain_features(model: nn.Module, images: Tensor) -> Trace:
    """The features before each ADD block in a pass without noise."""
    with diffusion(model, active=False) as trace:
        model(images)
    return trace


@torch.no_grad()
def mean_distances(trace: Trace) -> dict[str, Tensor]:
    """Root mean square of h^a - h at every block, of some samples, for the log."""
    found = dict[str, Tensor]()
    for name, h in zip(trace.names, trace.means, strict=True):
        first, second = (half[:LOGGED].float() for half in h.chunk(2))
        found[f"distance/{name}"] = (second - first).square().mean().sqrt()
    return found


def precise(h: Tensor) -> Tensor:
    """In 32 bits at least."""
    return h.to(torch.promote_types(h.dtype, torch.float32))


def at_least(variance: Tensor, least: float) -> Tensor:
    """The variance, or `least` where it is below; the gradient passes there too, as in torch's GaussianNLLLoss."""
    variance = variance.clone()
    with torch.no_grad():
        variance.clamp_(min=least)
    return variance


def mean_scales(trace: Trace) -> dict[str, Tensor]:
    """The mean σ of every block, for the log."""
    return {f"sigma/{name}": s.detach().mean() for name, s in zip(trace.names, trace.scales, strict=True)}
