"""Two cells at once, in processes of one thread each, against one alone: training images per second, start included."""

import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from pdeplus.errors import RunFailed
from pdeplus.studies.cells import Cell, Failure
from pdeplus.studies.jobs import run_here
from pdeplus.training.config import load_config

from .results import Effort, Result, take_turns

ALONE, TOGETHER = "1 job, 1 cell", "2 jobs, 2 cells"


def measure(effort: Effort) -> Iterator[Result]:
    """One table."""
    width, batch, images, epochs = (4, 16, 70, 1) if effort.quick else (8, 64, 1400, 8)
    settings = ["data.name=synthetic", f"data.train_images={images}", f"model.width={width}"]
    settings += [f"train.batch_size={batch}", f"train.epochs={epochs}"]
    cells, rounds = [cell(settings, seed) for seed in range(2)], effort.turns(3)
    arms = {ALONE: partial(run, cells[:1]), TOGETHER: partial(run, cells)}
    seconds = take_turns(arms, rounds, fresh=True)
    rates = {ALONE: images * epochs / seconds[ALONE], TOGETHER: 2 * images * epochs / seconds[TOGETHER]}
    title = f"jobs, PDE+: ResNet-18, width {width}, batch {batch}, 32 px, {epochs} epochs of {images} images, 1 thread"
    yield Result(title, rates, "images/s", ALONE, {TOGETHER: "≥ 1.8"}, rounds)


def cell(settings: Sequence[str], seed: int) -> Cell:
    """A cell that is trained and not tested."""
    config = load_config("pde_plus", [*settings, f"seed={seed}"])
    about = {"name": "pde_plus", "experiment": "jobs", "label": "PDE+", "paper": "PDE+", "about": ""}
    return Cell(**about, place={}, config=config, tests="none", limit=0)


def run(cells: Sequence[Cell]) -> None:
    """Train all of them at once, into folders that are not there yet."""
    with tempfile.TemporaryDirectory() as runs:
        for _, result in run_here(cells, Path(runs), len(cells)):
            if isinstance(result, Failure):
                raise RunFailed(result.reason)
