"""The training loop: one step serves every method, one `fit` serves every run.

Behind it: what a run holds in memory, where it stands, how both go into a checkpoint and back, the progress bar.
"""

import math
import time
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils._pytree import tree_map_only
from tqdm import tqdm

from .._lib.seeds import derive, generator_for
from ..core.batch_norm import recalibrate
from ..core.network import SAFE_ROW, compile_network, memory_layout, step_by_indexing
from ..data.base import Batch, Images, Split, epoch_batches, index_batches
from ..errors import RunFailed, UserError
from ..methods.base import Method, Objective
from .config import Train
from .distributed import Engine, Processes, synchronised
from .optimizers import build_optimizers

RECALIBRATION_IMAGES = 2048
WHAT_TO_TRY = (
    "try a lower train.lr (or method.diffusion_lr), train.warmup=1 or train.clip_norm=1; "
    "the last checkpoint is from before this"
)
Metrics = dict[str, Any]
LEAST_SHARE = 2
"""Images that each process needs of a batch: BatchNorm cannot normalise one."""
REFRESH_SECONDS = 0.5
"""Time between two updates of the progress bar's text."""


def train_step(
    model: nn.Module,
    method: Method,
    batch: Batch,
    optimizers: Mapping[str, Optimizer],
    engine: Engine,
    clip_norm: float = 0.0,
    weight: float = 1.0,
) -> dict[str, Tensor]:
    """One step of any method: for each of its objectives zero, backward, step.

    Returns the losses' terms and the metrics, still on the device: nothing here waits for it but the
    check that the loss is finite. Of several processes each steps with the mean of all their gradients.

    Args:
        model: prepared by the method.
        method: gives the objectives.
        batch: this process's images.
        optimizers: by the names that objectives use.
        engine: where the work is done.
        clip_norm: greatest norm of an update's gradient; 0 for no clipping.
        weight: of this process's loss, 1 on average over the processes.
    """
    logs = dict[str, Tensor]()
    goals = method.objectives(model, batch)
    while True:
        with engine.forward():
            goal = next(goals, None)
        if goal is None:
            return logs
        _check_finite(goal, engine.processes)
        chosen = [optimizers[name] for name in goal.update]
        parameters = [p for optimizer in chosen for p in parameters_of(optimizer)]
        for optimizer in chosen:
            optimizer.zero_grad()
        engine.backward(goal.loss * weight, inputs=parameters if goal.reach == "updated" else None)
        engine.processes.average_gradients(parameters)
        engine.step(chosen, clip_norm)
        logs |= {f"loss/{name}": part.detach() for name, part in goal.parts.items()} | dict(goal.metrics)


def parameters_of(optimizer: Optimizer) -> list[nn.Parameter]:
    """The trainable parameters an optimiser steps on."""
    return [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]


def _check_finite(goal: Objective, processes: Processes) -> None:
    """Raise in every process if the loss of any is not finite."""
    finite = bool(torch.isfinite(goal.loss))
    if not any(processes.any(not finite)):
        return
    bad = next((name for name, part in goal.parts.items() if not bool(torch.isfinite(part))), "total")
    mine = None if finite else f"the {bad} loss is {float(goal.parts.get(bad, goal.loss).detach())}; {WHAT_TO_TRY}"
    raise FloatingPointError(processes.first(mine))


@dataclass
class Progress:
    """Where a run stands; saved whole in every checkpoint."""

    epoch: int = 0
    batch: int = 0
    """The next batch of that epoch."""
    seconds: float = 0.0
    """Training time of that epoch so far."""
    totals: dict[str, Tensor] = field(default_factory=dict[str, Tensor])
    """Sums of this epoch's logs, each weighted by its batch's images."""
    images: int = 0
    """Images seen in that epoch so far."""
    history: list[Metrics] = field(default_factory=list[Metrics])
    """One record per finished epoch."""

    def add(self, logs: Mapping[str, Tensor], images: int, seconds: float) -> None:
        """Count one step in."""
        self.batch, self.images, self.seconds = self.batch + 1, self.images + images, self.seconds + seconds
        for name, value in logs.items():
            self.totals[name] = self.totals.get(name, torch.zeros_like(value)) + value * images

    def close_epoch(self, record: Metrics) -> None:
        """File the epoch's record and start the next."""
        self.history.append(record)
        self.epoch, self.batch, self.seconds, self.images, self.totals = self.epoch + 1, 0, 0.0, 0, {}


