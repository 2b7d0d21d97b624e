"""What training writes into a run folder, but for the checkpoints. Of several processes the main one alone does."""

import json
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import nn

from ._checkpoint import encode_weights, make_folder, write_file
from ._environment import stamp
from ._errors import UserError
from ._lock import FILE as LOCK
from ._lock import locked
from ._session import Metrics, Progress

LEFT_BEHIND = (LOCK, "config.toml.tmp")


def check_unused(folder: Path) -> None:
    """Refuse a folder that holds anything but what a process leaves that is killed before it has begun."""
    if folder.exists() and (not folder.is_dir() or any(p.name not in LEFT_BEHIND for p in folder.iterdir())):
        begun = (folder / "config.toml").exists()
        way_out = f"go on with --resume {folder}, or choose another --out" if begun else "choose another --out"
        raise UserError(f"{folder} already holds {'a run' if begun else 'files'}; {way_out}")


@contextmanager
def begun(folder: Path, config: str) -> Generator[None]:
    """Within it the folder is there, holds the config and is locked."""
    make_folder(folder)
    with locked(folder):
        check_unused(folder)  # another process may have been a moment faster
        try:
            write_file(folder / "config.toml", config.encode())
        except UserError:
            (folder / LOCK).unlink()
            folder.rmdir()
            raise
        yield


def begin_files(folder: Path, expects: dict[str, Any], history: Sequence[Metrics]) -> None:
    """This session's environment, what the network expects if that is not written yet, and the epochs done so far."""
    stamp(folder)
    if not (folder / "model.json").exists():
        write_file(folder / "model.json", json.dumps(expects, indent=1).encode())
    write_metrics(folder, history)


def score_of(record: Metrics) -> float:
    """What an epoch is selected by: the mean of its validation accuracies, clean and shifted where there are both."""
    clean = float(record["validation/accuracy"])
    return (clean + float(record.get("validation/shifted_accuracy", clean))) / 2


def write_metrics(folder: Path, history: Sequence[Metrics]) -> None:
    """One line per epoch."""
    lines = "".join(json.dumps(record) + "\n" for record in history)
    write_file(folder / "metrics.jsonl", lines.encode())


def write_epoch(
    folder: Path, keep_every: int, show: Callable[[Metrics], None], progress: Progress, network: nn.Module
) -> None:
    """The epoch's record, and its weights where they are the best so far or to be kept."""
    write_metrics(folder, progress.history)
    scores, epoch = [score_of(record) for record in progress.history], len(progress.history)
    if scores[-1] == max(scores):  # of equals the later, which has learnt longer
        write_weights(folder / "best.safetensors", network)
    if keep_every and epoch % keep_every == 0:
        write_weights(folder / "epochs" / f"{epoch:04d}.safetensors", network)
    show(progress.history[-1])


def write_weights(path: Path, network: nn.Module) -> None:
    """The network's weights, in a folder that is made if need be."""
    make_folder(path.parent)
    write_file(path, encode_weights(network.state_dict()))


@contextmanager
def tensorboard(folder: Path) -> Generator[Callable[[Metrics], None]]:
    """Where TensorBoard is installed, what writes an epoch's record to it; else what does nothing."""
    try:
        from torch.utils.tensorboard.writer import SummaryWriter
    except ImportError:
        yield lambda record: None
        return
    with SummaryWriter(folder / "tensorboard") as writer:

        def write(record: Metrics) -> None:
            for name, value in record.items():
                writer.add_scalar(name, value, record["epoch"])  # type: ignore[reportUnknownMemberType]

        yield write
