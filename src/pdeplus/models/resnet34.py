"""ResNet-34 for small images (He et al., 2016)."""

from .resnet18 import ResNet


def build(*, classes: int, channels: int, width: int = 64) -> ResNet:
    """ResNet-34 with `width` channels in its first stage and 8 × `width` in its last."""
    return ResNet(blocks=(3, 4, 6, 3), classes=classes, channels=channels, width=width)
