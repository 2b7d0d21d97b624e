"""Records whose scores can be worked out by hand, for tests."""

from collections.abc import Callable
from typing import Any

from pdeplus.corruptions.base import SEVERITIES
from pdeplus.corruptions.suite import CORRUPTIONS
from pdeplus.evaluation.records import CLEAN, Record

ALL_CELLS = [(CLEAN, 0), *((name, severity) for name in CORRUPTIONS for severity in SEVERITIES)]


def record(**changes: Any) -> Record:
    """A record like any other, but for the changes."""
    usual: dict[str, Any] = {
        "model": "PDE+",
        "data": "cifar10",
        "suite": "corruptions",
        "corruption": "fog",
        "severity": 3,
        "origin": "cifar10_c",
        "seed": 0,
        "config": "0123456789",
        "weights": "abcdef",
        "selection": "last",
        "n": 1000,
        "correct": 900,
        "nll": 0.5,
        "brier": 0.25,
        "ece": 0.125,
        "seconds": 2.0,
    }
    return Record(**usual | changes)


def one_seed(error: Callable[[str, int], float], **changes: Any) -> list[Record]:
    """All 76 cells with the given errors, multiples of 1/1000; nll is the error, ece a tenth of it."""
    return [
        record(corruption=name, severity=severity, correct=round(1000 * (1 - e)), nll=e, ece=e / 10, **changes)
        for name, severity in ALL_CELLS
        for e in [error(name, severity)]
    ]
