"""The files of a run folder, as training writes them: config, environment, metrics, weights.

Of several processes the main one alone writes.
"""

import json
import shutil
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from torch import nn

from .._lib.environment import stamp
from .._lib.files import LOCK, TEMPORARY, encode_weights, locked, make_folder, sum_of, write_file
from ..errors import UserError
from .config import Train
from .precision import FILE as PRECISION
from .session import Metrics, Progress, score_of
from .sums import Expects, write_sums
from .wise_ft import START

LAST = "model.safetensors"
"""The weights of the last epoch: the last file that a run writes."""
PARENT = "parent.json"
"""Which run a branch continues, from which checkpoint, and what was changed: the first file of a branch."""
LEFT_BEHIND = (LOCK, "config.toml.tmp")
"""What a process leaves that is killed before it has begun, besides temporary files."""
BROUGHT = (PARENT, "best.safetensors", START, PRECISION, "epochs", "checkpoints")
"""What a branch has of its parent."""


def check_unused(folder: Path) -> None:
    """Refuse a folder that holds anything but what a process leaves that is killed before it has begun."""
    if is_used(folder):
        begun = (folder / "config.toml").exists()
        way_out = f"continue it with --resume {folder}, start over with --force, or" if begun else ""
        way_out = f"{way_out} choose another --out".strip()
        raise UserError(f"{folder} already holds {'a run' if begun else 'files'}; {way_out}")


def is_used(folder: Path) -> bool:
    """Whether a name is taken; not so by what a process leaves that is killed before it has begun.

    A branch has begun when its config is there, which comes after all that it brings from its parent.
    """
    if not folder.is_dir() or (folder / "config.toml").exists():
        return folder.exists()
    left = LEFT_BEHIND + (BROUGHT if (folder / PARENT).is_file() else ())
    return any(path.name not in left and not path.name.startswith(TEMPORARY) for path in folder.iterdir())


@contextmanager
def begun(folder: Path, config: str, bring: Callable[[], object] = lambda: None) -> Generator[None]:
    """Within it the folder is there, holds the config, which comes after what `bring` writes, and is locked."""
    make_folder(folder)
    with locked(folder):
        check_unused(folder)  # another process may have been a moment faster
        for name in BROUGHT:  # by a branch that was killed
            shutil.rmtree(folder / name) if (folder / name).is_dir() else (folder / name).unlink(missing_ok=True)
        try:
            bring()
            write_file(folder / "config.toml", config.encode())
        except UserError:
            shutil.rmtree(folder)
            raise
        yield


def begin_files(folder: Path, expects: Expects, history: Sequence[Metrics]) -> None:
    """This session's environment, what the network expects, what it is trained with, and the epochs done so far."""
    stamp(folder)
    content = {key: value for key, value in asdict(expects).items() if value not in (None, "")}
    write_file(folder / "model.json", json.dumps(content, indent=1).encode())
    write_sums(folder, *_there(folder, PRECISION))
    write_metrics(folder, history)


def finish_files(folder: Path, network: nn.Module) -> None:
    """Checksums of what will not change any more, then the last weights, by which the run is finished."""
    last = encode_weights(network.state_dict())
    names = _there(folder, "model.json", "metrics.jsonl", PRECISION, "*.safetensors", "epochs/*.safetensors")
    write_sums(folder, *names, more={LAST: sum_of(last)})
    write_file(folder / LAST, last)


def _there(folder: Path, *patterns: str) -> list[str]:
    """The files of a folder that match, by their names in it."""
    return [path.relative_to(folder).as_posix() for pattern in patterns for path in sorted(folder.glob(pattern))]


def write_metrics(folder: Path, history: Sequence[Metrics]) -> None:
    """One line per epoch."""
    lines = "".join(json.dumps(record) + "\n" for record in history)
    write_file(folder / "metrics.jsonl", lines.encode())


def write_epoch(
    folder: Path, settings: Train, show: Callable[[Metrics], None] | None, progress: Progress, network: nn.Module
) -> None:
    """The epoch's record, and its weights where they are the best so far or to be kept."""
    write_metrics(folder, progress.history)
    scores, epoch = [score_of(record) for record in progress.history], len(progress.history)
    if scores[-1] == max(scores):  # of equals the later, which has learnt longer
        write_weights(folder / "best.safetensors", network)
    if settings.wise_ft and epoch == settings.freeze_epochs:
        write_weights(folder / START, network)
    if settings.keep_every and epoch % settings.keep_every == 0:
        write_weights(folder / "epochs" / f"{epoch:04d}.safetensors", network)
    if show is not None:
        show(progress.history[-1])


def write_weights(path: Path, network: nn.Module) -> None:
    """The network's weights, in a folder that is made if need be."""
    make_folder(path.parent)
    write_file(path, encode_weights(network.state_dict()))