@dataclass
class Session:
    """What a run holds in memory."""

    model: nn.Module
    method: Method
    split: Split
    settings: Train
    seed: int
    engine: Engine
    layout: torch.memory_format
    optimizers: Mapping[str, Optimizer]
    peaks: Mapping[str, list[float]]
    """Peak learning rate of each optimiser's groups."""
    averaged: AveragedModel | None
    progress: Progress

    @property
    def network(self) -> nn.Module:
        """What the run is after: the model, or its average."""
        return self.model if self.averaged is None else self.averaged.module

    @property
    def processes(self) -> Processes:
        """Who trains."""
        return self.engine.processes

    @cached_property
    def per_epoch(self) -> int:
        """Steps of an epoch."""
        return len(self.batches(0))

    def batches(self, epoch: int) -> list[Tensor]:
        """Index batches of one epoch, of which every process takes its share."""
        n, size, reshuffle = len(self.split.train), self.settings.batch_size, self.settings.reshuffle
        batches = epoch_batches(n, batch_size=size, epoch=epoch, seed=self.seed, reshuffle=reshuffle)
        if self.processes.world > 1 and len(batches) > 1 and len(batches[-1]) < LEAST_SHARE * self.processes.world:
            batches[-2:] = [torch.cat(batches[-2:])]
        return batches

    def on_device(self, images: Images) -> tuple[Tensor, Tensor]:
        """Float images in the run's layout, and labels."""
        device = self.engine.device
        return images.floats().to(device, memory_format=self.layout), images.labels.to(device)


@dataclass(frozen=True)
class Checkpoint:
    """All that is needed to go on as if nothing had happened."""

    weights: dict[str, Tensor]
    state: dict[str, Any]


Watch = Callable[[int, int, Progress, Mapping[str, Tensor]], None]
"""Called after each step with its number, the number of all steps, the progress and the step's logs."""


def open_session(model: nn.Module, method: Method, split: Split, settings: Train, seed: int) -> Session:
    """Put the prepared model on its device and make its optimisers.

    The seed is that of the order of images, of the augmentations and of the noise.
    """
    engine = Engine(settings.precision)
    check_shares(engine.processes.world, settings.batch_size, len(split.train))
    if settings.sync_batch_norm and engine.processes.world > 1:
        model = synchronised(model, engine.processes)
    model.to(engine.device)
    layout = memory_layout(model, settings.channels_last, engine.device)
    row = split.train.take(torch.arange(1)).images.shape[-1]
    if layout is torch.channels_last and engine.device.type == "cpu" and row > SAFE_ROW:
        step_by_indexing(model)
    model.to(memory_format=layout)  # type: ignore[reportCallIssue]
    optimizers = build_optimizers(method, model, settings)
    peaks = {name: [float(group["lr"]) for group in o.param_groups] for name, o in optimizers.items()}
    averaged = None
    if settings.ema:
        averaged = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(settings.ema))  # type: ignore[reportUnknownArgumentType]
    if settings.compile and not method.differentiates_twice:
        compile_network(model)
    elif settings.compile and engine.processes.main:
        reason = "the method differentiates twice, which torch.compile cannot follow"
        warnings.warn(f"train.compile=true is left out: {reason}", stacklevel=2)
    return Session(model, method, split, settings, seed, engine, layout, optimizers, peaks, averaged, Progress())


def check_shares(world: int, batch_size: int, images: int) -> None:
    """Refuse more processes than a batch can be shared out among."""
    least = LEAST_SHARE * world
    if world > 1 and min(batch_size, images) < least:
        what = f"train.batch_size={batch_size}" if batch_size < least else f"{images} training images"
        raise UserError(f"{what}: {world} processes share each batch and need {least} or more; start fewer processes")


