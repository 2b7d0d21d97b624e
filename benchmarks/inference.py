"""What diffusion costs at test: off against the bare network, and E noisy passes.

python benchmarks/inference.py [--rounds 31] [--width 64] [--batch 32]
"""

import argparse
from functools import partial

import torch
from _timing import take_turns

import pdeplus as pp
from pdeplus.models.resnet18 import build


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--batch", type=int, default=32)
    options = parser.parse_args()
    x = torch.rand(options.batch, 3, 32, 32).to(memory_format=torch.channels_last)
    bare = build(classes=10, channels=3, width=options.width).eval()
    net = pp.add_diffusion(bare, list(bare.stages), x)
    bare, net = (m.to(memory_format=torch.channels_last) for m in (bare, net))
    arms = {
        "bare network": partial(pp.predict, bare, x, samples=0),
        "diffusion off (E = 0)": partial(pp.predict, net, x, samples=0),
        "E = 1": partial(pp.predict, net, x, samples=1),
    }
    seconds = take_turns(arms, options.rounds)
    print(f"ResNet-18, width {options.width}, batch {options.batch}, {torch.get_num_threads()} threads")
    for name, value in seconds.items():
        print(f"{name:24} {1000 * value / options.batch:8.2f} ms/image {value / seconds['bare network']:6.3f} × bare")


if __name__ == "__main__":
    main()
