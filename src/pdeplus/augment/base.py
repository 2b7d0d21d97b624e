"""What an augmentation file provides, the random numbers it draws, and which test corruptions an operation is like."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from ..errors import UserError

OVERSHOOT = 0.05
"""How far pixels may lie outside [0, 1], as bicubic resizing leaves them; what is further away is not in [0, 1]."""


class Augmentor(ABC):
    """An augmentation, configured once, then called on whole batches."""

    family: ClassVar[str] = "augment"
    applies: ClassVar[tuple[str, ...]]
    """Its operations, named as in `OVERLAPS`; one whose options decide which they are says `overlaps` itself."""

    @property
    def overlaps(self) -> tuple[str, ...]:
        """Test corruptions that this augmentation also does to training images: the same in kind, at any strength."""
        return corruptions_like(*self.applies)

    @abstractmethod
    def __call__(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Images of the same labels: float B×C×H×W in [0, 1] → the same; `x` is left as it was."""


@final
@dataclass(frozen=True, kw_only=True)
class OnNormalised:
    """An augmentation of images in [0, 1] for images that are (x - mean) / std; without mean and std for plain ones.

    Images that are not in [0, 1] once they are put back are refused.
    """

    augment: Callable[[Tensor, torch.Generator | None], Tensor]
    mean: Sequence[float] | None = None
    """One number for each channel."""
    std: Sequence[float] | None = None
    """One number for each channel, above 0."""

    def __post_init__(self) -> None:
        if (self.mean is None) != (self.std is None):
            raise UserError(f"mean={self.mean} and std={self.std}: give both or neither")
        if self.std is not None and not all(value > 0 for value in self.std):
            raise UserError(f"std={list(self.std)} must be above 0")

    def __call__(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        if self.mean is None or self.std is None:
            check_pixels(x)
            return self.augment(x, generator)
        for name, values in (("mean", self.mean), ("std", self.std)):
            if len(values) not in (1, x.shape[1]):
                raise UserError(f"{name}={list(values)} must hold one number for each channel: {x.shape[1]}")
        mean, std = (x.new_tensor(values).view(-1, 1, 1) for values in (self.mean, self.std))
        pixels = x * std + mean
        check_pixels(pixels, f" after mean={list(self.mean)} and std={list(self.std)} are undone")
        return (self.augment(pixels, generator) - mean) / std


def check_pixels(
    x: Tensor, how: str = "", way_out: str = "give the mean and std that they were normalised with, or images in [0, 1]"
) -> None:
    """Refuse float images that are not in [0, 1], such as normalised ones; a little more or less is let pass."""
    if not x.is_floating_point():
        raise UserError(f"images must be floats in [0, 1], not {str(x.dtype).removeprefix('torch.')}; divide by 255")
    low, high = (float(value) for value in x.detach().aminmax()) if x.numel() else (0.0, 1.0)
    if not (low >= -OVERSHOOT and high <= 1 + OVERSHOOT):
        raise UserError(f"images must be in [0, 1], and these lie between {low:.3g} and {high:.3g}{how}; {way_out}")


def uniform(n: int, low: float, high: float, like: Tensor, generator: torch.Generator | None) -> Tensor:
    """`n` numbers from U(low, high)."""
    return torch.rand(n, generator=generator, device=like.device) * (high - low) + low


def integers(n: int, low: int, high: int, like: Tensor, generator: torch.Generator | None) -> Tensor:
    """`n` whole numbers from low, …, high - 1."""
    return torch.randint(low, high, (n,), generator=generator, device=like.device)


def normal(*shape: int, like: Tensor, generator: torch.Generator | None) -> Tensor:
    """Numbers from N(0, 1)."""
    return torch.randn(shape, generator=generator, device=like.device)


def signs(n: int, like: Tensor, generator: torch.Generator | None) -> Tensor:
    """`n` times -1 or 1, as likely."""
    return integers(n, 0, 2, like, generator) * 2.0 - 1


def arcsine(n: int, like: Tensor, generator: torch.Generator | None) -> Tensor:
    """`n` numbers from Beta(1/2, 1/2), by its inverse distribution function."""
    return uniform(n, 0, math.pi / 2, like, generator).sin().square()


def beta(n: int, alpha: float, like: Tensor, generator: torch.Generator | None) -> Tensor:
    """`n` numbers from Beta(alpha, alpha): a / (a + b) with a and b from Gamma(alpha)."""
    shape = torch.full((2, n), alpha, dtype=torch.float64, device=like.device)
    a, b = torch._standard_gamma(shape, generator=generator)  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage]
    return (a / (a + b)).float()


