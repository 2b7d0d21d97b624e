"""The training loop: one step serves every method, one `fit` serves every run."""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Optimizer
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils._pytree import tree_map

from ._checkpoint import Checkpoint
from ._engine import Engine
from ._errors import RunFailed
from ._network import memory_layout
from ._seeds import derive, generator_for
from .batch_norm import recalibrate
from .config import Train
from .data.base import Batch, Images, Split, epoch_batches, index_batches
from .methods.base import Method, Objective

Metrics = dict[str, Any]
RECALIBRATION_IMAGES = 2048
WHAT_TO_TRY = (
    "try a lower train.lr (or method.diffusion_lr), train.warmup=1 or train.clip_norm=1; "
    "the last checkpoint is from before this"
)


def train_step(
    model: nn.Module,
    method: Method,
    batch: Batch,
    optimizers: Mapping[str, Optimizer],
    engine: Engine,
    clip_norm: float = 0.0,
) -> dict[str, Tensor]:
    """One step of any method: for each of its objectives zero, backward, step.

    Returns the losses' terms and the metrics, still on the device: nothing here waits for it but the
    check that the loss is finite.
    """
    logs = dict[str, Tensor]()
    goals = method.objectives(model, batch)
    while True:
        with engine.autocast():
            goal = next(goals, None)
        if goal is None:
            return logs
        _check_finite(goal)
        chosen = [optimizers[name] for name in goal.update]
        parameters = [p for optimizer in chosen for p in parameters_of(optimizer)]
        for optimizer in chosen:
            optimizer.zero_grad()
        engine.backward(goal.loss, inputs=parameters if goal.reach == "updated" else None)
        if clip_norm:
            engine.clip(parameters, clip_norm)
        for optimizer in chosen:
            optimizer.step()
        logs |= {f"loss/{name}": part.detach() for name, part in goal.parts.items()} | dict(goal.metrics)


def parameters_of(optimizer: Optimizer) -> list[nn.Parameter]:
    """The trainable parameters an optimiser steps on."""
    return [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]


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

    def batches(self, epoch: int) -> list[Tensor]:
        """Index batches of one epoch."""
        size, reshuffle = self.settings.batch_size, self.settings.reshuffle
        return epoch_batches(len(self.split.train), batch_size=size, epoch=epoch, seed=self.seed, reshuffle=reshuffle)

    def on_device(self, images: Images) -> tuple[Tensor, Tensor]:
        """Float images in the run's layout, and labels."""
        device = self.engine.device
        return images.floats().to(device, memory_format=self.layout), images.labels.to(device)


Watch = Callable[[int, int, Progress, Mapping[str, Tensor]], None]
"""Called after each step with its number, the number of all steps, the progress and the step's logs."""


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
    with the same bits. All randomness comes from (seed, position); torch's global state is put back.

    Args:
        session: freshly opened.
        resume: a checkpoint to go on from.
        save: takes a step number and a checkpoint, at each epoch's end and every checkpoint_seconds.
        on_step: called after each step.
        on_epoch: called after each epoch, before its checkpoint, with the progress and the network.
        stop: asked after each step; once it says yes, a checkpoint is saved and training ends.
    """
    if resume is not None:
        restore(resume, session)
    settings = session.settings
    progress, per_epoch = session.progress, len(session.batches(0))
    with torch.random.fork_rng():
        saved_at = time.monotonic()
        while progress.epoch < settings.epochs:
            batches = session.batches(progress.epoch)
            session.model.train()
            coming = session.split.train.batches(batches[progress.batch :])
            while progress.batch < len(batches):
                step = progress.epoch * per_epoch + progress.batch
                logs = run_step(session, coming, step, settings.epochs * per_epoch)
                on_step(step, settings.epochs * per_epoch, progress, logs)
                due, stopped = time.monotonic() - saved_at >= settings.checkpoint_seconds, stop()
                if progress.batch < len(batches) and (due or stopped):
                    check_weights(session)
                    save(step + 1, capture(session))
                    saved_at = time.monotonic()
                    if stopped:
                        return None
            check_weights(session)
            finish_epoch(session)
            on_epoch(progress, session.network)
            save(progress.epoch * per_epoch, capture(session))
            saved_at = time.monotonic()
            if stop() and progress.epoch < settings.epochs:
                return None
    return session.network


def open_session(model: nn.Module, method: Method, split: Split, settings: Train, seed: int) -> Session:
    """Put the prepared model on its device and make its optimisers.

    Args:
        model: the prepared network.
        method: gives each step's objectives and the optimisers.
        split: training and validation images.
        settings: the loop's settings.
        seed: of the order, the augmentations and the noise.
    """
    engine = Engine(settings.precision)
    model.to(engine.device)
    layout = memory_layout(model, settings.channels_last, engine.device)
    model.to(memory_format=layout)  # type: ignore[reportCallIssue]

    def build(parameters: Iterable[nn.Parameter]) -> Optimizer:
        s = settings
        return SGD(parameters, s.lr, s.momentum, weight_decay=s.weight_decay, nesterov=s.nesterov)

    optimizers = {name: engine.wrap(o) for name, o in method.optimizers(model, build).items()}
    peaks = {name: [float(group["lr"]) for group in o.param_groups] for name, o in optimizers.items()}
    averaged = None
    if settings.ema:
        averaged = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(settings.ema))  # type: ignore[reportUnknownArgumentType]
    return Session(model, method, split, settings, seed, engine, layout, optimizers, peaks, averaged, Progress())


def run_step(session: Session, coming: Iterator[Images], step: int, steps: int) -> dict[str, Tensor]:
    """Train on the next batch, with the learning rates and the random streams of that step."""
    started, settings = time.monotonic(), session.settings
    torch.manual_seed(derive(session.seed, "torch", step))  # for dropout and the like
    warmup = round(settings.warmup * len(session.batches(0)))
    set_learning_rates(session.optimizers, session.peaks, learning_rate_factor(step, steps, warmup))
    images, labels = session.on_device(next(coming))
    stream = generator_for(session.seed, "step", step, device=session.engine.device)
    batch = Batch(images, labels, session.split.transform, stream)
    try:
        logs = train_step(session.model, session.method, batch, session.optimizers, session.engine, settings.clip_norm)
    except FloatingPointError as error:
        raise RunFailed(f"step {step} (epoch {session.progress.epoch + 1}): {error}") from error
    if session.averaged is not None:
        session.averaged.update_parameters(session.model)
    session.progress.add(logs, len(labels), time.monotonic() - started)
    return logs


def finish_epoch(session: Session) -> None:
    """Validate and file the epoch's record."""
    progress, train = session.progress, session.split.train
    size = max(session.settings.batch_size, 2)
    if session.settings.batch_norm == "recalibrate":
        sample = epoch_batches(min(RECALIBRATION_IMAGES, len(train)), batch_size=size, epoch=0, seed=session.seed)
        recalibrate(session.network, (session.on_device(part)[0] for part in train.batches(sample)))
    record: Metrics = {"epoch": progress.epoch + 1}
    record |= {f"lr/{name}": float(o.param_groups[0]["lr"]) for name, o in session.optimizers.items()}
    record |= {name: float(total) / progress.images for name, total in progress.totals.items()}
    record |= validate(session)
    if not math.isfinite(record["validation/nll"]):
        raise RunFailed(f"epoch {progress.epoch + 1}: the validation loss is not finite; {WHAT_TO_TRY}")
    record |= {"seconds": progress.seconds, "images_per_second": progress.images / max(progress.seconds, 1e-9)}
    progress.close_epoch(record)


