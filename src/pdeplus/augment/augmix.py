"""AugMix (Hendrycks et al., 2020): a random convex mixture of random chains of simple operations."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, final

import torch
from torch import Tensor

from .._lib.registry import NEW
from ..errors import UserError, check_choice
from ._operations import DEEPEST, NAMES, Strength, apply_each, check_chains, mix_chains, to_bytes, to_levels, values_of
from .base import Augmentor, OnNormalised, check_pixels, corruptions_like, integers, signs, uniform

Variant = Literal["published", "torchvision"]
"""Whose AugMix: the published one, or torchvision's, which the authors of PDE+ use."""
FULL = 10.0
"""The severity of an operation's full range."""
STEPS = 9
"""torchvision's highest level, an operation's full range."""
OVERLAPPING = ("color", "contrast", "brightness", "sharpness")
"""Left out of the nine: they coincide with test corruptions, see `OVERLAPS`."""


@final
@dataclass(frozen=True, kw_only=True)
class AugMix(Augmentor):
    """AugMix with fixed parameters; see `augmix`."""

    severity: float = 3
    """Strength of each operation is drawn from U(0.1, severity); 10 is its full range."""
    width: int = 3
    """Number of chains."""
    depth: int = 0
    """Operations in a chain; 0 draws 1, 2 or 3."""
    operations: Literal[9, 13] = 9
    """9, none of which is a test corruption, or 13 with colour, contrast, brightness and sharpness."""
    variant: Variant = field(default="published", metadata=NEW)
    """The published strengths, or torchvision's: one of its ten levels, and images in whole grey levels."""

    def __post_init__(self) -> None:
        _check(self.severity, self.width, self.depth, self.variant)

    @property
    def overlaps(self) -> tuple[str, ...]:
        return corruptions_like(*operation_names(self.operations))  # the same in both variants

    def __call__(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        return augmix(
            x,
            self.severity,
            self.width,
            generator,
            depth=self.depth,
            operations=self.operations,
            variant=self.variant,
        )


@torch.no_grad()
def augmix(
    x: Tensor,
    severity: float = 3,
    width: int = 3,
    generator: torch.Generator | None = None,
    *,
    depth: int = 0,
    operations: Literal[9, 13] = 9,
    variant: Variant = "published",
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> Tensor:
    """(1 - m) x + m Σ_i w_i chain_i(x), with w ~ Dirichlet(1, …, 1), m ~ Beta(1, 1) and one draw per image.

    The chains see whole grey levels, and come back to them after each operation; no gradient passes.

    Args:
        x: float B×C×H×W in [0, 1], or normalised by `mean` and `std`; others are refused.
        severity: strengths are drawn from U(0.1, severity); 10 is the full range.
        width: number of chains.
        generator: source of all randomness, on the device of `x`.
        depth: operations in a chain; 0 draws 1, 2 or 3 for each chain.
        operations: 9, or 13 with the four that coincide with test corruptions.
        variant: published; or torchvision, whose strengths are k / 9 of its own ranges with k from 0, …, severity - 1,
            each as likely, and whose mixture is cut to whole grey levels.
        mean: the mean that was subtracted from normalised images, one number for each channel.
        std: the standard deviation that they were then divided by. The result is normalised in the same way.
    """
    _check(severity, width, depth, variant)
    if mean is not None or std is not None:
        own = AugMix(severity=severity, width=width, depth=depth, operations=operations, variant=variant)
        return OnNormalised(augment=own, mean=mean, std=std)(x, generator)
    check_pixels(x)
    levels, most = depth or DEEPEST, width * len(x)
    which, value = _draw(levels * most, x, severity, operations, generator, variant)

    def operate(chains: Tensor, level: int) -> Tensor:
        mine = slice(level * most, level * most + len(chains))
        return apply_each(chains, which[mine], value[mine])

    mixture = mix_chains(x.float(), to_levels(x), width, depth, operate, generator)
    if variant == "torchvision":  # the small number keeps whole levels from falling by rounding error
        mixture = to_bytes(mixture.mul_(255).add_(1e-3)) / 255
    return mixture.to(x.dtype)


@torch.no_grad()
def one_operation(
    x: Tensor, severity: float, generator: torch.Generator | None, operations: Literal[9, 13] = 9
) -> Tensor:
    """Each image (B×C×H×W of unsigned bytes, as is the result) through one of AugMix's operations of its own."""
    return apply_each(x, *_draw(len(x), x, severity, operations, generator))


def operation_names(operations: Literal[9, 13]) -> tuple[str, ...]:
    """AugMix's operations, named as in `OVERLAPS`."""
    return tuple(_strengths(1, 1, operations))


def check_severity(severity: float) -> None:
    """Refuse a severity that is no strength of AugMix's operations."""
    if not 0.1 <= severity <= FULL:
        raise UserError(f"severity={severity} must lie between 0.1 and 10")


def _check(severity: float, width: int, depth: int, variant: Variant) -> None:
    check_severity(severity)
    check_chains(width, depth)
    check_choice("variant", variant, Variant)
    if variant == "torchvision" and severity != int(severity):
        raise UserError(f"severity={severity} must be a whole number for variant='torchvision'")


def _draw(
    n: int,
    x: Tensor,
    severity: float,
    operations: Literal[9, 13],
    generator: torch.Generator | None,
    variant: Variant = "published",
) -> tuple[Tensor, Tensor]:
    """`n` operations for images like `x`, by their places in `NAMES`, and their values."""
    published = variant == "published"
    strengths = (_strengths if published else _torchvision_strengths)(x.shape[-2], x.shape[-1], operations)
    numbers = torch.tensor([NAMES.index(name) for name in strengths], device=x.device)
    which = numbers[integers(n, 0, len(numbers), x, generator)]
    if published:
        s = uniform(n, 0.1 / FULL, severity / FULL, x, generator)
    else:
        s = integers(n, 0, int(severity), x, generator) / STEPS
    return which, values_of(strengths, which, s, signs(n, x, generator))


def _strengths(h: int, w: int, operations: Literal[9, 13] = 13) -> dict[str, Strength]:
    """Each operation's range, as published."""
    return {
        "autocontrast": Strength(),
        "equalize": Strength(),
        "posterize": Strength(4, -4, whole="down"),
        "rotate": Strength(0, 30, signed=True, whole="down"),
        "solarize": Strength(256, -256, whole="down"),
        "shear_x": Strength(0, 0.3, signed=True),
        "shear_y": Strength(0, 0.3, signed=True),
        "translate_x": Strength(0, w / 3, signed=True, whole="down"),
        "translate_y": Strength(0, h / 3, signed=True, whole="down"),
        **(dict.fromkeys(OVERLAPPING, Strength(0.1, 1.8)) if operations == 13 else {}),
    }


def _torchvision_strengths(h: int, w: int, operations: Literal[9, 13] = 13) -> dict[str, Strength]:
    """Each operation's range in torchvision: angles need not be whole, and lighter is as likely as darker."""
    changed = {
        "posterize": Strength(4, -4, whole="nearest"),
        "rotate": Strength(0, 30, signed=True),
        "solarize": Strength(255, -255),
    }
    enhanced = dict.fromkeys(OVERLAPPING, Strength(1, 0.9, signed=True)) if operations == 13 else {}
    return _strengths(h, w, operations) | changed | enhanced
