"""What evaluation costs: against a plain eager loop, against the bare forward, and with E noisy passes.

python benchmarks/evaluate.py [--rounds 5] [--width 64] [--images 64]
"""

import argparse
from collections.abc import Callable
from functools import partial

import torch
from _timing import take_turns
from torch import Tensor

import pdeplus as pp
from pdeplus._fast import fast_copy
from pdeplus.models.resnet18 import build

SEVERITY = 3
SETS = 1 + len(pp.CORRUPTIONS)


@torch.inference_mode()
def loop(net: Callable[[Tensor], Tensor], x: Tensor) -> None:
    """What one would write: the images through the network, as often as there are test sets."""
    for _ in range(SETS):
        net(x).softmax(-1).argmax(-1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--images", type=int, default=64)
    options = parser.parse_args()
    stream = torch.Generator().manual_seed(0)
    x = torch.rand(options.images, 3, 32, 32, generator=stream)
    labels = torch.randint(0, 10, (options.images,), generator=stream)
    bare = build(classes=10, channels=3, width=options.width).eval()
    net = pp.add_diffusion(bare, list(bare.stages), x).eval()
    fast = fast_copy(bare, x[:2])
    same = torch.equal(bare(x).argmax(-1), fast(x).argmax(-1))
    images = x.mul(255).round().to(torch.uint8)
    corruptions = partial(pp.evaluate, bare, data=(images, labels), severities=[SEVERITY], name="bare")
    arms: dict[str, Callable[[], object]] = {
        "plain eager loop": partial(loop, bare, x),
        "bare forward of the fast copy": partial(loop, fast, x),
        f"pp.evaluate, clean and 15 corruptions at severity {SEVERITY}": corruptions,
    }
    seconds = take_turns(arms, options.rounds)
    print(f"ResNet-18, width {options.width}, {SETS} × {options.images} images, {torch.get_num_threads()} threads")
    for name, value in seconds.items():
        rate = SETS * options.images / value
        print(f"{name:60} {rate:8.1f} images/s {seconds['plain eager loop'] / value:6.2f} × the plain loop")
    ratio = seconds["bare forward of the fast copy"] / seconds[list(arms)[2]]
    print(f"pp.evaluate reaches {100 * ratio:.0f} % of the bare forward; same predictions: {same}")
    quick = fast_copy(net, x[:2])
    noisy = {f"E = {e}": partial(pp.predict, quick, x, samples=e) for e in (0, 1, 10)}
    seconds = take_turns(noisy, options.rounds)
    for name, value in seconds.items():
        print(f"{name:60} {options.images / value:8.1f} images/s {value / seconds['E = 1']:6.2f} × E = 1")


if __name__ == "__main__":
    main()
