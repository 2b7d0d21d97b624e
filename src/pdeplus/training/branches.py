"""A branch: a run that goes on from another run's checkpoint with other settings, in a folder of its own."""

import json
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import tomli_w
import torch

from .._lib.files import read_toml, unused, write_file
from .._lib.registry import users_code
from ..errors import UserError, counted
from .checkpoint import load_checkpoint, save_checkpoint
from .config import Config, config_hash, load_config, setting_changes, to_tables
from .distributed import join
from .loop import out_of_patience
from .precision import FILE as PRECISION
from .run_files import PARENT, begun, check_unused, is_used
from .run_folder import Run, prepare, run_session, score_of
from .session import Checkpoint, Session, Watch, progress_bar, read_progress, restore
from .sums import check_unchanged
from .wise_ft import START, TUNED

KEPT = ("validation", "limit", "optimizer", "keep_every", "freeze_epochs", "wise_ft")
FIXED = ("data.", "model.", "method.name ", "seed ", *(f"train.{name} " for name in KEPT))
"""How the changes begin that a checkpoint cannot go on with: other images, another network, other memories."""


def branch(
    path: str | Path,
    changes: Sequence[str],
    out: str | Path | None = None,
    *,
    trust_code: bool = False,
    progress: bool = False,
    watch: Watch | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> Run:
    """Continue from a run's newest checkpoint with `key=value` changes, in a new folder, and return the finished run.

    The run itself, which may have diverged or be finished, stays as it is. The new folder (by default its name and
    -branch1, 2, …) holds parent.json, which says what it continues and what was changed; its metrics begin with the
    parent's. Without a checkpoint it begins at the start. Data, network, method and seed cannot change. The other
    arguments are those of `train`.
    """
    processes = join()
    parent = processes.on_main(lambda: Run.load(path, trust_code=trust_code))
    checkpoint = processes.on_main(lambda: _checkpoint_of(parent))
    config, told = processes.on_main(lambda: _changed(parent, changes, checkpoint))
    folder = Path(out) if out is not None else processes.on_main(lambda: unused(parent.path, "-branch", is_used))
    processes.on_main(lambda: check_unused(folder))
    before = processes.on_main(lambda: parent.expects if checkpoint else None)
    session, expects = processes.together(lambda: prepare(config, start=checkpoint is None, before=before))
    if checkpoint is not None:
        checkpoint = replace(checkpoint, config=tomli_w.dumps(to_tables(config)).encode())
        _check_fit(checkpoint, session, told)
    step = session.progress.epoch * session.per_epoch + session.progress.batch
    with ExitStack() as stack:
        text = tomli_w.dumps(to_tables(config))
        bring = partial(_bring, parent, folder, checkpoint, step, told)
        processes.on_main(lambda: stack.enter_context(begun(folder, text, bring)))
        processes.on_main(lambda: say(f"{folder} continues {parent.path} {_place(checkpoint)}: {', '.join(told)}"))
        watch = stack.enter_context(progress_bar("training")) if progress and processes.main else watch
        return run_session(session, expects, Run(folder, trust_code=True), checkpoint, watch)


def _checkpoint_of(parent: Run) -> Checkpoint | None:
    """The newest whole checkpoint; refused where the best weights are of a later epoch, which a branch has not seen."""
    checkpoint = load_checkpoint(parent.path / "checkpoints")
    check_unchanged(parent.path, checkpoint)
    scores = [score_of(record) for record in parent.metrics]
    seen = len(read_progress(checkpoint).history) if checkpoint else len(scores)
    if scores and max(scores[:seen], default=-1.0) < max(scores):
        way_out = "resume it without changes, and then with them"
        raise UserError(f"the newest intact checkpoint of {parent.path} is older than its best weights; {way_out}")
    return checkpoint


def _changed(parent: Run, changes: Sequence[str], checkpoint: Checkpoint | None) -> tuple[Config, list[str]]:
    """The parent's config with the changes, and these in words; refuses what a checkpoint cannot go on with."""
    path = parent.path / "config.toml"
    with users_code(parent.trust_code):
        config = load_config(path, changes)
    told = setting_changes(read_toml(path, str(path)), to_tables(config))
    fixed = [change for change in told if change.startswith(FIXED)]
    if not told:
        raise UserError(f"{' '.join(changes)} is what {parent.path} has already; leave it out to resume the run itself")
    if fixed:
        way_out = f"train anew: pdeplus train {path} {' '.join(changes)} --out DIR"
        raise UserError(f"{fixed[0]}: a checkpoint cannot continue with that; {way_out}")
    if checkpoint is None:
        return replace(config, continues=""), told
    done = read_progress(checkpoint).epoch
    if done >= config.train.epochs:
        raise UserError(f"{parent.path} has done {counted(done, 'epoch')}; set train.epochs above that to continue")
    return replace(config, continues=f"{config_hash(parent.config)}@{_step(checkpoint)}"), told


def _check_fit(checkpoint: Checkpoint, session: Session, told: Sequence[str]) -> None:
    """Refuse, before anything is written, changes after which the checkpoint does not fit.

    With batches of another size the epoch that it is in begins again; an average of the weights may begin here.
    """
    if session.averaged is not None and checkpoint.state["averaged"] is None:
        weights = {f"module.{name}": value for name, value in checkpoint.weights.items()}
        checkpoint.state["averaged"] = {"n_averaged": torch.tensor(0), **weights}
    if any(change.startswith("train.batch_size ") for change in told):
        again: dict[str, Any] = {"batch": 0, "images": 0, "seconds": 0.0, "core_seconds": 0.0, "totals": {}}
        checkpoint.state["progress"] = dict(checkpoint.state["progress"]) | again
    try:
        restore(checkpoint, session)
        if out_of_patience(session):
            raise UserError(f"train.patience={session.settings.patience} is used up at the checkpoint;")
    except UserError as error:
        raise UserError(f"{', '.join(told)}: {str(error).rpartition(';')[0]}; undo that change") from error


def _bring(parent: Run, folder: Path, checkpoint: Checkpoint | None, step: int, told: Sequence[str]) -> None:
    """What the branch has of its parent: the checkpoint at its own step, kept weights, and where they are from."""
    about = {"run": str(parent.path.resolve()), "checkpoint": _step(checkpoint), "changes": list(told)}
    write_file(folder / PARENT, json.dumps(about, indent=1).encode())
    if checkpoint is None:
        return
    best = TUNED if (parent.path / TUNED).exists() else "best.safetensors"
    for name, source in (("best.safetensors", best), (START, START), (PRECISION, PRECISION)):
        if (parent.path / source).exists():
            write_file(folder / name, (parent.path / source).read_bytes())
    for epoch, weights in parent.kept.items():
        if epoch <= read_progress(checkpoint).epoch:
            (folder / "epochs").mkdir(exist_ok=True)
            write_file(folder / "epochs" / weights.name, weights.read_bytes())
    save_checkpoint(folder / "checkpoints", step, checkpoint)


def _step(checkpoint: Checkpoint | None) -> str:
    return checkpoint.path.name if checkpoint is not None and checkpoint.path is not None else ""


def _place(checkpoint: Checkpoint | None) -> str:
    """Where in its parent a branch begins, in words."""
    if checkpoint is None:
        return "from the start, as it has no checkpoint"
    return f"after {counted(read_progress(checkpoint).epoch, 'epoch')}, from checkpoint {_step(checkpoint)}"
