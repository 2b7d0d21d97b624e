"""A model of a user's own without BatchNorm: several processes train it just as one does."""

from torch import nn

from pdeplus.models.plain_cnn import build as plain_cnn


def build(*, classes: int, channels: int = 3, width: int = 4) -> nn.Module:
    """The plain CNN with layer normalisation in BatchNorm's places."""
    return without_batch_norm(plain_cnn(classes=classes, channels=channels, width=width))


def without_batch_norm(net: nn.Module) -> nn.Module:
    """The network with every BatchNorm replaced, in place, by normalisation over each image alone."""
    for module in list(net.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.BatchNorm2d):
                setattr(module, name, nn.GroupNorm(1, child.num_features))
    return net
