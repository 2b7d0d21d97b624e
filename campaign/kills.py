"""Kills: a command is killed at random moments and called again until it is done; it must end as if it never was."""

import hashlib
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.support.forkserver import ERRORS, SHOWN, start

from pdeplus._lib.files import TEMPORARY
from pdeplus.evaluation.records import read_records, to_json

from .tally import Tally

TRAIN = ["data.name=synthetic", "data.size=16", "train.limit=120", "train.epochs=2", "train.batch_size=20"]
TRAIN += ["train.checkpoint_seconds=0", "model.name=plain_cnn", "model.width=4"]
STATES = {
    "pde_plus, ema": ["train.ema=0.9", "train.warmup=0.5"],
    "pde_plus, all of the batch from the start": [
        "method.share=1",
        "method.diffuse_after=0",
        "method.augmentor.name=random_erasing",
        "method.augmentor.fill=mean",
    ],
    "pde_plus_stages": ["method.name=pde_plus_stages"],
    "pde_plus_directional": ["method.name=pde_plus_directional"],
    "adamw, split": ["train.optimizer=adamw", "train.batch_norm=split", "method.name=pde_plus_stages"],
    "muon, alternating flips": ["train.optimizer=muon", "train.flips=alternating", "method.name=erm"],
    "recalibrate, every epoch kept": ["train.batch_norm=recalibrate", "train.keep_every=1", "method.name=mixup"],
    "clip_norm, rlat": ["train.clip_norm=1", "method.name=rlat"],
    "fine-tuning": ["train.freeze_epochs=1", "train.backbone_lr=0.01", "train.wise_ft=true", "train.accumulate=2"],
    "patience, filter_norm": ["train.patience=1", "train.filter_norm=true", "train.bias_lr=0.1", "method.name=erm"],
    "precision=auto": ["train.precision=auto", "method.name=augmix"],
    "precision=bf16": ["train.precision=bf16", "model.width=16", "train.optimizer=muon"],
    "progressive, accumulate": ["train.progressive=0.5", "train.accumulate=2", "train.ema=0.9", "method.name=erm"],
}
"""Options whose state a checkpoint must hold."""
HALF = (".tmp", ".part")
"""How the names of files end that are not whole."""
EXPERIMENT = """
title = "Two rows"
outcome = "scores"
expect = "nothing"
preset = "demo"
rows = ["erm", "augmix"]
"""


@dataclass(frozen=True)
class Case:
    """A command, how it goes on after a kill, and what it ends in."""

    name: str
    begin: list[str]
    again: Callable[[Path], list[str]]
    result: Callable[[Path], object]


