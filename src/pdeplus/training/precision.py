"""Precision by measurement: with train.precision=auto a run takes fp32 or bf16, whichever is faster where it begins.

The choice and the times are written into the run folder, and a resumed run keeps the choice.
"""

import copy
import json
import time
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal, get_args

import torch

from .._lib.files import write_file
from .._lib.seeds import generator_for
from ..core.network import is_narrow
from ..data.base import Batch
from ..errors import UserError
from .distributed import Engine
from .loop import set_learning_rates, train_step
from .optimizers import build_optimizers
from .session import Session
from .sums import UNCHECKED, check_sum, read_sums

FILE = "precision.json"
Candidate = Literal["fp32", "bf16"]
TRIAL, PIXELS = 64, 2**19
"""Images in the steps that are timed, and their pixels, at most: a large batch in fp32 would be a run's memory peak."""
ROUNDS = 3
"""Timed steps in each precision, after one that warms up."""
WORTH = 0.95
"""Where a step in bf16 takes at most this share of the time in fp32, bf16 is taken."""


def chosen_precision(session: Session, folder: Path) -> str:
    """The precision of the run in a folder: as set; else as chosen when it began; else measured and written now."""
    if session.settings.precision != "auto":
        return session.settings.precision
    path = folder / FILE
    if path.is_file():
        data = path.read_bytes()
        check_sum(folder, path, data)
        with suppress(ValueError, KeyError, TypeError, RecursionError):
            kept = json.loads(data)["precision"]
            if kept in get_args(Candidate):
                return kept
        raise UserError(f"{path} is damaged; restore it from a backup, or delete it, and it is measured again")
    if FILE in read_sums(folder):
        raise UserError(f"{path} is missing, which says what the run was trained with; {UNCHECKED}")
    # what bf16 speeds up narrow networks have little of, and in channels-last memory it can crash them
    seconds = {} if is_narrow(session.model) else time_steps(session)
    precision = faster(seconds) if seconds else "fp32"
    shown = {name: round(1000 * value, 3) for name, value in seconds.items()}
    content = {"precision": precision, "milliseconds": shown, "images": trial_size(session)}
    write_file(path, json.dumps(content, indent=1).encode())
    return precision


def faster(seconds: Mapping[Candidate, float]) -> Candidate:
    """bf16 where it is worth it; where the clock cannot tell, fp32 and a warning."""
    if not min(seconds.values()) > 0:
        warnings.warn("train.precision=auto: this machine's clock is too coarse to time a step; fp32", stacklevel=2)
        return "fp32"
    return "bf16" if seconds["bf16"] <= WORTH * seconds["fp32"] else "fp32"


def trial_size(session: Session) -> int:
    """How many images are in a timed step: at most those that go through the network at once."""
    settings, train = session.settings, session.split.train
    few = min(TRIAL, max(PIXELS // (train.shape[1] * train.shape[2]), 2))
    return min(few, max(settings.batch_size // settings.accumulate, 2), len(train))


def time_steps(session: Session, clock: Callable[[], float] = time.perf_counter) -> dict[Candidate, float]:
    """Seconds of the run's own training step on a few images in each precision: the fastest of some, taken in turns.

    The session is left as it was: the steps are a copy's, with learning rates of 0.
    """
    model, device = copy.deepcopy(session.model).train(), session.engine.device
    optimizers = build_optimizers(session.method, model, session.settings)
    set_learning_rates(optimizers, {name: [0.0] * len(o.param_groups) for name, o in optimizers.items()}, 0.0)
    images, labels = session.on_device(session.split.train.take(torch.arange(trial_size(session))))
    seconds: dict[Candidate, list[float]] = {"fp32": [], "bf16": []}
    with torch.random.fork_rng():
        for _ in range(1 + ROUNDS):
            for precision, taken in seconds.items():
                stream = generator_for(session.seed, "precision", device=device)
                smoothing, weights = session.settings.label_smoothing, session.class_weights
                batch = Batch(images, labels, session.split.transform, stream, smoothing, weights)
                started = clock()
                train_step(model, session.method, batch, optimizers, Engine(precision, session.settings.device))
                if device.type != "cpu":
                    torch.accelerator.synchronize(device)
                taken.append(clock() - started)
    return {precision: min(taken[1:]) for precision, taken in seconds.items()}
