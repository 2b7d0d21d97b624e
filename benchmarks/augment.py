"""Batched augmentations against torchvision's on Pillow images, on one core.

torchvision takes the images one by one, as its data loader does; turning them into tensors afterwards is not counted.
Memory is warm, as in training: once a process has freed a large tensor, its allocator keeps what it has.
"""

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from types import ModuleType

import torch
from PIL import Image

from pdeplus._lib.environment import one_thread
from pdeplus._lib.seeds import generator_for
from pdeplus.augment.augmix import AugMix
from pdeplus.augment.auto_augment import AutoAugment
from pdeplus.augment.crop_flip import CropFlip
from pdeplus.augment.rand_augment import RandAugment
from pdeplus.data.synthetic import draw
from pdeplus.errors import UserError

from .results import Effort, Result, take_turns

OPERATORS = torch.library.Library("torchvision", "FRAGMENT")


def measure(effort: Effort) -> Iterator[Result]:
    """A table for each augmentation, here and by torchvision with the same settings."""
    tv = _transforms()
    rounds, number, size, stream = effort.turns(15), 2 if effort.quick else 128, 32, generator_for(0, "bench")
    pairs = {
        "AugMix, 9 operations": (AugMix(), tv.AugMix(severity=3, mixture_width=3, all_ops=False)),
        "AugMix, 13 operations": (AugMix(operations=13), tv.AugMix(severity=3, mixture_width=3)),
        "AutoAugment": (AutoAugment(), tv.AutoAugment(tv.AutoAugmentPolicy.CIFAR10)),
        "RandAugment": (RandAugment(), tv.RandAugment()),
        "crop and flip": (CropFlip(), tv.Compose([tv.RandomCrop(size, padding=4), tv.RandomHorizontalFlip()])),
    }
    stored = draw("photo", number, size, stream).images[:number]
    x, pictures = stored.float() / 255, [Image.fromarray(image.permute(1, 2, 0).numpy()) for image in stored]
    with one_thread(), torch.random.fork_rng():  # torchvision draws from torch's global state
        torch.ones(7 * 2**20)
        for name, (ours, theirs) in pairs.items():
            arms = {"ours": partial(ours, x, stream), "torchvision": partial(_one_by_one, theirs, pictures)}
            each = {arm: 1000 * seconds / number for arm, seconds in take_turns(arms, rounds).items()}
            title = f"augment, {name}: batch {number}, {size} px, 1 thread"
            yield Result(title, each, "ms/image", "ours", rounds=rounds)


def _one_by_one(transform: Callable[[Image.Image], Image.Image], pictures: list[Image.Image]) -> None:
    for picture in pictures:
        transform(picture)


def declare_operators() -> None:
    """Let torchvision import: beside a CPU build of torch its wheel's operators are missing, their schemas suffice."""
    for name in ("nms", "qnms"):
        with contextlib.suppress(RuntimeError):  # they are there
            OPERATORS.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


def _transforms() -> ModuleType:
    declare_operators()
    try:
        from torchvision import transforms
    except ImportError as error:
        raise UserError(f"augment compares with torchvision: pip install torchvision ({error})") from error
    return transforms