def validate(session: Session) -> dict[str, float]:
    """Accuracy and negative log-likelihood on held-out images, and accuracy on shifted ones where there are any."""
    accuracy, nll = _test(session, session.split.validation, "validate")
    record = {"validation/accuracy": accuracy, "validation/nll": nll}
    if session.split.shifted is not None:
        record["validation/shifted_accuracy"], _ = _test(session, session.split.shifted, "validate shifted")
    return record


def _test(session: Session, images: Images, purpose: str) -> tuple[float, float]:
    """Accuracy and negative log-likelihood, predicted as the method predicts at test."""
    correct, nll = 0.0, 0.0
    parts = index_batches(torch.arange(len(images)), session.settings.batch_size)
    for i, part in enumerate(images.batches(parts)):
        x, labels = session.on_device(part)
        stream = generator_for(session.seed, purpose, i, device=x.device)
        probabilities = session.method.predict(session.network, x, stream)
        correct += float((probabilities.argmax(-1) == labels).sum())
        nll -= float(probabilities.float().gather(1, labels[:, None]).clamp(min=1e-12).log().sum())
    return correct / len(images), nll / len(images)


def learning_rate_factor(step: int, steps: int, warmup: int) -> float:
    """Linear from 0 to 1 over the warm-up, then half a cosine down to 0."""
    if step < warmup:
        return (step + 1) / (warmup + 1)
    return 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(steps - warmup, 1)))


def check_weights(session: Session) -> None:
    """Refuse to save or validate weights that are not finite."""
    for name, parameter in session.model.named_parameters():
        if not bool(parameter.isfinite().all()):
            raise RunFailed(f"epoch {session.progress.epoch + 1}: {name} is not finite; {WHAT_TO_TRY}")


def set_learning_rates(optimizers: Mapping[str, Optimizer], peaks: Mapping[str, list[float]], factor: float) -> None:
    """Set every group's rate to factor × its peak, but those whose schedule is constant."""
    for name, optimizer in optimizers.items():
        for group, peak in zip(optimizer.param_groups, peaks[name], strict=True):
            group["lr"] = peak if group.get("schedule") == "constant" else factor * peak


def capture(session: Session) -> Checkpoint:
    """All state of a run. Random streams need no saving: they follow from the position."""
    state = {
        "progress": vars(session.progress),
        "optimizers": {name: optimizer.state_dict() for name, optimizer in session.optimizers.items()},
        "averaged": session.averaged.state_dict() if session.averaged is not None else None,
    }
    return Checkpoint(dict(session.model.state_dict()), tree_map(_to_cpu, state))


def restore(checkpoint: Checkpoint, session: Session) -> None:
    """Put a checkpoint's state into a freshly opened session."""
    session.model.load_state_dict(checkpoint.weights)
    for name, optimizer in session.optimizers.items():
        optimizer.load_state_dict(checkpoint.state["optimizers"][name])
    if session.averaged is not None:
        session.averaged.load_state_dict(checkpoint.state["averaged"])
    session.progress = Progress(**checkpoint.state["progress"])


def _check_finite(goal: Objective) -> None:
    if bool(torch.isfinite(goal.loss)):
        return
    bad = next((name for name, part in goal.parts.items() if not bool(torch.isfinite(part))), "total")
    raise FloatingPointError(f"the {bad} loss is {float(goal.parts.get(bad, goal.loss).detach())}; {WHAT_TO_TRY}")


def _to_cpu(value: Any) -> Any:
    return value.detach().cpu() if isinstance(value, Tensor) else value
