"""ADD blocks in any torch model: `add_diffusion` hangs one behind each named module by a forward hook.

`add_noise` hangs blocks whose σ is given (RSE, EnResNet, fixed diffusion); `diffusion` and `predict` treat all alike.
"""

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, final

import torch
from torch import Tensor, nn

from ..errors import UserError, check_choice, reason_of
from ..functional import Per, Prior
from .add_block import ADDBlock, Block, Covariance, Head, ScalePer, body_for, input_body
from .context import NO_BLOCKS, FollowsDiffusion, context_of
from .network import find_modules, output_shapes, run_example
from .placement import channels_last, stages_of

INPUT = "input"
"""Among the places of ADD blocks: the images themselves, before the network."""
CHILD = "add_blocks"
"""Name under which a changed network holds its ADD blocks."""
Where = Literal["after", "before"]


@final
class ADDBlocks(nn.ModuleList):
    """The ADD blocks of one network. Called as a layer (a Sequential calls its children) it is the identity."""

    def forward(self, h: Tensor) -> Tensor:
        return h


@dataclass(frozen=True, eq=False)
class AfterModule:
    """The forward hook that hands a module's output to its block; `deepcopy` keeps the two together."""

    block: ADDBlock

    def __call__(self, module: nn.Module, args: Any, output: Tensor) -> Tensor:
        return self.block(output)


