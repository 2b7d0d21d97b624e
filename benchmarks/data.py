"""Reading all of CIFAR-10 and cutting one epoch's batches, against a budget of two seconds.

The files are made on the spot, as large as the real ones and in their layout.
"""

import pickle
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from pdeplus.data.base import epoch_batches
from pdeplus.data.cifar10 import Cifar10

from ._results import Effort, Result, Row
from ._timing import take_turns

BUDGET_SECONDS = 2.0
IMAGES = 10_000
"""In each of six files."""


def measure(effort: Effort) -> Iterator[Result]:
    """One row."""
    rounds = effort.turns(5)
    with tempfile.TemporaryDirectory() as root:
        _make(Path(root) / "cifar-10-batches-py", 100 if effort.quick else IMAGES)
        seconds = take_turns({"read": partial(read_and_cut, root)}, rounds)["read"]
    ratio, against = seconds / BUDGET_SECONDS, f"× the budget of {BUDGET_SECONDS:g} s"
    row = Row(name="read CIFAR-10, cut one epoch", figure=seconds, unit="s", ratio=ratio, against=against, aim="≤ 1")
    yield Result(title="data", rows=(row,), rounds=rounds)


def read_and_cut(root: str) -> int:
    """Read everything and cut an epoch into batches of 128 floats, as the training loop does."""
    source = Cifar10(root=root)
    train, test = source.train(), source.test()["clean"]
    batches = train.batches(epoch_batches(len(train), batch_size=128, epoch=0, seed=0))
    return len(test) + sum(len(batch.floats()) for batch in batches)


def _make(folder: Path, images: int) -> None:
    folder.mkdir()
    for i, name in enumerate([*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"]):
        rows = np.random.default_rng(i).integers(0, 256, (images, 3072), dtype=np.uint8)
        entries = {"labels": [n % 10 for n in range(images)], "data": rows}
        (folder / name).write_bytes(pickle.dumps(entries, protocol=4))
