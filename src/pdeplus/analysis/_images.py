"""The images and the networks that an analysis of a run looks at."""

from pathlib import Path

import torch
from torch import Tensor, nn

from .._errors import UserError
from .._seeds import generator_for
from ..data.base import Images, split
from ..run import Run, build_source

BATCH = 64
"""Images per pass: what bounds the memory."""


def held_out(run: Run, images: int, seed: int) -> Images:
    """At most so many of the run's validation images, drawn by `seed`; none was learnt from, none is a test image."""
    if images < 1:
        raise UserError(f"images={images} must be at least 1")
    config = run.config
    train = config.train
    parts = split(build_source(config), validation=train.validation, limit=train.limit, seed=config.seed)
    order = torch.randperm(len(parts.validation), generator=generator_for(seed, "analysis images"))
    return parts.validation.take(order[:images])


def network_of(run: Run, weights: Path) -> nn.Module:
    """The run's network with these weights, in eval mode, on the GPU where there is one."""
    return run.load_weights(weights).to("cuda" if torch.cuda.is_available() else "cpu")


def device_of(model: nn.Module) -> torch.device:
    """Where its parameters are; the CPU for a network that has none."""
    first = next(model.parameters(), None)
    return first.device if first is not None else torch.device("cpu")


def in_batches(x: Tensor) -> list[Tensor]:
    """The images in parts that one pass takes, in order."""
    return [x[start : start + BATCH] for start in range(0, len(x), BATCH)]