@dataclass(frozen=True, eq=False)
class BeforeModule:
    """The hook that hands a module's input to its block; `deepcopy` keeps the two together."""

    block: ADDBlock

    def __call__(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        if args:
            return (self.block(args[0]), *args[1:]), kwargs
        name, images = next(iter(kwargs.items()))  # the Hugging Face libraries': pixel_values=…
        return args, {**kwargs, name: self.block(images)}


def add_diffusion(
    model: nn.Module,
    after: Sequence[str] | Literal["auto"],
    example: Tensor | Mapping[str, Any],
    *,
    block: Block = "light",
    head: Head = "softplus",
    floor: float = 1e-3,
    initial_scale: float | None = 0.05,
    scale_per: ScalePer = "element",
    prior: Prior = "gaussian",
    covariance: Covariance = "isotropic",
    reach: float | Sequence[float] = 0.5,
    per: Per = "sample",
) -> nn.Module:
    """Put an ADD block after each named module of a copy of `model`.

    The copy has the model's class, attributes and parameter names; outside a `diffusion` context its
    output equals the model's bit for bit. `model` itself is not changed.

    Args:
        after: names as in `model.named_modules()`; each one's output must be a tensor: B×C×H×W, B×N×C, B×C, or,
            for square images, B×H×W×C. "auto" for the network's stages (`core/placement.py` says which these are). The
            first may be "input": the images diffuse, before the network.
        example: an input (or a mapping of keyword inputs) for one forward pass that finds the shapes.
        block: a light depthwise body, or the paper's two 3×3 convolutions (B×C×H×W features only).
        head: softplus with a floor, or the authors' ReLU, under which σ can be zero.
        floor: least σ of the softplus head.
        initial_scale: σ of every element before the first update; None keeps the normalisation's own initial value
            (σ near 0.8 for softplus, as large as the features).
        scale_per: σ for each element of the features (authors' code), or one for each sample, G(x, t) in the paper.
        prior: family of the noise.
        covariance: isotropic (the paper's), directional (ours: towards each sample's augmented view, for batches of two
            views in `diffusion(net, twins=True)`; without parameters) or both.
        reach: standard deviation along that direction, in units of that distance; one number, or one for each place.
        per: one random number along that direction for each sample, for each of its positions or each of its channels.
    """
    given = {"block": block, "head": head, "scale_per": scale_per, "prior": prior, "covariance": covariance, "per": per}
    for (name, value), choices in zip(given.items(), (Block, Head, ScalePer, Prior, Covariance, Per), strict=True):
        check_choice(name, value, choices)
    _check_example(model, example)
    after = stages_of(model, example) if after == "auto" else after
    reaches = [reach] * len(after) if isinstance(reach, int | float) else list(reach)
    if len(reaches) != len(after) or not all(0 <= one < math.inf for one in reaches):
        raise UserError(f"reach={reach} must be a number of 0 or more, or one for each of the {len(after)} places")
    net = copy.deepcopy(model)
    if hasattr(net, CHILD):
        raise UserError(f"the model has {CHILD!r} already; name all modules in one call of add_diffusion")
    like, hung = next(iter(net.parameters()), torch.empty(0)), list[tuple[nn.Module, ADDBlock]]()
    for (name, (host, body)), far in zip(_bodies(net, after, example, block).items(), reaches, strict=True):
        add = ADDBlock(
            nn.Sequential() if covariance == "directional" else body(),
            name=name,
            head=head,
            floor=floor,
            initial_scale=initial_scale,
            scale_per=scale_per,
            prior=prior,
            covariance=covariance,
            reach=far,
            per=per,
        )
        hung.append((host, add.to(device=like.device, dtype=like.dtype)))
    return _hang(net, hung)


def _hang(net: nn.Module, hung: Sequence[tuple[nn.Module, ADDBlock]], where: Where = "after") -> nn.Module:
    """Hang each block behind, or before, its module, in place; before the network itself in any case."""
    for host, block in hung:
        if where == "after" and host is not net:
            host.register_forward_hook(AfterModule(block))
        else:
            host.register_forward_pre_hook(BeforeModule(block), with_kwargs=True)
    net.add_module(CHILD, ADDBlocks([block for _, block in hung]).train(net.training))
    return net


def _bodies(
    net: nn.Module, after: Sequence[str], example: Tensor | Mapping[str, Any], block: Block
) -> dict[str, tuple[nn.Module, Callable[[], nn.Sequential]]]:
    """For each place the module whose output diffuses, or the network, whose input does, and what makes its g_φ."""
    of_images = list(after[:1]) == [INPUT] and not hasattr(net, INPUT)
    inner = list(after)[1:] if of_images else after
    found = dict[str, tuple[nn.Module, Callable[[], nn.Sequential]]]()
    if of_images:
        found[INPUT] = net, partial(input_body, _channels(example))
    if of_images and not inner:
        return found
    square = isinstance(example, Tensor) and example.ndim == 4 and example.shape[2] == example.shape[3]
    hosts = find_modules(net, inner)
    for name, shape in output_shapes(net, inner, example).items():
        found[name] = hosts[name], partial(body_for, name, shape, block, square and channels_last(shape))
    return {name: found[name] for name in after}


def _channels(example: Tensor | Mapping[str, Any]) -> int:
    """Of a batch of images; what else a network may take cannot diffuse before it."""
    if isinstance(example, Tensor) and example.ndim == 4:
        return example.shape[1]
    raise UserError(f"after={INPUT!r} needs images as example, B×C×H×W; name a module of the network instead")


def _check_example(model: nn.Module, example: Tensor | Mapping[str, Any]) -> None:
    """Refuse a single image in place of a batch, and what the network cannot take."""
    shape = "×".join(map(str, example.shape)) if isinstance(example, Tensor) else "such keys"
    images = any(isinstance(module, nn.Conv2d) for module in model.modules())
    if isinstance(example, Tensor) and images and example.ndim == 3:
        raise UserError(f"example={shape} is one image; give a batch of images, B×C×H×W, such as example[None]")
    try:
        run_example(model, example)
    except (RuntimeError, TypeError, ValueError) as error:
        reason = reason_of(error, 160)
        raise UserError(f"the network cannot take the example, {shape}: {reason}; give one that it takes") from error


def add_noise(
    model: nn.Module, places: Sequence[str], scale: Callable[[str], nn.Module], *, where: Where = "after"
) -> nn.Module:
    """Noise behind, or before, each named module of a copy of `model`.

    Outside a `diffusion` context the copy's output equals the model's bit for bit; the model is left as it was.

    Args:
        places: names as in `model.named_modules()`, or "input" alone for the images before the network.
        scale: gives for each name the module that makes σ of the features.
        where: on the output of the named modules, or on their input.
    """
    check_choice("where", where, Where)
    net = copy.deepcopy(model)
    if hasattr(net, CHILD):
        raise UserError(f"the model has {CHILD!r} already; name all modules in one call")
    of_images = list(places) == [INPUT] and not hasattr(net, INPUT)
    hosts = {INPUT: net} if of_images else find_modules(net, places)
    blocks = [ADDBlock(nn.Sequential(scale(name)), name=name, head="none", initial_scale=None) for name in hosts]
    return _hang(net, list(zip(hosts.values(), blocks, strict=True)), where)


def add_blocks_of(net: nn.Module) -> list[ADDBlock]:
    """The ADD blocks of a network, in their order; refuses a network that has none."""
    blocks = [module for module in net.modules() if isinstance(module, ADDBlock)]
    if not blocks:
        raise UserError(NO_BLOCKS)
    return blocks


def convolutions(model: nn.Module) -> list[str]:
    """The names of a network's convolutions, in the order of its modules."""
    return [name for name, module in model.named_modules() if isinstance(module, nn.Conv2d)]  # type: ignore[reportUnknownVariableType]


@final
class Constant(nn.Module):
    """σ is the same number for every element."""

    def __init__(self, value: float) -> None:
        super().__init__()
        if not value >= 0:
            raise UserError(f"the noise's scale {value} must be 0 or more")
        self.value = value

    def forward(self, h: Tensor) -> Tensor:
        return h.new_full((), self.value).expand_as(h)


@final
class Relative(FollowsDiffusion):
    """σ is a share of the standard deviation of all features, images and places together.

    Where one batch holds several noisy passes, each pass has its own, as if it had run by itself.
    """

    def __init__(self, share: float) -> None:
        super().__init__()
        if not share >= 0:
            raise UserError(f"the noise's share {share} must be 0 or more")
        self.share = share

    def forward(self, h: Tensor) -> Tensor:
        context = context_of(self)
        if context is None or not context.passes:
            return (self.share * h.std(correction=0)).expand_as(h)
        rows = len(context.passes[0][len(context.trace.means) - 1])
        passes = h.view(-1, rows, *h.shape[1:])
        std = passes.std(tuple(range(1, passes.ndim)), correction=0)
        return (self.share * std).repeat_interleave(rows).view(-1, *[1] * (h.ndim - 1)).expand_as(h)
