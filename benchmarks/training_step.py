"""The training step of each PDE+ schedule against the authors' and against ERM, and its peak memory.

    python benchmarks/training_step.py [--rounds 9] [--width 64 --batch 32]

`authors` is the published step: three passes, two full backward passes, ReLU head, N×C×H×W memory.
"""

import argparse
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from _timing import take_turns

from pdeplus._engine import Engine
from pdeplus.augment.identity import Identity
from pdeplus.data.base import Batch
from pdeplus.methods.base import Method
from pdeplus.methods.erm import ERM
from pdeplus.methods.pde_plus import PDEPlus
from pdeplus.models.resnet18 import build
from pdeplus.trainer import train_step

AUTHORS = PDEPlus(
    schedule="authors",
    coverage_gradient="through",
    head="relu",
    initial_scale=0,
    sigma_is="variance",
    coverage_reduction="mean",
    augmentor=Identity(),
)
ARMS: dict[str, tuple[Method, torch.memory_format]] = {
    "ERM": (ERM(), torch.channels_last),
    "authors": (AUTHORS, torch.contiguous_format),
    "authors, channels-last": (AUTHORS, torch.channels_last),
    "alternating": (PDEPlus(schedule="alternating", augmentor=Identity()), torch.channels_last),
    "fused": (PDEPlus(augmentor=Identity()), torch.channels_last),
    "fused, light block": (PDEPlus(block="light", augmentor=Identity()), torch.channels_last),
}


def make_step(name: str, width: int, batch_size: int) -> Callable[[], object]:
    """One arm's step on a fixed batch; the augmentation's own cost is left out on both sides."""
    method, layout = ARMS[name]
    engine = Engine("fp32")
    images = torch.rand(batch_size, 3, 32, 32)
    model = method.prepare(build(classes=10, channels=3, width=width), images).to(memory_format=layout).train()
    optimizers = method.optimizers(model, lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9, weight_decay=5e-4))
    labels = torch.arange(batch_size) % 10
    batch = Batch(images.to(memory_format=layout), labels, Identity(), torch.Generator().manual_seed(0))
    return partial(train_step, model, method, batch, optimizers, engine)


def peak_memory(name: str, width: int, batch_size: int) -> int:
    """Peak resident MiB of a fresh process that takes three steps."""
    arguments = ["--peak", name, "--width", str(width), "--batch", str(batch_size)]
    done = subprocess.run([sys.executable, __file__, *arguments], capture_output=True, text=True, check=True)
    return int(done.stdout)


def high_water_mark() -> int:
    """Peak resident MiB of this process alone (getrusage would count the parent's too)."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) // 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--width", type=int)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--peak", choices=list(ARMS), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peak:
        step = make_step(options.peak, options.width, options.batch)
        for _ in range(3):
            step()
        print(high_water_mark())
        return
    sizes = [(options.width, options.batch)] if options.width else [(64, 32), (16, 128)]
    for width, batch_size in sizes:
        seconds = take_turns({name: make_step(name, width, batch_size) for name in ARMS}, options.rounds)
        print(f"ResNet-18, width {width}, batch {batch_size}, {torch.get_num_threads()} threads")
        print(f"{'step':24} {'seconds':>8} {'× ERM':>6} {'authors ÷ this':>15} {'peak MiB':>9}")
        for name, value in seconds.items():
            ratios = f"{value / seconds['ERM']:6.2f} {seconds['authors'] / value:15.2f}"
            print(f"{name:24} {value:8.3f} {ratios} {peak_memory(name, width, batch_size):9d}", flush=True)


if __name__ == "__main__":
    main()