def fit(
    session: Session,
    *,
    resume: Checkpoint | None,
    save: Callable[[int, Checkpoint], None],
    on_step: Watch,
    on_epoch: Callable[[Progress, nn.Module], None],
    stop: Callable[[], bool] = lambda: False,
) -> nn.Module | None:
    """Train and return the trained network (the average, if settings.ema); None where it was stopped before its end.

    The result depends on what the session was opened with alone: a run resumed from any of its checkpoints ends
    with the same bits. All randomness comes from (seed, position) and, of several processes, from their number and
    the process's own; torch's global state is put back. Weights are the same in all processes after every step.

    Args:
        session: freshly opened.
        resume: a checkpoint to go on from.
        save: takes a step number and a checkpoint, at each epoch's end and every checkpoint_seconds.
        on_step: called after each step, as `save` and `on_epoch` are, in the main process alone.
        on_epoch: called after each epoch, before its checkpoint, with the progress and the network.
        stop: asked after each step; once it says yes in any process, a checkpoint is saved and training ends in all.
    """
    if resume is not None:
        restore(resume, session)
    processes, progress = session.processes, session.progress
    processes.copy_main([*session.model.parameters(), *session.model.buffers()])
    with torch.random.fork_rng():
        while progress.epoch < session.settings.epochs:
            if not run_epoch(session, save, on_step, stop):
                return None
            check_weights(session)
            finish_epoch(session)
            processes.on_main(lambda: on_epoch(progress, session.network))
            processes.on_main(lambda: save(progress.epoch * session.per_epoch, capture(session)))
            if any(processes.any(stop())) and progress.epoch < session.settings.epochs:
                return None
    return session.network


def run_epoch(
    session: Session, save: Callable[[int, Checkpoint], None], on_step: Watch, stop: Callable[[], bool]
) -> bool:
    """Train on what is left of an epoch. False where it was stopped in its middle, with a checkpoint of that step."""
    settings, processes, progress = session.settings, session.processes, session.progress
    batches, per_epoch = session.batches(progress.epoch), session.per_epoch
    saved_at = time.monotonic()
    session.model.train()
    coming = session.split.train.batches([processes.share(batch) for batch in batches[progress.batch :]])
    while progress.batch < len(batches):
        step, steps = progress.epoch * per_epoch + progress.batch, settings.epochs * per_epoch
        logs = run_step(session, coming, len(batches[progress.batch]), step, steps)
        if processes.main:
            on_step(step, steps, progress, logs)
        due, stopped = processes.any(time.monotonic() - saved_at >= settings.checkpoint_seconds, stop())
        if progress.batch < len(batches) and (due or stopped):
            check_weights(session)
            processes.on_main(lambda step=step: save(step + 1, capture(session)))
            saved_at = time.monotonic()
            if stopped:
                return False
    return True


def run_step(session: Session, coming: Iterator[Images], size: int, step: int, steps: int) -> dict[str, Tensor]:
    """Train on the next batch, with the learning rates and the random streams of that step.

    Of the batch, which has `size` images, this process's share is the next of `coming`.
    """
    started, settings, processes = time.monotonic(), session.settings, session.processes
    torch.manual_seed(derive(session.seed, "torch", step, *processes.stream))  # for dropout and the like
    warmup = round(settings.warmup * session.per_epoch)
    set_learning_rates(session.optimizers, session.peaks, learning_rate_factor(step, steps, warmup))
    images, labels = session.on_device(next(coming))
    stream = generator_for(session.seed, "step", step, *processes.stream, device=session.engine.device)
    batch, weight = Batch(images, labels, session.split.transform, stream), len(labels) * processes.world / size
    tools = session.optimizers, session.engine, settings.clip_norm
    try:
        logs = train_step(session.model, session.method, batch, *tools, weight)
    except FloatingPointError as error:
        raise RunFailed(f"step {step} (epoch {session.progress.epoch + 1}): {error}") from error
    processes.average([buffer for buffer in session.model.buffers() if buffer.is_floating_point()])
    if session.averaged is not None:
        session.averaged.update_parameters(session.model)
    if processes.world > 1:  # the means over the images of all processes
        means = processes.sum(torch.stack([value.float() for value in logs.values()]) * (weight / processes.world))
        logs = dict(zip(logs, means, strict=True))
    session.progress.add(logs, size, time.monotonic() - started)
    return logs


def learning_rate_factor(step: int, steps: int, warmup: int) -> float:
    """Linear from 0 to 1 over the warm-up, then half a cosine down to 0."""
    if step < warmup:
        return (step + 1) / (warmup + 1)
    return 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(steps - warmup, 1)))


def set_learning_rates(optimizers: Mapping[str, Optimizer], peaks: Mapping[str, list[float]], factor: float) -> None:
    """Set every group's rate to factor × its peak, but those whose schedule is constant."""
    for name, optimizer in optimizers.items():
        for group, peak in zip(optimizer.param_groups, peaks[name], strict=True):
            group["lr"] = peak if group.get("schedule") == "constant" else factor * peak


