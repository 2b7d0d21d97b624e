"""The training loop: one step serves every method, one `fit` serves every run."""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from .._lib.memory import kept_memory
from .._lib.seeds import derive, generator_for
from ..core.batch_norm import keep_frozen_statistics, recalibrate
from ..data.base import Batch, Images, epoch_batches, index_batches
from ..errors import RunFailed
from ..methods.base import Method, Objective
from .distributed import Engine, Processes
from .session import Checkpoint, Metrics, Progress, Session, Watch, capture, restore, score_of

RECALIBRATION_IMAGES = 2048
WHAT_TO_TRY = (
    "try a lower train.lr (or method.diffusion_lr), train.warmup=1 or train.clip_norm=1; "
    "the last checkpoint is from before this, and a new run can continue from it"
)


def train_step(
    model: nn.Module,
    method: Method,
    batch: Batch | Sequence[Batch],
    optimizers: Mapping[str, Optimizer],
    engine: Engine,
    clip_norm: float = 0.0,
    weight: float = 1.0,
) -> dict[str, Tensor]:
    """One step of any method: for each of its objectives zero, backward, step.

    Returns the losses' terms and the metrics, still on the device: nothing here waits for it but the
    check that the loss is finite. Of several processes each steps with the mean of all their gradients, where its own
    loss has this weight, 1 on average. Several batches are parts of one, whose gradients are added up for one update.
    """
    parts = [batch] if isinstance(batch, Batch) else batch
    shares = [len(part.labels) / sum(len(each.labels) for each in parts) for part in parts]
    logs, every = dict[str, Tensor](), [method.objectives(model, part) for part in parts]
    while True:
        chosen, parameters, means = list[Optimizer](), list[nn.Parameter](), dict[str, Tensor]()
        for goals, share in zip(every, shares, strict=True):
            with engine.forward():
                goal = next(goals, None)
            if goal is None:
                return logs
            _check_finite(goal, engine.processes)
            if not chosen:
                chosen = [optimizers[name] for name in goal.update]
                parameters = [p for optimizer in chosen for p in parameters_of(optimizer)]
                for optimizer in chosen:
                    optimizer.zero_grad()
            loss = goal.loss * (weight * share)
            engine.backward(loss, inputs=parameters if goal.reach == "updated" else None)
            told = {f"loss/{name}": part.detach() for name, part in goal.parts.items()} | dict(goal.metrics)
            means = {name: means.get(name, 0.0) + value * share for name, value in told.items()}
        engine.processes.average_gradients(parameters)
        engine.step(chosen, clip_norm)
        logs |= means


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

    `save`, `on_step` and `on_epoch` are called in the main process alone: at each epoch's end and every
    checkpoint_seconds, after each step, and after each epoch, before its checkpoint. `stop` is asked after each step;
    once it says yes in any process, a checkpoint is saved and training ends in all.
    """
    if resume is not None:
        restore(resume, session)
    processes, progress = session.processes, session.progress
    processes.copy_main([*session.model.parameters(), *session.model.buffers()])
    with torch.random.fork_rng(), kept_memory():
        begin(session)
        while progress.epoch < session.settings.epochs and not out_of_patience(session):
            if not run_epoch(session, save, on_step, stop):
                return None
            check_weights(session)
            finish_epoch(session)
            processes.on_main(lambda: on_epoch(progress, session.network))
            processes.on_main(lambda: save(progress.epoch * session.per_epoch, capture(session)))
            if any(processes.any(stop())) and progress.epoch < session.settings.epochs:
                return None
    return session.network


def begin(session: Session) -> None:
    """Let the method set what the first batch sets, before the first step; the first epoch's record tells it."""
    if session.progress.epoch or session.progress.batch or type(session.method).begin is Method.begin:
        return
    learning_mode(session)
    torch.manual_seed(derive(session.seed, "begin"))
    places = session.processes.share(session.batches(0)[0])
    batch = parts_of(session, next(session.split.train.batches([places])), places, 0, 1)[0]
    told = session.method.begin(session.model, batch)
    session.processes.copy_main([*session.model.parameters()] if told else [])
    if told and session.averaged is not None:
        session.averaged.module.load_state_dict(session.model.state_dict())
    session.progress.begun_with = told


def out_of_patience(session: Session) -> bool:
    """Whether the best validation score is as many epochs old as the settings wait for a better one."""
    scores = [score_of(record) for record in session.progress.history]
    waited = session.settings.patience
    return bool(waited and scores) and len(scores) - 1 - scores.index(max(scores)) >= waited


def run_epoch(
    session: Session, save: Callable[[int, Checkpoint], None], on_step: Watch, stop: Callable[[], bool]
) -> bool:
    """Train on what is left of an epoch. False where it was stopped in its middle, with a checkpoint of that step."""
    settings, processes, progress = session.settings, session.processes, session.progress
    batches, per_epoch = session.batches(progress.epoch), session.per_epoch
    saved_at = time.monotonic()
    learning_mode(session)
    coming = session.split.train.batches([processes.share(batch) for batch in batches[progress.batch :]])
    while progress.batch < len(batches):
        step, steps = progress.epoch * per_epoch + progress.batch, settings.epochs * per_epoch
        logs = run_step(session, coming, batches[progress.batch], step, steps)
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


