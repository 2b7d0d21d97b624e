"""Ratios measured in one process: the arms take turns, the median of several rounds counts."""

import statistics
import time
from collections.abc import Callable, Mapping


def take_turns(
    arms: Mapping[str, Callable[[], object]],
    rounds: int,
    clock: Callable[[], float] = time.perf_counter,
    *,
    steady: bool = False,
) -> dict[str, float]:
    """Median seconds of each arm over `rounds` turns, after one turn that does not count.

    Args:
        arms: what to time.
        rounds: turns that count.
        clock: in seconds.
        steady: in each turn the arm runs once before it is timed, so that it finds memory as it left it, as a training
            step does, and not as the other arms did.
    """
    seconds: dict[str, list[float]] = {name: [] for name in arms}
    for turn in range(rounds + 1):
        for name, arm in arms.items():
            if steady and turn:
                arm()
            started = clock()
            arm()
            if turn:
                seconds[name].append(clock() - started)
    return {name: statistics.median(values) for name, values in seconds.items()}