def hashes(folder: Path, *patterns: str) -> dict[str, str]:
    """The files that match, by their hashes."""
    files = sorted(path for pattern in patterns for path in folder.glob(pattern) if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def records(folder: Path) -> list[str]:
    """What was measured of runs below a folder, without the time it took and the source's commit."""
    free: dict[str, Any] = {
        "seconds": 0.0,
        "train_seconds": None,
        "train_core_seconds": None,
        "command": "",
        "commit": None,
    }
    files = sorted(folder.rglob("records.jsonl"))
    return sorted({to_json(replace(record, **free)) for file in files for record in read_records(file)})


def listing(place: Path) -> set[str]:
    """The files below a folder but for locks, logs, and checkpoints, of which one more or less is no matter."""
    files = {path.relative_to(place) for path in place.rglob("*") if path.is_file()}
    free = ("checkpoints", "tensorboard", ERRORS, SHOWN, "lock")
    return {str(path) for path in files if not {*path.parts} & {*free} and path.suffix != ".lock"}


def cases(folder: Path) -> list[Case]:
    """The commands; those behind training work on a run that is made once."""
    run, weights = folder / "run", ("run/*.safetensors", "run/epochs/*")

    def same(words: list[str]) -> Callable[[Path], list[str]]:
        return lambda place: words

    def resumed(words: list[str]) -> Callable[[Path], list[str]]:
        return lambda place: ["train", "--resume", "run"] if (place / "run" / "config.toml").exists() else words

    found = list[Case]()
    for name, options in STATES.items():
        words = ["train", "demo", *TRAIN, *options, "--out", "run"]
        found.append(Case(f"train, {name}", words, resumed(words), lambda place: hashes(place, *weights)))
    words = ["train", "--resume", str(run), "train.epochs=4", "train.lr=0.02", "--out", "run"]
    found.append(Case("train, a branch", words, resumed(words), lambda place: hashes(place, *weights)))
    evaluate = ["evaluate", str(run), "--severity", "1", "--limit", "40", "--out", "tested"]
    corrupt = ["corrupt", "synthetic", "size=16", "--out", "c", "--corruption", "fog", "contrast", "--layout"]
    report = ["report", str(run), "--out", "page.html"]
    export = ["export", str(run), "--format", "torch", "--out", "m.pt2", "--force"]
    experiment = folder / "experiment.toml"
    experiment.write_text(EXPERIMENT)
    reproduce = ["reproduce", str(experiment), "--size", "smoke", "--out", "o", "--jobs", "1", "--seeds", "1"]
    small = [word for word in TRAIN if not word.startswith("train.checkpoint")]
    sweep = ["sweep", "demo", *small, "--methods", "erm", "pde_plus", "--limit", "20", "--jobs", "1", "--out", "o"]
    simple: dict[str, tuple[list[str], Callable[[Path], object]]] = {
        "evaluate": (evaluate, lambda place: (records(place), hashes(place, "tested/samples.json"))),
        "corrupt, arrays": ([*corrupt, "npy"], lambda place: hashes(place, "c/*.npy")),
        "corrupt, pictures": ([*corrupt, "folders"], lambda place: hashes(place, "c/*/*/*/*.png")),
        "report": (report, lambda place: hashes(place, "page.html")),
        "export": (export, lambda place: hashes(place, "m.pt2")),
        "reproduce": (reproduce, lambda place: (hashes(place, "o/smoke/runs/*/*.safetensors"), records(place))),
        "sweep": (sweep, lambda place: (hashes(place, "o/own/runs/*/*.safetensors"), records(place))),
    }
    return found + [Case(name, words, same(words), result) for name, (words, result) in simple.items()]


def kill(tally: Tally, kills: int, number: int, folder: Path, only: str = "") -> None:
    """So many kills in all, over all commands in turn."""
    chance = random.Random(number)
    first = ["train", "demo", *TRAIN, "method.name=erm", "--out", "run"]
    _run(first, folder)
    _run(["evaluate", "run", "--suite", "clean"], folder)
    chosen = [case for case in cases(folder) if only in case.name]
    expected = dict[str, tuple[object, float]]()
    done = trial = 0
    while done < kills and chosen:
        case = chosen[trial % len(chosen)]
        trial += 1
        if case.name not in expected:
            began = time.monotonic()
            place = _new(folder, f"{case.name}-whole")
            try:
                _run(case.begin, place)
            except AssertionError as error:
                tally.add(f"killed {case.name}", "lost", f"not even begun: {error}")
                chosen.remove(case)
                continue
            expected[case.name] = (case.result(place), listing(place)), time.monotonic() - began
        done += _trial(tally, case, *expected[case.name], chance, _new(folder, f"{case.name}-{trial}"), kills - done)


def _trial(
    tally: Tally, case: Case, wanted: object, seconds: float, chance: random.Random, place: Path, most: int
) -> int:
    """Kill a command once to three times, let it end, and compare; returns the number of kills, which a row counts.

    A command that ends before its kill is compared as well, and not counted unless it ends badly.
    """
    killed, words = 0, case.begin
    for _ in range(min(chance.randint(1, 3), most)):
        process = start(*words, cwd=place)
        process.join(chance.uniform(0, seconds))
        ended = process.exitcode is not None
        process.kill()
        process.join()
        words = case.again(place)
        if ended:
            break
        killed += 1
    outcome, about = _compared(case, wanted, words, place)
    for _ in range(killed if outcome == "unchanged" else max(killed, 1)):
        tally.add(f"killed {case.name}", outcome, about)
    return killed


def _compared(case: Case, wanted: object, words: list[str], place: Path) -> tuple[str, str]:
    """Let a command end, and say whether it ends in what it should and leaves nothing else."""
    try:
        _run(words, place, may_be_done=True)
        found = case.result(place), listing(place)
    except (OSError, AssertionError) as error:
        return "lost", str(error)
    left = [path.name for path in place.rglob("*") if path.name.startswith(TEMPORARY) or path.suffix in HALF]
    if left:
        return "lost", f"it left {left} behind"
    return ("unchanged", "") if found == wanted else ("changed", _differing(found, wanted))


def _differing(found: object, wanted: object) -> str:
    """What is other than it should be, in a word or two."""
    if isinstance(found, dict) and isinstance(wanted, dict):
        return str([key for key in {**found, **wanted} if found.get(key) != wanted.get(key)])
    if isinstance(found, tuple) and isinstance(wanted, tuple):
        return "; ".join(_differing(a, b) for a, b in zip(found, wanted, strict=True) if a != b)
    return str({*found} ^ {*wanted})[:300] if isinstance(found, set | list) else f"{found}"


def _new(folder: Path, name: str) -> Path:
    place = folder / name.replace(" ", "-").replace(",", "")
    place.mkdir()
    return place


def _run(words: list[str], place: Path, may_be_done: bool = False) -> None:
    """A command to its end, which must be a good one."""
    process = start(*words, cwd=place)
    process.join(900)
    shown = (place / ERRORS).read_text() if (place / ERRORS).exists() else ""
    if may_be_done and process.exitcode == 2 and "is finished" in shown:
        return
    assert process.exitcode == 0, f"{' '.join(words[:2])} ended with {process.exitcode}: {shown[-300:]}"
