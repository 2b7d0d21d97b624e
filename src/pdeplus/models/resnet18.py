"""ResNet-18 for small images (He et al., 2016)."""

from collections.abc import Sequence
from typing import final

from torch import Tensor, nn
from torch.nn import functional as F

from .base import check_sizes, stage


@final
class BasicBlock(nn.Module):
    """relu(shortcut(h) + f(h)): one Euler step of the transport equation's characteristics."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, h: Tensor) -> Tensor:
        f = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(h)), inplace=True)))
        return F.relu(f + self.shortcut(h), inplace=True)


@final
class ResNet(nn.Module):
    """Logits, B×classes, of images B×channels×S×S with S ≥ 8."""

    stages = ("layer1", "layer2", "layer3", "layer4")

    def __init__(self, *, blocks: Sequence[int], classes: int, channels: int, width: int) -> None:
        super().__init__()
        check_sizes(classes=classes, channels=channels, width=width)
        self.conv1 = nn.Conv2d(channels, width, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.layer1 = stage(BasicBlock, width, width, 1, blocks[0])
        self.layer2 = stage(BasicBlock, width, 2 * width, 2, blocks[1])
        self.layer3 = stage(BasicBlock, 2 * width, 4 * width, 2, blocks[2])
        self.layer4 = stage(BasicBlock, 4 * width, 8 * width, 2, blocks[3])
        self.linear = nn.Linear(8 * width, classes)

    def forward(self, x: Tensor) -> Tensor:
        h = F.relu(self.bn1(self.conv1(x)), inplace=True)
        h = self.layer4(self.layer3(self.layer2(self.layer1(h))))
        return self.linear(h.mean((2, 3)))


def build(*, classes: int, channels: int, width: int = 64) -> ResNet:
    """ResNet-18 with `width` channels in its first stage and 8 × `width` in its last."""
    return ResNet(blocks=(2, 2, 2, 2), classes=classes, channels=channels, width=width)
