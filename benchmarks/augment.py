"""Batched augmentations against torchvision's on Pillow images, on one core.

    python benchmarks/augment.py [--rounds 15] [--batch 128] [--size 32] [--cold]

torchvision takes the images one by one, as its data loader does; turning them into tensors afterwards is not counted.
Memory is warm, as in training: once a process has freed a large tensor, its allocator keeps what it has. `--cold`
leaves that out.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from PIL import Image

from benchmarks._timing import take_turns
from pdeplus.augment.augmix import AugMix
from pdeplus.augment.auto_augment import AutoAugment
from pdeplus.augment.base import Augmentor
from pdeplus.augment.crop_flip import CropFlip
from pdeplus.augment.rand_augment import RandAugment
from pdeplus.data.synthetic import draw

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from peers import peer


def pairs(size: int) -> dict[str, tuple[Augmentor, Callable[[Image.Image], Image.Image]]]:
    """Ours and torchvision's, with the same settings."""
    peer("torchvision")
    from torchvision import transforms as tv

    cifar10 = tv.AutoAugmentPolicy.CIFAR10
    return {
        "AugMix, 9 operations": (AugMix(), tv.AugMix(severity=3, mixture_width=3, all_ops=False)),
        "AugMix, 13 operations": (AugMix(operations=13), tv.AugMix(severity=3, mixture_width=3)),
        "AutoAugment": (AutoAugment(), tv.AutoAugment(cifar10)),
        "RandAugment": (RandAugment(), tv.RandAugment()),
        "crop and flip": (CropFlip(), tv.Compose([tv.RandomCrop(size, padding=4), tv.RandomHorizontalFlip()])),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--size", type=int, default=32)
    parser.add_argument("--cold", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if not options.cold:
        torch.ones(7 * 2**20)
    generator = torch.Generator().manual_seed(0)
    stored = draw("photo", options.batch, options.size, generator).images[: options.batch]
    x = stored.float() / 255
    pictures = [Image.fromarray(image.permute(1, 2, 0).numpy()) for image in stored]
    print(f"batch {len(x)}, {options.size} × {options.size} pixels, {torch.get_num_threads()} thread")
    print(f"{'augmentation':24} {'ours, ms/image':>15} {'torchvision':>12} {'ratio':>6}")
    for name, (ours, theirs) in pairs(options.size).items():
        arms = {"ours": lambda f=ours: f(x, generator), "theirs": lambda f=theirs: [f(picture) for picture in pictures]}
        seconds = take_turns(arms, options.rounds)
        each = {arm: 1000 * value / len(x) for arm, value in seconds.items()}
        print(f"{name:24} {each['ours']:15.4f} {each['theirs']:12.4f} {each['theirs'] / each['ours']:6.1f}", flush=True)


if __name__ == "__main__":
    main()