def run_step(session: Session, coming: Iterator[Images], places: Tensor, step: int, steps: int) -> dict[str, Tensor]:
    """Train on the next batch, with the learning rates and the random streams of that step.

    The batch has the training images at `places`; this process's share of them is the next of `coming`.
    """
    started, worked, settings, processes = time.monotonic(), time.process_time(), session.settings, session.processes
    size = len(places)
    torch.manual_seed(derive(session.seed, "torch", step, *processes.stream))  # for dropout and the like
    warmup = round(settings.warmup * session.per_epoch)
    factor = learning_rate_factor(step, steps, warmup, settings.schedule)
    set_learning_rates(session.optimizers, session.peaks, factor)
    batch = parts_of(session, next(coming), processes.share(places), step, steps)
    weight = sum(len(part.labels) for part in batch) * processes.world / size
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
    session.progress.add(logs, size, time.monotonic() - started, time.process_time() - worked)
    return logs


def parts_of(session: Session, images: Images, places: Tensor, step: int, steps: int) -> list[Batch]:
    """A step's images, which are at `places`, as a batch or, where updates accumulate, as several of nearly one size.

    Each has its own random stream, and of the first it is that of the whole.
    """
    settings, stream, found = session.settings, session.processes.stream, list[Batch]()
    count = min(settings.accumulate, max(len(places) // 2, 1))  # BatchNorm cannot normalise one image
    for i, mine in enumerate(torch.arange(len(places)).tensor_split(count)):
        x, labels = session.on_device(images if count == 1 else images.take(mine))
        x = session.resized(x)
        purpose = ("part", step, *stream, i) if i else ("step", step, *stream)
        draws = generator_for(session.seed, *purpose, device=session.engine.device)
        transform = session.transform(session.progress.epoch, places[mine])
        weights = session.class_weights
        found.append(Batch(x, labels, transform, draws, settings.label_smoothing, weights, step / steps))
    return found


def learning_mode(session: Session) -> None:
    """Training mode; what is frozen in this epoch does not learn, nor do its BatchNorm layers measure."""
    thawed = session.progress.epoch >= session.settings.freeze_epochs
    for optimizer in session.optimizers.values():
        for group in optimizer.param_groups:
            for p in group["params"] if group.get("backbone") else ():
                p.requires_grad_(thawed)
    session.model.train()
    keep_frozen_statistics(session.model)


def learning_rate_factor(step: int, steps: int, warmup: int, schedule: str = "cosine") -> float:
    """Linear from 0 to 1 over the warm-up, then half a cosine, or a line, down to 0."""
    if step < warmup:
        return (step + 1) / (warmup + 1)
    done = (step - warmup) / max(steps - warmup, 1)
    return 1 - done if schedule == "linear" else 0.5 * (1 + math.cos(math.pi * done))


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
    record |= {} if progress.epoch else {f"start/{name}": value for name, value in progress.begun_with.items()}
    record |= {name: float(total) / progress.images for name, total in progress.totals.items()}
    record |= validate(session, session.network)
    if not math.isfinite(record["validation/nll"]):
        raise RunFailed(f"epoch {progress.epoch + 1}: the validation loss is not finite; {WHAT_TO_TRY}")
    record |= {"seconds": progress.seconds, "core_seconds": progress.core_seconds}
    record["images_per_second"] = progress.images / max(progress.seconds, 1e-9)
    progress.close_epoch(record)


def validate(session: Session, network: nn.Module) -> Metrics:
    """What a network scores on held-out images, and on shifted ones where there are any."""
    accuracy, nll = _test(session, network, session.split.validation, "validate")
    record: Metrics = {"validation/accuracy": accuracy, "validation/nll": nll}
    if session.split.shifted is not None:
        shifted, _ = _test(session, network, session.split.shifted, "validate shifted")
        record["validation/shifted_accuracy"] = shifted
    return record


def _test(session: Session, network: nn.Module, images: Images, purpose: str) -> tuple[float, float]:
    """Accuracy and negative log-likelihood, predicted as the method predicts at test; processes take turns."""
    sums, processes = torch.zeros(2, dtype=torch.float64), session.processes
    parts = index_batches(torch.arange(len(images)), session.settings.batch_size)
    turns = range(processes.rank, len(parts), processes.world)
    for i, part in zip(turns, images.batches([parts[i] for i in turns]), strict=True):
        x, labels = session.on_device(part)
        stream = generator_for(session.seed, purpose, i, device=x.device)
        probabilities = session.method.predict(network, x, stream)
        sums[0] += float((probabilities.argmax(-1) == labels).sum())
        sums[1] -= float(probabilities.float().gather(1, labels[:, None]).clamp(min=1e-12).log().sum())
    accuracy, nll = processes.sum(sums.to(processes.device)) / len(images)
    return float(accuracy), float(nll)


def check_weights(session: Session) -> None:
    """Refuse to save or validate weights that are not finite."""
    for name, parameter in session.model.named_parameters():
        if not bool(parameter.isfinite().all()):
            raise RunFailed(f"epoch {session.progress.epoch + 1}: {name} is not finite; {WHAT_TO_TRY}")
