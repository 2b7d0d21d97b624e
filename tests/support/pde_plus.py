"""PDE+ on a small scale: a deterministic augmentation, a batch, a network whose statistics do not change."""

import torch

from pdeplus.augment.base import Augmentor
from pdeplus.augment.identity import Identity
from pdeplus.data.base import Batch
from pdeplus.methods import IN_STAGES
from pdeplus.methods.pde_plus import PDEPlus
from pdeplus.models.resnet18 import build


class Darker(Augmentor):
    """A deterministic augmentation."""

    overlaps = ("brightness",)

    def __call__(self, x, generator=None):
        return 0.6 * x


def in_stages(**options) -> PDEPlus:
    """PDE+ after every stage, `method.name=pde_plus_stages`, with other options."""
    return PDEPlus(**{**IN_STAGES, **options})


def make_batch(seed=0):
    images = torch.rand(8, 3, 16, 16, generator=torch.Generator().manual_seed(1))
    return Batch(images, torch.arange(8) % 10, Identity(), torch.Generator().manual_seed(seed))


def make_network(method):
    """A prepared network whose BatchNorm layers are frozen, so that batch composition has no effect."""
    torch.manual_seed(0)
    net = method.prepare(build(classes=10, channels=3, width=4), torch.rand(2, 3, 16, 16))
    return net.eval()
