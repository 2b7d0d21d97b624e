"""Pre-activation ResNet-18 for small images (He et al., 2016b)."""

from ._preact import PreActResNet


def build(*, classes: int, channels: int, width: int = 64) -> PreActResNet:
    """Pre-activation ResNet-18 with `width` channels in its first stage and 8 × `width` in its last."""
    widths = [width, 2 * width, 4 * width, 8 * width]
    return PreActResNet(widths=widths, blocks=(2, 2, 2, 2), stem=width, classes=classes, channels=channels)
