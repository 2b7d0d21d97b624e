"""Reading all of CIFAR-10 and cutting one epoch's batches, against a budget of two seconds.

python benchmarks/data.py --root DIR      the real files
python benchmarks/data.py                 files of the same size, made on the spot
"""

import argparse
import pickle
import tempfile
from pathlib import Path

import numpy as np
from _timing import take_turns

from pdeplus.data.base import epoch_batches
from pdeplus.data.cifar10 import Cifar10

BUDGET_SECONDS = 2.0


def make(folder: Path, images: int) -> None:
    """Six files of random images in the original layout."""
    folder.mkdir()
    for i, name in enumerate([*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"]):
        rows = np.random.default_rng(i).integers(0, 256, (images, 3072), dtype=np.uint8)
        entries = {"labels": [n % 10 for n in range(images)], "data": rows}
        (folder / name).write_bytes(pickle.dumps(entries, protocol=4))


def read_and_cut(root: str) -> int:
    """Read everything and cut an epoch into batches of 128 floats, as the training loop does."""
    source = Cifar10(root=root)
    train, test = source.train(), source.test()["clean"]
    batches = train.batches(epoch_batches(len(train), batch_size=128, epoch=0, seed=0))
    return len(test) + sum(len(batch.floats()) for batch in batches)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", default="", help="folder that holds cifar-10-batches-py")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--images", type=int, default=10_000, help="in each of the six files that are made")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        if not options.root:
            make(Path(scratch) / "cifar-10-batches-py", options.images)
        root = options.root or scratch
        seconds = take_turns({"read": lambda: read_and_cut(root)}, options.rounds)["read"]
    print(f"read CIFAR-10 and cut one epoch: {seconds:.2f} s, {seconds / BUDGET_SECONDS:.2f} × the budget of 2 s")


if __name__ == "__main__":
    main()
