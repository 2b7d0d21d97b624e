"""What the paper's Table 1 would cost at full scale, from operations alone: an estimate, nothing is trained.

Counted are matrix products and convolutions of training (five seeds, 200 epochs), of validation after each epoch and
of the test (10,000 images × 76 sets, with the method's noisy passes). Left out: reading and augmenting images,
communication, anything bound by memory but for what the assumed rate leaves unused. No data is needed.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import final

import torch

from pdeplus._lib.progress import counting_bar
from pdeplus._lib.seeds import generator_for
from pdeplus.evaluation.cost import prediction_flops, training_flops
from pdeplus.studies.cells import Cell
from pdeplus.studies.estimate import TEST_SETS
from pdeplus.studies.matrix import prepare
from pdeplus.training.config import Config
from pdeplus.training.run_folder import Expects, build_method, build_network
from pdeplus.training.selection import MOST

from ._results import Effort, Result, Row, compared

TEST_IMAGES = 10_000
ACCELERATORS = (1, 8, 64)


@final
@dataclass(frozen=True, kw_only=True)
class DataSet:
    """What the count needs to know of a data set."""

    label: str
    classes: int
    images: int
    """To learn from, validation included."""
    size: int
    """Side in pixels where the configuration does not say."""


EXPERIMENTS = {
    "table1_cifar10": DataSet(label="CIFAR-10", classes=10, images=50_000, size=32),
    "table1_cifar100": DataSet(label="CIFAR-100", classes=100, images=50_000, size=32),
    "table1_tiny_imagenet": DataSet(label="Tiny-ImageNet", classes=200, images=100_000, size=64),
}


def measure(effort: Effort) -> Iterator[Result]:
    """A table of operations for each data set, then hours."""
    totals, longest = dict[str, float](), dict[str, float]()
    for name, data in list(EXPERIMENTS.items())[: 1 if effort.quick else None]:
        _, scale, cells = prepare(name, "full", None, ["model.width=4"] if effort.quick else [])
        found = _operations_of_rows(cells, data)
        totals[data.label], longest[data.label] = sum(found.values()), max(found.values()) / scale.seeds
        rows = compared({k: v / 1e15 for k, v in found.items()}, "PFLOP", "ERM")
        yield Result(title=f"table1, {data.label}, {scale.seeds} seeds, training and test", rows=rows)
    totals["together"], longest["together"] = sum(totals.values()), max(longest.values())
    yield _hours(totals, longest, effort.tflops)


def operations(config: Config, data: DataSet, tests: int) -> float:
    """Of training, validating and testing once, testing on so many images."""
    size, train = int(config.data.options.get("size", data.size)), config.train
    expects = Expects(classes=tuple(map(str, range(data.classes))), shape=(3, size, size))
    method = build_method(config)
    held_out = round(data.images * train.validation)
    learn = train.epochs * training_flops(config, method, expects, data.images - held_out)
    net, stream = build_network(config, method, expects).eval(), generator_for(0, "table1")
    example = torch.rand(1, *expects.shape, generator=stream)
    each = prediction_flops(partial(method.predict, net, generator=stream), example)
    return learn + each * (train.epochs * (held_out + min(held_out, MOST)) + tests)


def _operations_of_rows(cells: Sequence[Cell], data: DataSet) -> dict[str, float]:
    """Of all seeds of each row; one seed is counted."""
    tests, found = TEST_IMAGES * TEST_SETS["corruptions"], dict[str, float]()
    seeds = len({cell.config.seed for cell in cells})
    first = [cell for cell in cells if cell.config.seed == 0]
    with counting_bar(f"counting {data.label}", len(first), " rows") as count:
        for cell in first:
            found[cell.label] = seeds * operations(cell.config, data, tests)
            count(1)
    return found


def _hours(totals: Mapping[str, float], longest: Mapping[str, float], tflops: float) -> Result:
    """A run takes one accelerator, so that more of them do not end before the longest run."""
    rows, an_hour = list[Row](), 3600e12 * tflops
    for label, total in totals.items():
        rows.append(Row(name=f"{label}, operations", figure=total / 1e18, unit="EFLOP"))
        rows.append(Row(name=f"{label}, longest run", figure=longest[label] / an_hour, unit="h"))
        for number in ACCELERATORS:
            hours = max(total / number, longest[label]) / an_hour
            rows.append(Row(name=f"{label}, {number} accelerator{'s' * (number > 1)}", figure=hours, unit="h"))
    assumed = (
        f"an estimate: {tflops:g} TFLOP/s used of an accelerator are assumed (--tflops), one accelerator for a run"
    )
    left_out = "reading and augmenting images and communication are left out"
    return Result(title="table1, hours", rows=tuple(rows), notes=(assumed, left_out))
