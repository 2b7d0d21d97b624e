"""The ADD block: σ = g_φ(h), then h + σ · N(0, I); and the layers of g_φ for each shape of features."""

import math
from functools import partial
from typing import Literal, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..errors import UserError
from ..functional import Per, Prior, diffuse, diffuse_along
from .context import DiffusionContext, FollowsDiffusion, context_of

Block = Literal["paper", "light"]
"""The layers of g_φ: the paper's, or light ones."""
Head = Literal["softplus", "relu"]
"""What makes σ positive."""
ScalePer = Literal["element", "sample"]
"""What has a σ of its own: each element of the features (authors' code), or each sample (the paper's equation)."""
LEAST_SQUARE = 1e-12
"""Least square of a sample's σ: at 0, which a ReLU head can give, the root has no gradient."""
Covariance = Literal["isotropic", "directional", "both"]
"""Of the noise: σ² I (the paper's), reach² v vᵀ with v the way to the twin (ours), or their sum (ours)."""


@final
class ADDBlock(FollowsDiffusion):
    """g_φ and the diffusion it drives: σ = g_φ(h), then h + σ · N(0, I).

    The identity where no context is open; with the softplus head σ ≥ floor > 0 for every input.
    """

    diffuses = True

    def __init__(
        self,
        body: nn.Sequential,
        *,
        name: str = "",
        head: Head | Literal["none"] = "softplus",
        floor: float = 1e-3,
        initial_scale: float | None = 0.05,
        scale_per: ScalePer = "element",
        prior: Prior = "gaussian",
        covariance: Covariance = "isotropic",
        reach: float = 0.5,
        per: Per = "sample",
    ) -> None:
        super().__init__()
        self.body, self.name, self.floor, self.reach = body, name, floor, reach
        self.head: Head | Literal["none"] = head
        self.scale_per: ScalePer = scale_per
        self.prior: Prior = prior
        self.per: Per = per
        self.covariance: Covariance = covariance
        if initial_scale is None or covariance == "directional":
            return
        self.start_at(initial_scale)

    def start_at(self, scale: float) -> None:
        """Let σ be `scale` for every input until the next update, by the weights of the body's last normalisation."""
        if not scale > (self.floor if self.head == "softplus" else 0):
            raise UserError(f"initial_scale={scale} must be above the floor of σ, {self.floor}")
        norm, above = self.body[-1], scale - self.floor
        assert isinstance(norm, nn.BatchNorm2d | nn.LayerNorm)
        nn.init.zeros_(norm.weight)
        if self.head == "softplus":  # its inverse, which from far above 0 on is the number itself
            scale = math.log(math.expm1(above)) if above < 30 else above
        nn.init.constant_(norm.bias, scale)

    def scale(self, h: Tensor) -> Tensor:
        """σ = g_φ(h), of the shape of `h`; with one σ per sample, the root mean square over its elements."""
        z = self.body(h)
        if self.head == "none":
            return z
        scale = F.softplus(z).add_(self.floor) if self.head == "softplus" else F.relu(z)
        if self.scale_per == "element":
            return scale
        mean = scale.square().mean(tuple(range(1, h.ndim)), keepdim=True)
        return mean.clamp_min(LEAST_SQUARE).sqrt().expand_as(h)

    def forward(self, h: Tensor) -> Tensor:
        context = context_of(self)
        if context is None:
            return h
        trace = context.trace
        trace.names.append(self.name)
        trace.means.append(h)
        if not context.active:
            return h.clone()  # a later in-place layer must not change the trace
        moved = h if self.covariance == "isotropic" else self._directional(h, context)
        return moved if self.covariance == "directional" else self._isotropic(h, moved, context)

    def _directional(self, h: Tensor, context: DiffusionContext) -> Tensor:
        """Each half of the batch diffuses along the way to the other, its twins."""
        if not context.twins or context.passes:
            way_out = "train on two views in pdeplus.diffusion(net, twins=True), and test without noise"
            raise UserError(f"directional diffusion needs a batch of samples and their twins; {way_out}")
        if len(h) % 2:
            raise UserError(f"a batch of {len(h)} has no two halves: twins=True needs as many twins as samples")
        first, second = h.chunk(2)
        step = partial(diffuse_along, reach=self.reach, generator=context.generator, per=self.per)
        return torch.cat([step(first, second), step(second, first)])

    def _isotropic(self, h: Tensor, moved: Tensor, context: DiffusionContext) -> Tensor:
        """Noise of scale g_φ(h) on `moved`: h itself, or h after a directional step."""
        trace, rows = context.trace, round(context.share * len(h))
        learnt = h[: context.learn_from]
        if context.local:
            with torch.enable_grad():
                scale = self.scale(learnt.detach())
        else:
            scale = self.scale(learnt)
        trace.scales.append(scale)
        if len(learnt) < rows:
            with torch.no_grad():
                rest = self.scale(h[len(learnt) : rows])
            scale = torch.cat([scale, rest])
        if not context.passes:
            if rows == len(h):
                return diffuse(moved, scale, context.generator, self.prior)
            diffused = diffuse(moved[:rows], scale[:rows], context.generator, self.prior)
            return torch.cat([diffused, moved[rows:]])
        noise = torch.cat([one[len(trace.means) - 1] for one in context.passes])
        if len(h) < len(noise):  # the first block, or one whose features have met none yet
            h, scale = (torch.cat([t] * len(context.passes)) for t in (h, scale))
        return torch.addcmul(h, scale, noise)


def body_for(name: str, shape: torch.Size, block: Block, channels_last: bool = False) -> nn.Sequential:
    """The layers of g_φ before its head, for features of this shape, which the module `name` returns.

    Features B×H×W×C are treated as tokens are.
    """
    if len(shape) == 4 and not channels_last:
        return paper_body(shape[1]) if block == "paper" else light_body(shape[1])
    if len(shape) in (2, 3, 4):
        return token_body(shape[-1])
    raise UserError(f"after: module {name!r} returns shape {tuple(shape)}; 2, 3 or 4 dimensions are needed")


def input_body(c: int) -> nn.Sequential:
    """g_φ of images before its head: a 3×3 convolution to 16 channels and back by a linear map of each pixel.

    Convolutions of so few channels by depth, or to them, are slow and unsafe on CPUs (`core/network.py`).
    """
    width = 16
    return nn.Sequential(
        nn.Conv2d(c, width, 3, padding=1),
        nn.BatchNorm2d(width),
        nn.ReLU(inplace=True),
        PixelLinear(width, c),
        nn.BatchNorm2d(c),
    )


@final
class PixelLinear(nn.Module):
    """A linear map of the channels at each pixel of B×C×H×W. No `nn.Linear`: the last of those is a network's head."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        start = nn.Linear(inputs, outputs)
        self.weight, self.bias = start.weight, start.bias

    def forward(self, h: Tensor) -> Tensor:
        return F.linear(h.movedim(1, -1), self.weight, self.bias).movedim(-1, 1)


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
    """The same shape for features in the last dimension: B×C, B×N×C or B×H×W×C."""
    return nn.Sequential(
        nn.Linear(c, 2 * c), nn.LayerNorm(2 * c), nn.ReLU(inplace=True), nn.Linear(2 * c, c), nn.LayerNorm(c)
    )
