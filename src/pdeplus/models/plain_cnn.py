"""A convolutional network without any residual connection: the paper's first open question."""

from typing import final

from torch import Tensor, nn

from .base import check_sizes, stage


@final
class PlainCNN(nn.Module):
    """Logits, B×classes, of images B×channels×S×S with S ≥ 8: four stages of two convolutions."""

    stages = ("layer1", "layer2", "layer3", "layer4")

    def __init__(self, *, classes: int, channels: int, width: int) -> None:
        super().__init__()
        check_sizes(classes=classes, channels=channels, width=width)
        self.layer1 = stage(_layer, channels, width, 1, 2)
        self.layer2 = stage(_layer, width, 2 * width, 2, 2)
        self.layer3 = stage(_layer, 2 * width, 4 * width, 2, 2)
        self.layer4 = stage(_layer, 4 * width, 8 * width, 2, 2)
        self.linear = nn.Linear(8 * width, classes)

    def forward(self, x: Tensor) -> Tensor:
        h = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.linear(h.mean((2, 3)))


def build(*, classes: int, channels: int, width: int = 64) -> PlainCNN:
    """A plain CNN with `width` channels in its first stage and 8 × `width` in its last."""
    return PlainCNN(classes=classes, channels=channels, width=width)


def _layer(inputs: int, outputs: int, stride: int) -> nn.Sequential:
    conv = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True))