def finish_epoch(session: Session) -> None:
    """File the epoch's record, with accuracy on held-out images and on shifted ones where there are any."""
    progress, train = session.progress, session.split.train
    size = max(session.settings.batch_size, 2)
    if session.settings.batch_norm == "recalibrate":
        sample = epoch_batches(min(RECALIBRATION_IMAGES, len(train)), batch_size=size, epoch=0, seed=session.seed)
        recalibrate(session.network, (session.on_device(part)[0] for part in train.batches(sample)))
    record: Metrics = {"epoch": progress.epoch + 1}
    record |= {f"lr/{name}": float(o.param_groups[0]["lr"]) for name, o in session.optimizers.items()}
    record |= {name: float(total) / progress.images for name, total in progress.totals.items()}
    record["validation/accuracy"], record["validation/nll"] = _test(session, session.split.validation, "validate")
    if session.split.shifted is not None:
        record["validation/shifted_accuracy"], _ = _test(session, session.split.shifted, "validate shifted")
    if not math.isfinite(record["validation/nll"]):
        raise RunFailed(f"epoch {progress.epoch + 1}: the validation loss is not finite; {WHAT_TO_TRY}")
    record |= {"seconds": progress.seconds, "images_per_second": progress.images / max(progress.seconds, 1e-9)}
    progress.close_epoch(record)


def _test(session: Session, images: Images, purpose: str) -> tuple[float, float]:
    """Accuracy and negative log-likelihood, predicted as the method predicts at test; processes take turns."""
    sums, processes = torch.zeros(2, dtype=torch.float64), session.processes
    parts = index_batches(torch.arange(len(images)), session.settings.batch_size)
    turns = range(processes.rank, len(parts), processes.world)
    for i, part in zip(turns, images.batches([parts[i] for i in turns]), strict=True):
        x, labels = session.on_device(part)
        stream = generator_for(session.seed, purpose, i, device=x.device)
        probabilities = session.method.predict(session.network, x, stream)
        sums[0] += float((probabilities.argmax(-1) == labels).sum())
        sums[1] -= float(probabilities.float().gather(1, labels[:, None]).clamp(min=1e-12).log().sum())
    accuracy, nll = processes.sum(sums.to(processes.device)) / len(images)
    return float(accuracy), float(nll)


def check_weights(session: Session) -> None:
    """Refuse to save or validate weights that are not finite."""
    for name, parameter in session.model.named_parameters():
        if not bool(parameter.isfinite().all()):
            raise RunFailed(f"epoch {session.progress.epoch + 1}: {name} is not finite; {WHAT_TO_TRY}")


def capture(session: Session) -> Checkpoint:
    """All state of a run. Random streams need no saving: they follow from the position."""
    state = {
        "progress": vars(session.progress),
        "optimizers": {name: optimizer.state_dict() for name, optimizer in session.optimizers.items()},
        "averaged": session.averaged.state_dict() if session.averaged is not None else None,
    }
    state = tree_map_only(Tensor, lambda tensor: tensor.detach().cpu(), state)
    return Checkpoint(dict(session.model.state_dict()), state)


def restore(checkpoint: Checkpoint, session: Session) -> None:
    """Put a checkpoint's state into a freshly opened session."""
    session.model.load_state_dict(checkpoint.weights)
    for name, optimizer in session.optimizers.items():
        optimizer.load_state_dict(checkpoint.state["optimizers"][name])
    if session.averaged is not None:
        session.averaged.load_state_dict(checkpoint.state["averaged"])
    session.progress = Progress(**checkpoint.state["progress"])


@contextmanager
def progress_bar(title: str) -> Generator[Watch]:
    """What to call after each step: shows loss, accuracy, images/s and the time that remains."""
    with tqdm(desc=title, unit="step", disable=None, dynamic_ncols=True, mininterval=REFRESH_SECONDS) as bar:
        shown_at = 0.0

        def watch(step: int, steps: int, progress: Progress, logs: Mapping[str, Tensor]) -> None:
            nonlocal shown_at
            if bar.disable:
                return
            if bar.total != steps:
                bar.reset(total=steps)
                bar.initial = bar.n = step  # a resumed run starts in the middle
            bar.update(step + 1 - bar.n)
            if time.monotonic() - shown_at >= REFRESH_SECONDS:
                shown_at = time.monotonic()
                shown = [f"epoch {progress.epoch + 1}"]
                shown += [f"loss {float(logs['loss/task']):.3f}"] if "loss/task" in logs else []
                shown += [f"accuracy {100 * float(logs['accuracy']):.1f} %"] if "accuracy" in logs else []
                speed = progress.images / max(progress.seconds, 1e-9)
                bar.set_postfix_str(", ".join([*shown, f"{speed:.0f} images/s"]))

        yield watch
