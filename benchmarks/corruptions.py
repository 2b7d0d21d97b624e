"""All 19 × 5 corruptions on one core, against the CPU seconds that the reference generator took for the same work.

python benchmarks/corruptions.py [--images 1000] [--rounds 3] [--scale cifar|tiny]
"""

import argparse
import statistics
import time
import warnings

import torch

from pdeplus.corruptions.base import SEVERITIES
from pdeplus.corruptions.suite import SUITE, corrupt
from pdeplus.data.synthetic import draw

SIZE = {"cifar": 32, "tiny": 64}
REFERENCE_MS = {"cifar": 181.0, "tiny": 564.6}
"""hendrycks/robustness at 8190fe32, one thread: CPU ms per clean image for all 19 × 5, ImageMagick included."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", choices=SIZE, default="cifar")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", UserWarning)  # made ice costs what pictures cost
    drawn = draw("photo", options.images, SIZE[options.scale], torch.Generator().manual_seed(0))
    images = drawn.images.permute(0, 2, 3, 1).contiguous()
    total = 0.0
    for name in SUITE:
        corrupt(images[:2], name, 5, options.scale)
        turns = list[float]()
        for _ in range(options.rounds):
            started = time.process_time()
            for severity in SEVERITIES:
                corrupt(images, name, severity, options.scale)
            turns.append(1000 * (time.process_time() - started) / len(images))
        total += statistics.median(turns)
        print(f"{name:18} {statistics.median(turns):7.3f} ms of CPU per image for 5 severities")
    reference = REFERENCE_MS[options.scale]
    print(f"{'all':18} {total:7.3f} ms; the reference {reference:.1f} ms: {reference / total:.1f} × faster, one core")


if __name__ == "__main__":
    main()
