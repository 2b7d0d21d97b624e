"""What a run or an experiment would take: FLOPs, hours and disk, from one small step on this machine."""

import heapq
import time
import tomllib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Literal, cast, final, get_args

import torch
from torch import nn

from .._lib.environment import one_thread
from .._lib.seeds import generator_for
from ..core.network import is_narrow
from ..data.base import Batch
from ..errors import UserError
from ..evaluation.cost import training_flops
from ..methods.base import Method
from ..training.config import Config, config_hash
from ..training.distributed import Engine
from ..training.loop import set_learning_rates, train_step
from ..training.optimizers import build_optimizers
from ..training.precision import Candidate, faster
from ..training.run_folder import Expects, build_method, build_network, build_source, expects_of, fitted, split_of
from .cells import Cell, is_tested, is_trained
from .experiment import Tests

TRIAL = 32
"""At most so many images are in the step that is timed."""
TEST_SETS: Mapping[Tests, int] = {
    "corruptions": 76,
    "clean": 1,
    "domains": 4,
    "augmented": 6,
    "held_out": 21,
    "none": 0,
}
CBAR_SETS = 51
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
    lines = [f"{'run':<{width}}  seed  {'hours':>9}  {'GB':>7}  state"]
    for one in estimates:
        numbers = [" " * 8 + "?", "      ?"] if one.reason else [_hours(one.hours), f"{one.gigabytes:7.3f}"]
        lines.append(f"{one.cell.name:<{width}}  {one.cell.config.seed:>4}  {'  '.join(numbers)}  {one.state}")
    hours, disk = sum(one.hours for one in estimates), sum(one.gigabytes for one in estimates)
    still = sum(one.state not in ("done", "shared") for one in estimates)
    unknown = sum(one.state == "unknown" for one in estimates)
    but = f" without the {unknown} unknown" if unknown else ""
    shared = f", {_hours(hours_of_jobs(estimates, jobs)).strip()} with {jobs} at once" if jobs else ""
    total = f"{_hours(hours).strip()} hours on this machine{shared}, {disk:.2f} GB{but}"
    lines.append(f"{still} of {len(estimates)} runs to do: {total}")
    return "\n".join([*lines, *dict.fromkeys(one.reason for one in estimates if one.reason)])


def _hours(hours: float) -> str:
    return f"{hours:9.3f}" if hours < 1 else f"{hours:9.1f}"


def _measure(cell: Cell) -> CellCost:
    config = cell.config
    try:
        run = run_cost(config)
        tests = cell.limit or _test_images(cell, run)
    except (UserError, OSError) as error:
        return CellCost(cell=cell, state="unknown", reason=str(error))
    passes = sum(max(1, samples) for samples in cell.samples) or 1  # else the method's own, which were timed
    sets = TEST_SETS[cell.tests] + CBAR_SETS * cell.cbar
    test = run.predicting * tests * sets * passes / 3600
    return CellCost(cell=cell, state="to do", hours=run.hours + test, testing=test, gigabytes=run.gigabytes)


def _test_images(cell: Cell, run: "RunCost") -> int:
    """Images of its largest test set."""
    if cell.tests == "held_out":
        share = cell.config.train.validation
        return round(run.images * share / (1 - share))
    return max(len(images) for images in build_source(cell.config).test().values())


@final
@dataclass(frozen=True, kw_only=True)
class RunCost:
    """What training one network would take."""

    images: int
    """Training images, those held out not counted."""
    precision: str
    per_second: float
    """Images learnt from in a second."""
    hours: float
    predicting: float
    """Seconds of predicting an image."""
    gigabytes: float


def run_cost(config: Config) -> RunCost:
    """Measure a run's speed on this machine by a few small steps, in the precision that it would have."""
    config = fitted(config)
    source, method = build_source(config), build_method(config)
    parts = split_of(replace(config, seed=0), source)
    expects, epochs, images = expects_of(source, parts.validation), config.train.epochs, len(parts.train)
    net = build_network(config, method, expects)
    weights = sum(tensor.numel() * tensor.element_size() for tensor in net.state_dict().values())
    copies = COPIES + (epochs // config.train.keep_every if config.train.keep_every else 0)
    names: list[str] = [config.train.precision]
    if names == ["auto"]:
        names = ["fp32"] if is_narrow(net) else list(get_args(Candidate))
    timed = {name: _seconds(config, name, method, net, expects) for name in names}
    steps = cast(dict[Candidate, float], {name: seconds for name, (seconds, _) in timed.items()})
    precision = faster(steps) if len(names) > 1 else names[0]
    learning, predicting = timed[precision]
    if config.train.progressive:  # the step that was timed has images of full size
        full_size = replace(config, train=replace(config.train, progressive=0.0))
        flops = [training_flops(one, method, expects, 1) for one in (config, full_size)]
        learning *= flops[0] / flops[1]
    return RunCost(
        images=images,
        precision=precision,
        per_second=1 / learning,
        hours=learning * images * epochs / 3600,
        predicting=predicting,
        gigabytes=weights * copies / 1e9,
    )


def format_run(config: Config) -> str:
    """What a run would take and, where its settings were measured before, the accuracy to expect."""
    config = fitted(config)
    cost, epochs = run_cost(config), config.train.epochs
    source = build_source(config)
    expects = expects_of(source, source.as_tested(source.train()))
    flops = training_flops(config, build_method(config), expects, cost.images * epochs)
    minutes, threads = 60 * cost.hours, torch.get_num_threads()
    lines = [
        f"{config.name}: {config.model.name} trained with {config.method.name} on {cost.images:,} images of "
        f"{config.data.name}, {epochs} epoch{'s' * (epochs != 1)} in batches of {config.train.batch_size}",
        f"{flops / 1e15:.3g} PFLOP; about {minutes:.1f} minutes here ({threads} thread{'s' * (threads != 1)}, "
        f"{cost.precision}, {cost.per_second:.0f} images a second; tests not counted), {cost.gigabytes:.2f} GB of disk",
    ]
    known = tomllib.loads((resources.files("pdeplus.studies") / "expected.toml").read_text("utf-8"))
    one = known.get(config_hash(config))
    lines.append(f"accuracy to expect: {one}" if one else "accuracy to expect: these settings were not measured")
    return "\n".join(lines)


def _seconds(config: Config, precision: str, method: Method, net: nn.Module, expects: Expects) -> tuple[float, float]:
    """Seconds of learning from an image, with its share of the batch's update, and of predicting one."""
    size = min(config.train.batch_size, TRIAL)
    engine = Engine(precision, config.train.device)
    net.to(engine.device)
    stream = generator_for(0, "estimate", device=engine.device)
    images = torch.rand(size, *expects.shape, generator=stream, device=engine.device)
    labels = torch.arange(size, device=engine.device) % len(expects.classes)
    batch = Batch(images, labels, lambda x, generator: x, stream, config.train.label_smoothing)
    optimizers = build_optimizers(method, net.train(), config.train)
    set_learning_rates(optimizers, {name: [0.0] * len(o.param_groups) for name, o in optimizers.items()}, 0.0)

    with torch.random.fork_rng():
        step = _fastest(lambda: train_step(net.train(), method, batch, optimizers, engine))
        update = min(step, _fastest(lambda: [optimizer.step() for optimizer in optimizers.values()]))
        testing = _fastest(lambda: method.predict(net.eval(), images, stream))
    return (step - update) / size + update / config.train.batch_size, testing / size


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
