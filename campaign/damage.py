"""Damaged files: a file of a run or shared folder is spoilt; what is then read is as it was, or a line says so."""

import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

import pdeplus as pp
from pdeplus.errors import UserError
from pdeplus.reports.inputs import gather
from pdeplus.training.run_folder import Run, resume

from .tally import Tally, judge

SMALL = [
    "model.name=plain_cnn", "model.width=2", "data.name=synthetic", "data.size=8", "train.limit=60", "train.epochs=2",
    "train.batch_size=20", "method.name=erm", "train.ema=0.9", "train.keep_every=1", "train.precision=auto",
]  # fmt: skip
WHEN_FINISHED = (
    "config.toml", "model.json", "metrics.jsonl", "sums.json", "environment.json", "best.safetensors",
    "model.safetensors", "epochs/0001.safetensors", "samples.json", "records.jsonl",
)  # fmt: skip
WHEN_STOPPED = (
    "config.toml", "model.json", "metrics.jsonl", "sums.json", "environment.json", "precision.json",
    "checkpoints/*/weights.safetensors", "checkpoints/*/state.pt", "checkpoints/*/manifest.json",
    "checkpoints/*/config.toml",
)  # fmt: skip
WHEN_SHARED = ("config.toml", "model.json", "metrics.jsonl", "sums.json", "model.safetensors", "records.jsonl")


def spoil(data: bytes, other: bytes, random: random.Random) -> bytes | None:
    """The contents after one mishap of a disk, a copy or an editor; None where the file is gone, `other` if swapped."""
    at = random.randrange(max(len(data), 1))
    kinds: list[Callable[[], bytes | None]] = [
        lambda: data[:at] + bytes([data[at] ^ 1 << random.randrange(8)]) + data[at + 1 :] if data else b"",
        lambda: data[:at],
        lambda: data[:at] + bytes(len(data) - at),
        lambda: data[:at] + random.randbytes(min(64, len(data) - at)) + data[at + 64 :],
        lambda: data + data[at:],
        lambda: b"",
        lambda: None,
        lambda: other,
    ]
    return random.choices(kinds, (6, 2, 2, 2, 1, 1, 1, 2))[0]()


class Damages:
    """A finished run and what it answers, the same run stopped before its end, and one with another seed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.whole = pp.train(pp.load_config("demo", SMALL), folder / "whole").path
        pp.evaluate(self.whole, "clean", limit=20)
        self.other = pp.train(pp.load_config("demo", [*SMALL, "seed=1"]), folder / "other").path
        self.shared, self.other_shared = (
            pp.save_pretrained(run, folder / f"shared-{run.name}", onnx=False) for run in (self.whole, self.other)
        )
        self.images = torch.rand(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))
        self.answers = self.ask(self.whole)
        self.ended = self.result(self.whole)
        self.shown = self.load(self.shared)

    def ask(self, folder: Path) -> list[object]:
        """Everything that is read of a finished run but what only informs."""
        run = Run.load(folder)
        networks = [run.network("last"), run.network("validation"), *map(run.load_weights, run.kept.values())]
        with torch.no_grad():
            logits = [network(self.images).numpy().tobytes() for network in networks]
        records = gather(folder).records
        return [logits, run.expects, run.metrics, run.weights("validation")[0], records]

    def load(self, folder: Path) -> list[object]:
        """What a shared folder's network answers, and what was measured of it."""
        with torch.no_grad():
            network = pp.from_pretrained(folder)
            return [network(self.images).numpy().tobytes(), network.classes, gather(folder).records]

    def result(self, folder: Path) -> list[bytes]:
        """What a run ends in, and its settings; of config.toml two keys, which no result depends on, may differ."""
        names = ("model.safetensors", "best.safetensors", "epochs/0001.safetensors", "model.json")
        config = Run.load(folder).config
        same = replace(config, name="", train=replace(config.train, checkpoint_seconds=1))
        return [*((folder / name).read_bytes() for name in names), repr(same).encode()]

    def finished(self, tally: Tally, random: random.Random) -> None:
        """Spoil a file of the finished run and read it."""
        folder, name = self._spoilt(random, WHEN_FINISHED)
        self._add(tally, f"damaged {name}, read", folder, lambda: self.ask(folder), self.answers)

    def of_a_shared_folder(self, tally: Tally, random: random.Random) -> None:
        """Spoil a file of the shared folder and load it."""
        folder, name = self._spoilt(random, WHEN_SHARED, self.shared, self.other_shared)
        self._add(tally, f"damaged {name}, shared", folder, lambda: self.load(folder), self.shown)

    def stopped(self, tally: Tally, random: random.Random) -> None:
        """Spoil a file of the run before its end and go on."""
        folder, name = self._spoilt(random, WHEN_STOPPED)
        (folder / "model.safetensors").unlink()

        def go_on() -> list[bytes]:
            if not (folder / "config.toml").exists():
                raise UserError("there is no run any more")
            return self.result(resume(folder).path)

        self._add(tally, f"damaged {name}, resumed", folder, go_on, self.ended)

    def _add(self, tally: Tally, what: str, folder: Path, call: Callable[[], object], wanted: object) -> None:
        """Count what becomes of a call on a spoilt folder, which is then removed."""
        outcome, answer = judge(call)
        if outcome in ("read", "warned"):
            outcome = "changed" if answer != wanted else "unchanged" if outcome == "read" else "warned"
        tally.add(what, outcome, str(answer)[:300])
        shutil.rmtree(folder)

    def _spoilt(
        self, random: random.Random, names: tuple[str, ...], whole: Path | None = None, another: Path | None = None
    ) -> tuple[Path, str]:
        folder = shutil.copytree(whole or self.whole, self.folder / "spoilt")
        name = random.choice(names)
        path = random.choice(sorted(folder.glob(name)))
        # another run's records would be read as what they are
        other = (another or self.other) / path.relative_to(folder)
        data = spoil(path.read_bytes(), other.read_bytes() if other.exists() else b"", random)
        if data is None:
            path.unlink()
        else:
            path.write_bytes(data)
        return folder, name.replace("*/", "")


def damage(tally: Tally, damages: int, number: int, folder: Path) -> None:
    """So many damaged files, those of finished and stopped runs and of shared folders in turn."""
    trials, chance = Damages(folder), random.Random(number)
    kinds = (trials.finished, trials.stopped, trials.of_a_shared_folder)
    for i in range(damages):
        kinds[i % 3](tally, chance)
