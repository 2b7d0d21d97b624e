"""WideResNet for small images (Zagoruyko and Komodakis, 2016)."""

from ..errors import UserError, check_least
from .preact_resnet18 import PreActResNet


def build(*, classes: int, channels: int, width: int = 16, depth: int = 28, widen: int = 10) -> PreActResNet:
    """WRN-`depth`-`widen`: three stages of `width` × `widen` × (1, 2, 4) channels; depth = 6n + 4."""
    blocks, rest = divmod(depth - 4, 6)
    if blocks < 1 or rest:
        raise UserError(f"model.depth={depth} must be 6n + 4 for a WideResNet, e.g. 16, 28 or 40")
    check_least("model.widen", widen, 1)
    widths = [width * widen * factor for factor in (1, 2, 4)]
    return PreActResNet(widths=widths, blocks=(blocks,) * 3, stem=width, classes=classes, channels=channels)