def simplex(width: int, n: int, like: Tensor, generator: torch.Generator | None) -> Tensor:
    """Width × n weights from Dirichlet(1, …, 1), each column of sum 1: normalised exponential numbers."""
    exponential = -torch.log1p(-uniform(width * n, 0, 1, like, generator)).clamp(max=-1e-9).view(width, n)
    return exponential / exponential.sum(0)


SMOOTHING = ("defocus_blur", "gaussian_blur")
"""A narrow Gaussian and a narrow disc nearly agree: at CIFAR's first severities the disc is one softened pixel.
The other blurs are of another kind: glass swaps pixels, motion and zoom have a direction."""
OVERLAPS: dict[str, tuple[str, ...]] = {
    # AugMix's nine, and the negative, which no corruption shows.
    **dict.fromkeys(("translate_x", "translate_y", "shear_x", "shear_y", "rotate"), ()),
    **dict.fromkeys(("autocontrast", "equalize", "posterize", "solarize"), ()),
    **dict.fromkeys(("identity", "invert"), ()),
    # A part of the image, enlarged: softer than the whole, as an image of fewer pixels is, but not blurred.
    "resized_crop": (),
    "brightness": ("brightness",),
    "contrast": ("contrast",),
    # Both move colours away from grey or towards it; the grey is luminance here, HSV's there.
    "color": ("saturate",),
    # A factor below 1 is a smoothing with a kernel of 3×3, up to a standard deviation of 0.64 pixels: within the range
    # of the narrow blurs. Factors above 1 sharpen, as no corruption does.
    "sharpness": SMOOTHING,
    # Additive, alike at every grey level. Shot and speckle noise grow with the level, impulse noise replaces values.
    "gaussian_noise": ("gaussian_noise",),
    "blur": SMOOTHING,
    "elastic": ("elastic_transform",),
    # PRIME's smooth random displacement of every pixel. It is a sum of sine waves, up to frequencies above those of
    # C̄'s ripple, which is one such wave along each axis.
    "deform": ("elastic_transform", "ripple"),
    # PRIME's colour curve keeps black and white, differs between channels and is jagged: neither an offset nor a
    # factor, and never across channels.
    "recolor": (),
    # PRIME's kernel has random signs and a random sum: on pictures fewer than one draw in a hundred comes near a blur
    # (a test counts them). Its sum changes brightness, as autocontrast does, which is not counted either.
    "refilter": (),
    # DeepAugment disturbs weights and features; none of that is an operation on the image.
    "distorted_network": (),
    # HybridAugment's low part is the image under a Gaussian of 3×3 and 0.5 pixels; another image's details on top of it
    # do not bring back its own.
    "frequency_swap": SMOOTHING,
    # Other amplitudes at the same phases: a random filter of an image's own size, as no corruption has.
    "amplitude_exchange": (),
    # Additive and alike at every grey level, whatever the norm. That of 1/2 has heavy tails, but unlike impulse noise
    # it changes every value, and takes less than one in a hundred to black or white.
    "p_norm_noise": ("gaussian_noise",),
    # Both hide square parts of the image: noise in one rectangle here, grey in the cells of a checkerboard in C̄.
    "erase": ("checkerboard_cutout",),
    # Frost and fog blend in pictures too, of ice and of clouds; PixMix's are figures in colours, about middle grey.
    # This is a judgement: whoever counts every blend with a picture adds both.
    "fractal_blend": (),
}
"""The test corruptions, the fifteen's and C̄'s, that each operation coincides with.

Of C̄ no more is named, because the likeness is in part only: circular_motion_blur is a mean of rotations, a blur, and no
rotation is; brownish_noise has low frequencies, Gaussian noise all; pinch_and_twirl turns whole discs, where elastic
moves at random; transverse_chromatic_aberration softens as a narrow blur does, but shifts colours against each other.
No operation draws lines or stars.
"""


def corruptions_like(*operations: str) -> tuple[str, ...]:
    """The test corruptions that these operations coincide with, each once, in alphabetical order."""
    return tuple(sorted({name for operation in operations for name in OVERLAPS[operation]}))
