"""Pre-activation ResNet-18 for small images (He et al., 2016b)."""

from collections.abc import Sequence
from typing import final

from torch import Tensor, nn
from torch.nn import functional as F

from .base import check_sizes, stage


@final
class PreActBlock(nn.Module):
    """h + f(relu(bn(h))), with the shortcut taken after the first normalisation where shapes change."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(inputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        changes = stride != 1 or inputs != outputs
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False) if changes else None

    def forward(self, h: Tensor) -> Tensor:
        a = F.relu(self.bn1(h), inplace=True)
        skip = h if self.shortcut is None else self.shortcut(a)
        return skip + self.conv2(F.relu(self.bn2(self.conv1(a)), inplace=True))


@final
class PreActResNet(nn.Module):
    """Logits, B×classes, of images B×channels×S×S with S ≥ 8."""

    def __init__(self, *, widths: Sequence[int], blocks: Sequence[int], stem: int, classes: int, channels: int) -> None:
        super().__init__()
        check_sizes(classes=classes, channels=channels, width=stem)
        self.stages = tuple(f"layer{i + 1}" for i in range(len(widths)))
        self.conv1 = nn.Conv2d(channels, stem, 3, 1, 1, bias=False)
        for i, name in enumerate(self.stages):
            inputs, stride = (widths[i - 1], 2) if i else (stem, 1)
            self.add_module(name, stage(PreActBlock, inputs, widths[i], stride, blocks[i]))
        self.bn = nn.BatchNorm2d(widths[-1])
        self.linear = nn.Linear(widths[-1], classes)

    def forward(self, x: Tensor) -> Tensor:
        h = self.conv1(x)
        for name in self.stages:
            h = self.get_submodule(name)(h)
        return self.linear(F.relu(self.bn(h), inplace=True).mean((2, 3)))


def build(*, classes: int, channels: int, width: int = 64) -> PreActResNet:
    """Pre-activation ResNet-18 with `width` channels in its first stage and 8 × `width` in its last."""
    widths = [width, 2 * width, 4 * width, 8 * width]
    return PreActResNet(widths=widths, blocks=(2, 2, 2, 2), stem=width, classes=classes, channels=channels)
