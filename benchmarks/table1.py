"""What the paper's Table 1 would cost at full scale, from operations alone: an estimate, nothing is trained.

Counted are matrix products and convolutions of training (five seeds, 200 epochs), of validation after each epoch and
of the test (10,000 images × 76 sets, with the method's noisy passes). Left out: reading and augmenting images,
communication, anything bound by memory but for what the assumed rate leaves unused. No data is needed.
"""

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import torch
from tqdm import tqdm

from pdeplus._lib.seeds import generator_for
from pdeplus.evaluation.cost import prediction_flops, training_flops
from pdeplus.studies.estimates import TEST_SETS
from pdeplus.studies.reproduction import prepare
from pdeplus.training.config import Config
from pdeplus.training.run_folder import Expects, build_method, build_network
from pdeplus.training.selection import MOST

from .results import Effort, Result

TESTS = 10_000 * TEST_SETS["corruptions"]


class DataSet(NamedTuple):
    label: str
    classes: int
    images: int
    """To learn from, validation included."""
    size: int
    """Side in pixels where the configuration does not say."""


EXPERIMENTS = {
    "table1_cifar10": DataSet("CIFAR-10", 10, 50_000, 32),
    "table1_cifar100": DataSet("CIFAR-100", 100, 50_000, 32),
    "table1_tiny_imagenet": DataSet("Tiny-ImageNet", 200, 100_000, 64),
}


def measure(effort: Effort) -> Iterator[Result]:
    """A table of operations for each data set, then hours."""
    totals, longest = dict[str, float](), dict[str, float]()
    for name, data in list(EXPERIMENTS.items())[: 1 if effort.quick else None]:
        _, size, cells = prepare(name, "full", None, ["model.width=4"] if effort.quick else [])
        first = [cell for cell in cells if cell.config.seed == 0]
        bar = tqdm(first, f"counting {data.label}", disable=None)
        peta = {cell.label: size.seeds * operations(cell.config, data, TESTS) / 1e15 for cell in bar}
        totals[data.label], longest[data.label] = sum(peta.values()), max(peta.values()) / size.seeds
        yield Result(f"table1, {data.label}, {size.seeds} seeds, training and test", peta, "PFLOP", "ERM")
    totals["together"], longest["together"] = sum(totals.values()), max(longest.values())
    yield Result("table1, operations", {label: total / 1000 for label, total in totals.items()}, "EFLOP")
    hours, an_hour = dict[str, float](), 3.6 * effort.tflops
    for label, total in totals.items():  # a run takes one accelerator: more of them do not end before the longest run
        hours[f"{label}, longest run"] = longest[label] / an_hour
        for n in (1, 8, 64):
            hours[f"{label}, {n} accelerator{'s' * (n > 1)}"] = max(total / n, longest[label]) / an_hour
    assumed = f"{effort.tflops:g} TFLOP/s used of an accelerator are assumed (--tflops), one accelerator for a run"
    left_out = "reading and augmenting images and communication are left out"
    yield Result("table1, hours", hours, "h", notes=(f"an estimate: {assumed}", left_out))


def operations(config: Config, data: DataSet, tests: int) -> float:
    """Those of training, validating and testing once, testing on so many images."""
    size, train = int(config.data.options.get("size", data.size)), config.train
    expects = Expects(classes=tuple(map(str, range(data.classes))), shape=(3, size, size))
    method = build_method(config)
    held_out = round(data.images * train.validation)
    learn = train.epochs * training_flops(config, method, expects, data.images - held_out)
    net, stream = build_network(config, method, expects).eval(), generator_for(0, "table1")
    example = torch.rand(1, *expects.shape, generator=stream)
    each = prediction_flops(partial(method.predict, net, generator=stream), example)
    return learn + each * (train.epochs * (held_out + min(held_out, MOST)) + tests)
