"""What an experiment would take: each cell's hours and disk, from one small step on this machine."""

import heapq
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, final

import torch
from torch import nn

from .._lib.environment import one_thread
from .._lib.seeds import generator_for
from ..data.base import Batch, split
from ..errors import UserError
from ..methods.base import Method
from ..training.config import Config, config_hash
from ..training.distributed import Engine
from ..training.loop import train_step
from ..training.optimizers import build_optimizers
from ..training.run_folder import build_method, build_network, build_source, expects_of
from .cells import Cell, is_tested, is_trained

TRIAL = 32
"""At most so many images are in the step that is timed."""
TEST_SETS = {"corruptions": 76, "domains": 4, "augmented": 6, "none": 0}
COPIES = 6
"""Copies of the weights in a run folder: the best, the last, and two checkpoints with momentum."""


@final
@dataclass(frozen=True, kw_only=True)
class CellCost:
    """What one cell would take."""

    cell: Cell
    state: Literal["done", "to do", "shared", "unknown"]
    """Shared: trained as another cell before it. To do may be its tests alone."""
    hours: float = 0.0
    testing: float = 0.0
    """How many of these hours are for testing."""
    gigabytes: float = 0.0
    reason: str = ""
    """Why nothing is known."""


def estimate(cells: Sequence[Cell], runs: Path, known: Collection[int] = ()) -> list[CellCost]:
    """Hours and disk of each cell that is not done; seeds of one configuration are timed once.

    Hours are for one thread of this machine, from a training step and a prediction of up to 32 images.
    `known` are indices of cells that were done elsewhere.
    """
    timed, found, folders = dict[str, CellCost](), list[CellCost](), set[str]()
    for index, cell in enumerate(cells):
        trained = is_trained(cell, runs)
        if index in known or cell.folder in folders or (trained and is_tested(cell, runs)):
            found.append(CellCost(cell=cell, state="shared" if cell.folder in folders else "done"))
            continue
        folders.add(cell.folder)
        key = config_hash(cell.config)
        if key not in timed:
            with one_thread():  # as a cell has
                timed[key] = _measure(cell)
        one = replace(timed[key], cell=cell)
        found.append(replace(one, hours=one.testing, gigabytes=0.0) if trained else one)
    return found


def hours_of_jobs(estimates: Sequence[CellCost], jobs: int) -> float:
    """Hours until all cells are done, so many at once: each begins, in order, as soon as another has ended."""
    busy = [0.0] * jobs
    for one in estimates:
        heapq.heapreplace(busy, busy[0] + one.hours)
    return max(busy)


def format_estimates(estimates: Sequence[CellCost], jobs: int | None = None) -> str:
    """A line for each cell, the sums, the time that so many jobs take, and what stands in the way of an estimate."""
    width = max((len(one.cell.name) for one in estimates), default=4)
    lines = [f"{'cell':<{width}}  seed  {'hours':>9}  {'GB':>7}  state"]
    for one in estimates:
        numbers = [" " * 8 + "?", "      ?"] if one.reason else [_hours(one.hours), f"{one.gigabytes:7.3f}"]
        lines.append(f"{one.cell.name:<{width}}  {one.cell.config.seed:>4}  {'  '.join(numbers)}  {one.state}")
    hours, disk = sum(one.hours for one in estimates), sum(one.gigabytes for one in estimates)
    still = sum(one.state not in ("done", "shared") for one in estimates)
    unknown = sum(one.state == "unknown" for one in estimates)
    but = f" without the {unknown} unknown" if unknown else ""
    shared = f", {_hours(hours_of_jobs(estimates, jobs)).strip()} with {jobs} at once" if jobs else ""
    total = f"{_hours(hours).strip()} hours on this machine{shared}, {disk:.2f} GB{but}"
    lines.append(f"{still} of {len(estimates)} cells to do: {total}")
    return "\n".join([*lines, *dict.fromkeys(one.reason for one in estimates if one.reason)])


def _hours(hours: float) -> str:
    return f"{hours:9.3f}" if hours < 1 else f"{hours:9.1f}"


def _measure(cell: Cell) -> CellCost:
    config = cell.config
    try:
        source = build_source(config)
        parts = split(source, validation=config.train.validation, limit=config.train.limit, seed=0)
        expects = expects_of(source, parts.train)
        tests = cell.limit or max(len(images) for images in source.test().values())
        method = build_method(config)
        net = build_network(config, method, expects)
    except (UserError, OSError) as error:
        return CellCost(cell=cell, state="unknown", reason=str(error))
    per_image, per_test = _seconds(config, method, net, expects.shape, len(expects.classes))
    learn = per_image * len(parts.train) * config.train.epochs
    passes = sum(max(1, samples) for samples in cell.samples) or 1  # else the method's own, which were timed
    test = per_test * tests * TEST_SETS[cell.tests] * passes
    weights = sum(tensor.numel() * tensor.element_size() for tensor in net.state_dict().values())
    kept = config.train.epochs // config.train.keep_every if config.train.keep_every else 0
    disk = weights * (COPIES + kept) / 1e9
    return CellCost(cell=cell, state="to do", hours=(learn + test) / 3600, testing=test / 3600, gigabytes=disk)


def _seconds(
    config: Config, method: Method, net: nn.Module, shape: tuple[int, int, int], classes: int
) -> tuple[float, float]:
    """Seconds of learning from an image, and of predicting one."""
    size = min(config.train.batch_size, TRIAL)
    engine = Engine(config.train.precision)
    net.to(engine.device)
    stream = generator_for(0, "estimate", device=engine.device)
    images = torch.rand(size, *shape, generator=stream, device=engine.device)
    labels = torch.arange(size, device=engine.device) % classes
    batch = Batch(images, labels, lambda x, generator: x, stream)
    optimizers = build_optimizers(method, net.train(), config.train)

    with torch.random.fork_rng():
        learning = _fastest(lambda: train_step(net.train(), method, batch, optimizers, engine))
        testing = _fastest(lambda: method.predict(net.eval(), images, stream))
    return learning / size, testing / size


def _fastest(work: Callable[[], object]) -> float:
    """Seconds of the fastest of three: the first also allocates, and others may be at work beside it."""
    taken = list[float]()
    for _ in range(3):
        begun = time.perf_counter()
        work()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        taken.append(time.perf_counter() - begun)
    return min(taken)
