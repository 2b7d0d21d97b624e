"""Reading all of CIFAR-10 and cutting one epoch's batches, against a budget of two seconds.

The files are written on the spot, as large as the real ones and in their layout.
"""

import pickle
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from pdeplus.data.base import epoch_batches
from pdeplus.data.cifar10 import Cifar10

from .results import Effort, Result, take_turns

READ, BUDGET = "read CIFAR-10, cut one epoch", "the budget"


def measure(effort: Effort) -> Iterator[Result]:
    """One table."""
    rounds = effort.turns(5)
    with tempfile.TemporaryDirectory() as root:
        _write(Path(root) / "cifar-10-batches-py", 100 if effort.quick else 10_000)
        seconds = take_turns({READ: partial(read_and_cut, root)}, rounds)
    yield Result("data", seconds | {BUDGET: 2.0}, "s", BUDGET, {READ: "≤ 1"}, rounds)


def read_and_cut(root: str) -> int:
    """Read everything and cut an epoch into batches of 128 floats, as the training loop does."""
    source = Cifar10(root=root)
    train, test = source.train(), source.test()["clean"]
    batches = train.batches(epoch_batches(len(train), batch_size=128, epoch=0, seed=0))
    return len(test) + sum(len(batch.floats()) for batch in batches)


def _write(folder: Path, images: int) -> None:
    """Six files of so many images."""
    folder.mkdir()
    for i, name in enumerate([*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"]):
        rows = np.random.default_rng(i).integers(0, 256, (images, 3072), dtype=np.uint8)
        entries = {"labels": [n % 10 for n in range(images)], "data": rows}
        (folder / name).write_bytes(pickle.dumps(entries, protocol=4))
