"""The overlap audit: which test corruptions an operation on training images coincides with.

Counted is what is the same in kind, whatever its strength; what only changes the same quantity is not. By the
convention of AugMix's authors nothing is counted for the operations of their nine, though autocontrast and equalize
change an image's contrast too, and elastic_transform at CIFAR's first two severities is no more than an affine map.
"""

from collections.abc import Iterable

SMOOTHING = ("defocus_blur", "gaussian_blur")
"""A narrow Gaussian and a narrow disc nearly agree: at CIFAR's first severities the disc is one softened pixel.
The other blurs are of another kind: glass swaps pixels, motion and zoom have a direction."""

OVERLAPS: dict[str, tuple[str, ...]] = {
    # AugMix's nine, and the negative, which no corruption shows.
    **dict.fromkeys(("translate_x", "translate_y", "shear_x", "shear_y", "rotate"), ()),
    **dict.fromkeys(("autocontrast", "equalize", "posterize", "solarize"), ()),
    **dict.fromkeys(("identity", "invert"), ()),
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
    # PRIME's smooth random displacement of every pixel.
    "deform": ("elastic_transform",),
    # PRIME's colour curve keeps black and white, differs between channels and is jagged: neither an offset nor a
    # factor, and never across channels.
    "recolor": (),
    # PRIME's kernel has random signs and a random sum: on pictures fewer than one draw in a hundred comes near a blur
    # (a test counts them). Its sum changes brightness, as autocontrast does, which is not counted either.
    "refilter": (),
    # DeepAugment disturbs weights and features; none of that is an operation on the image.
    "distorted_network": (),
}
"""Names of corruptions by operation."""


def corruptions_in(operations: Iterable[str]) -> tuple[str, ...]:
    """The corruptions that these operations coincide with, each once, in alphabetical order."""
    return tuple(sorted({name for operation in operations for name in OVERLAPS[operation]}))
