"""The loop of an evaluation: every test set through the model, a record of each."""

import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ._checkpoint import make_folder
from ._environment import environment
from ._errors import RunFailed, UserError
from ._samples import SampleGrid
from ._seeds import generator_for
from ._subjects import Subject
from .data.base import Images, index_batches
from .metrics import fit_temperature, scale, score
from .records import CLEAN, Record, append_records, identity, pack_hits, read_records
from .suites import TestSet, TestSuite

FILE = "records.jsonl"
Watch = Callable[[int, int], object]
"""Called with the number of images done since the last call, and how many there will be in all."""


def measure(
    subject: Subject, tests: TestSuite, folder: Path | None, batch_size: int, watch: Watch | None
) -> list[Record]:
    """The records of all test sets; those that the folder holds are not measured again, the others are added to it."""
    if subject.classes is not None:
        _check_names(subject.classes, tests)
    path = folder / FILE if folder is not None else None
    if folder is not None:
        make_folder(folder)
    known = recorded(path) if path is not None else {}
    now = environment()
    drafts = [(test, _draft(subject, tests, test, batch_size, now)) for test in tests.sets]
    missing = [test for test, draft in drafts if identity(draft) not in known]
    cost = subject.cost() if missing else dict[str, Any]()
    total = _count(tests, missing)
    about = f"{tests.origin}, {subject.about['selection']}, E={subject.about['samples']}"
    grid = SampleGrid(folder, tests.classes, about)
    temperature = _temperature(subject, batch_size) if missing else None
    records = list[Record]()
    for test, draft in drafts:
        if test not in missing:
            records.append(known[identity(draft)])
            continue

        def tell(n: int) -> None:
            if watch:
                watch(n, total)

        record = _measure_one(subject, tests, test, replace(draft, **cost), temperature, batch_size, tell, grid)
        grid.write()  # before its record, which says that this test set is done
        if path is not None:
            append_records(path, [record])
        records.append(record)
        _warn_of_chance(record, len(tests.classes))
    return records


def recorded(path: Path) -> dict[tuple[Any, ...], Record]:
    """What a file holds, by identity; nothing where there is no file."""
    return {identity(r): r for r in read_records(path)} if path.exists() else {}


def _count(tests: TestSuite, missing: Sequence[TestSet]) -> int:
    """How many images there are to test; all sets of corruptions are as long as the clean one."""
    if tests.name == "domains":
        return sum(len(test.read()) for test in missing)
    return len(tests.sets[0].read()) * len(missing) if missing else 0


def _draft(subject: Subject, tests: TestSuite, test: TestSet, batch_size: int, now: Mapping[str, Any]) -> Record:
    """The record before anything is measured."""
    machine = f"{now['system']}, {now['cores']} cores, {now['threads']} threads, {subject.device}, torch {now['torch']}"
    return Record(
        **subject.about,
        data=tests.data,
        suite=tests.name,
        corruption=test.corruption,
        severity=test.severity,
        origin=tests.origin,
        batch=batch_size if subject.about["samples"] else 0,
        n=1,
        correct=0,
        nll=0.0,
        brier=0.0,
        ece=0.0,
        seconds=0.0,
        machine=machine,
        commit=now["commit"],
        command=now["command"],
    )


def _measure_one(
    subject: Subject,
    tests: TestSuite,
    test: TestSet,
    draft: Record,
    temperature: float | None,
    batch_size: int,
    tell: Callable[[int], object],
    grid: SampleGrid,
) -> Record:
    every, labels, seconds = list[Tensor](), list[Tensor](), 0.0
    for i, (x, truth) in enumerate(test.batches(batch_size)):
        started = time.perf_counter()
        stream = generator_for(0, "evaluate", test.corruption, test.severity, i, device=subject.device)
        probabilities = _checked(subject, x, stream, tests, test)
        seconds += time.perf_counter() - started
        every.append(probabilities)
        labels.append(truth)
        if i == 0:
            shown = Images(x.mul(255).round().to(torch.uint8), truth)
            grid.add(test.corruption, test.severity, shown, probabilities)
        tell(len(x))
    p, y = torch.cat(every), torch.cat(labels)
    result = score(p, y)
    record = replace(
        draft,
        n=result.n,
        correct=result.correct,
        nll=result.nll,
        brier=result.brier,
        ece=result.ece,
        bins=result.bins,
        hits=pack_hits(result.right),
        seconds=seconds,
    )
    if temperature is None:
        return record
    cooled = score(scale(p, temperature), y)
    scaled = {"scaled_nll": cooled.nll, "scaled_brier": cooled.brier, "scaled_ece": cooled.ece}
    return replace(record, temperature=temperature, **scaled)


def _checked(subject: Subject, x: Tensor, stream: torch.Generator, tests: TestSuite, test: TestSet) -> Tensor:
    """Probabilities on the CPU, or one line that says what is wrong with them."""
    with torch.inference_mode():
        p = subject.predict(x.to(subject.device), stream).float().cpu()
    _check_classes(p.shape[1], tests)
    if not bool(p.isfinite().all()):
        raise RunFailed(f"the model's output is not finite on {test.corruption} {test.severity or ''}".rstrip())
    return p.clone()


def _check_names(known: tuple[str, ...], tests: TestSuite) -> None:
    """The same classes in the same order, where both sides name theirs."""
    _check_classes(len(known), tests)
    if known != tests.classes and not tests.open_classes:
        a, b = next((a, b) for a, b in zip(known, tests.classes, strict=True) if a != b)
        raise UserError(f"the model calls a class {a!r} that {tests.data} calls {b!r}: they must have the same names")


def _check_classes(known: int, tests: TestSuite) -> None:
    """Of given images the labels tell only how many classes there are at least."""
    wanted = len(tests.classes)
    if known < wanted or (known > wanted and not tests.open_classes):
        raise UserError(f"the model tells {known} classes apart, {tests.data} has {wanted}")


def _temperature(subject: Subject, batch_size: int) -> float | None:
    """Fitted on clean held-out training images; None where there are none."""
    if subject.validation is None:
        return None
    try:
        images = subject.validation()
    except UserError:  # what the run learnt from is not here
        return None
    every = list[Tensor]()
    for i, batch in enumerate(images.batches(index_batches(torch.arange(len(images)), batch_size))):
        stream = generator_for(0, "temperature", i, device=subject.device)
        with torch.inference_mode():
            every.append(subject.predict(batch.floats().to(subject.device), stream).float().cpu())
    return fit_temperature(torch.cat(every).log(), images.labels)


def _warn_of_chance(record: Record, classes: int) -> None:
    """A model that only guesses on clean images was probably not given what it expects."""
    chance = 1 / classes
    bound = chance + 3 * math.sqrt(chance * (1 - chance) / record.n)  # of fewer images it may be all of them
    if record.corruption == CLEAN and record.selection == "given" and record.accuracy <= bound < 1:
        text = (
            f"{record.model} is right on {100 * record.accuracy:.1f} % of the clean images, no better than chance; "
            "it gets floats in [0, 1], B×C×H×W: put any normalisation, resizing or order of classes into the model"
        )
        warnings.warn(text, stacklevel=5)
