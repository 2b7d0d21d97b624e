"""A training session: what a run holds in memory, where it stands, and how both go into a checkpoint and back."""

import math
import time
import warnings
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from textwrap import shorten
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Optimizer
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils._pytree import tree_map_only
from tqdm import tqdm

from .._lib.long_work import tell as say
from .._lib.seeds import generator_for
from ..augment.base import Augmentor
from ..augment.crop_flip import CropFlip
from ..augment.resized_crop import ResizedCrop
from ..core.network import SAFE_ROW, compile_network, memory_layout, step_by_indexing
from ..data.base import Images, Split, epoch_batches
from ..errors import UserError
from ..methods.base import Method
from .config import Train
from .distributed import Engine, Processes, synchronised
from .optimizers import build_optimizers

Metrics = dict[str, Any]
LEAST_SHARE = 2
"""Images that each process needs of a batch: BatchNorm cannot normalise one."""
REFRESH_SECONDS = 0.5
"""Time between two updates of the progress bar's text."""


@dataclass
class Progress:
    """Where a run stands; saved whole in every checkpoint."""

    epoch: int = 0
    batch: int = 0
    """The next batch of that epoch."""
    seconds: float = 0.0
    """Training time of that epoch so far."""
    core_seconds: float = 0.0
    """The same in time of all cores of this process, without what others took of them."""
    totals: dict[str, Tensor] = field(default_factory=dict[str, Tensor])
    """Sums of this epoch's logs, each weighted by its batch's images."""
    images: int = 0
    """Images seen in that epoch so far."""
    history: list[Metrics] = field(default_factory=list[Metrics])
    """One record per finished epoch."""
    begun_with: dict[str, float] = field(default_factory=dict[str, float])
    """What the method set by the first batch, by name."""

    def add(self, logs: Mapping[str, Tensor], images: int, seconds: float, core_seconds: float) -> None:
        """Count one step in."""
        self.batch, self.images = self.batch + 1, self.images + images
        self.seconds, self.core_seconds = self.seconds + seconds, self.core_seconds + core_seconds
        for name, value in logs.items():
            self.totals[name] = self.totals.get(name, torch.zeros_like(value)) + value * images

    def close_epoch(self, record: Metrics) -> None:
        """File the epoch's record and start the next."""
        self.history.append(record)
        self.epoch, self.batch, self.images, self.totals = self.epoch + 1, 0, 0, {}
        self.seconds = self.core_seconds = 0.0


def score_of(record: Metrics) -> float:
    """What an epoch is selected by: the mean of its validation accuracies, clean and shifted where there are both."""
    clean = float(record["validation/accuracy"])
    return (clean + float(record.get("validation/shifted_accuracy", clean))) / 2


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

    def transform(self, epoch: int, places: Tensor) -> Callable[[Tensor, torch.Generator | None], Tensor]:
        """The light transform of the training images at these places in this epoch."""
        light = self.split.transform
        if not isinstance(light, CropFlip) or self.settings.flips == "random":
            return light
        mirrored = (self.mirrored_first[places] ^ bool(epoch % 2)).to(self.engine.device)
        return partial(light, mirrored=mirrored)

    @cached_property
    def class_weights(self) -> Tensor | None:
        """Of each class n / (classes · its images) where classes are to be balanced: 1 on average over the images."""
        if self.settings.class_weights == "none":
            return None
        labels = self.split.train.labels
        counts = torch.bincount(labels)
        return (len(labels) / (len(counts) * counts.clamp(min=1))).to(self.engine.device)

    @cached_property
    def mirrored_first(self) -> Tensor:
        """Of each training image whether alternating flips begin with its mirror image."""
        return torch.rand(len(self.split.train), generator=generator_for(self.seed, "flips")) < 0.5

    def on_device(self, images: Images) -> tuple[Tensor, Tensor]:
        """Float images in the run's layout, and labels."""
        device = self.engine.device
        return images.floats().to(device, memory_format=self.layout), images.labels.to(device)

    def resized(self, x: Tensor) -> Tensor:
        """Training images at the size of this epoch."""
        size = [self.settings.side_in(self.progress.epoch, side) for side in x.shape[2:]]
        if size == list(x.shape[2:]):
            return x
        return F.interpolate(x, size, mode="bilinear", antialias=True).contiguous(memory_format=self.layout)


@dataclass(frozen=True)
class Checkpoint:
    """All that is needed to go on as if nothing had happened."""

    weights: dict[str, Tensor]
    state: dict[str, Any]
    config: bytes | None = None
    """The run's config.toml; None in checkpoints of older versions."""
    path: Path | None = None
    """Where it was read from."""


Watch = Callable[[int, int, Progress, Mapping[str, Tensor]], None]
"""Called after each step with its number, the number of all steps, the progress and the step's logs."""


def open_session(model: nn.Module, method: Method, split: Split, settings: Train, seed: int) -> Session:
    """Put the prepared model on its device and make its optimisers.

    The seed is that of the order of images, of the augmentations and of the noise.
    """
    size = split.validation.shape[-1]
    split = replace(split, transform=light_transform(split.transform, settings, size))
    check_view(split, size)
    engine = Engine(settings.precision, settings.device)
    check_progressive(model, split, settings)
    check_shares(engine.processes.world, settings.batch_size, len(split.train))
    if settings.sync_batch_norm and engine.processes.world > 1:
        model = synchronised(model, engine.processes)
    model.to(engine.device)
    layout = memory_layout(model, settings.channels_last, engine.device, settings.precision)
    row = split.train.shape[-1]
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
        warnings.warn(f"train.compile=true is ignored: {reason}", stacklevel=2)
    return Session(model, method, split, settings, seed, engine, layout, optimizers, peaks, averaged, Progress())


def check_view(split: Split, size: int) -> None:
    """Refuse a transform whose training images are not of the size that test images have."""
    given, image = split.train.shape[-1], torch.zeros(1, *split.train.shape)
    if given != size and (given := split.transform(image, generator_for(0, "view")).shape[-1]) != size:
        way_out = "set data.transform=resized_crop, or data.read_size=0"
        raise UserError(f"training images reach the network with {given} pixels and others with {size}; {way_out}")


def check_progressive(model: nn.Module, split: Split, settings: Train) -> None:
    """Refuse progressive resizing for a network, or behind a transform, of one image size only."""
    if not settings.progressive:
        return
    if isinstance(split.transform, ResizedCrop):  # it gives the network one size, whatever it is given
        raise UserError(f"train.progressive={settings.progressive} cannot be combined with data.transform=resized_crop")
    channels, *sides = split.validation.shape
    size = [settings.side_in(0, side) for side in sides]
    try:
        with torch.no_grad():
            model.eval()(torch.zeros(1, channels, *size))
    except (RuntimeError, ValueError, AssertionError) as error:
        what = f"train.progressive={settings.progressive} trains on {size[0]}×{size[1]} pixels first"
        raise UserError(f"{what}, which the network does not take; leave it out") from error


def light_transform(transform: Augmentor, settings: Train, size: int = 0) -> Augmentor:
    """The data set's own transform with the settings' shift and border; refuses settings that it does not know.

    A resized crop without a size of its own gets `size`, that of the test images.
    """
    if isinstance(transform, ResizedCrop) and not transform.size:
        transform = replace(transform, size=size)
    s, wanted = settings, dict[str, Any]()
    wanted |= {"padding": s.shift} if s.shift >= 0 else {}
    wanted |= {"border": s.border} if s.border != "black" else {}
    if isinstance(transform, CropFlip):
        return replace(transform, **wanted)
    if wanted or s.flips != "random":
        name = type(transform).__name__
        raise UserError(f"the data set transforms its images by {name}, which takes no train.shift, border or flips")
    return transform


def check_shares(world: int, batch_size: int, images: int) -> None:
    """Refuse more processes than a batch can be shared out among."""
    least = LEAST_SHARE * world
    if world > 1 and min(batch_size, images) < least:
        what = f"train.batch_size={batch_size}" if batch_size < least else f"{images} training images"
        raise UserError(f"{what}: {world} processes share each batch and need {least} or more; start fewer processes")


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
    """Put a checkpoint's state into a freshly opened session; one that does not fit is refused.

    What optimisers remember is the checkpoint's; their settings stay those of the session.
    """
    session.progress = read_progress(checkpoint)
    try:
        session.model.load_state_dict(checkpoint.weights)
        for name, optimizer in session.optimizers.items():
            settings = [{key: group[key] for key in group if key != "params"} for group in optimizer.param_groups]
            optimizer.load_state_dict(checkpoint.state["optimizers"][name])
            for group, own in zip(optimizer.param_groups, settings, strict=True):
                group.update(own)
            _check_optimizer(name, optimizer)
        if session.averaged is not None:
            session.averaged.load_state_dict(checkpoint.state["averaged"])
        _check_position(session)
    except (LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise unfit(checkpoint, error) from error


def read_progress(checkpoint: Checkpoint) -> Progress:
    """Where the run stood; what is no such state is refused."""
    try:
        progress = Progress(**checkpoint.state["progress"])
        whole = all(type(n) is int and n >= 0 for n in (progress.epoch, progress.batch, progress.images))
        timed = _is_number(progress.seconds) and _is_number(progress.core_seconds)
        summed = all(isinstance(total, Tensor) for total in progress.totals.values())  # type: ignore[reportUnnecessaryIsInstance]
        recorded = all(map(is_epoch, progress.history)) and len(progress.history) == progress.epoch
        if not (whole and timed and summed and recorded):
            raise ValueError("its progress is inconsistent")
        return progress
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise unfit(checkpoint, error) from error


def is_epoch(record: object) -> bool:
    """Whether this is the record of an epoch: numbers by name; those that results depend on are there and finite."""
    if not isinstance(record, dict):
        return False
    values = cast(Metrics, record)
    used = [values.get(name, math.nan) for name in ("epoch", "validation/accuracy", "seconds")]
    used += [values.get(name, 0) for name in ("validation/shifted_accuracy", "core_seconds", "images_per_second")]
    return all(_is_number(v) for v in values.values()) and all(math.isfinite(v) for v in used)


def _is_number(value: object) -> bool:
    return isinstance(value, float) or (type(value) is int and abs(value) < 2**63)


def unfit(checkpoint: Checkpoint, error: Exception) -> UserError:
    """The answer to a checkpoint that is whole and yet none of this run."""
    reason = shorten(str(error).partition("\n")[2] or str(error), 200, placeholder=" …") or type(error).__name__
    where, way_out = checkpoint.path or "it", "delete it to continue from the one before, or from the start"
    return UserError(f"checkpoint {where} does not fit this run: {reason}; {way_out}")


def _check_optimizer(name: str, optimizer: Optimizer) -> None:
    """What it remembers of a parameter is single numbers and tensors of the parameter's shape."""
    for parameter, memory in optimizer.state.items():
        for key, value in memory.items():
            if isinstance(value, Tensor) and value.ndim and value.shape != parameter.shape:
                raise ValueError(f"{key} of the optimiser {name} has the shape {tuple(value.shape)}")


def _check_position(session: Session) -> None:
    progress = session.progress
    if progress.epoch > session.settings.epochs or progress.batch > session.per_epoch:
        where = f"epoch {progress.epoch}, batch {progress.batch}"
        raise ValueError(f"it is at {where} of {session.settings.epochs} epochs of {session.per_epoch} batches")


@contextmanager
def progress_bar(title: str) -> Generator[Watch]:
    """What to call after each step: shows loss, accuracies, images/s and the time that remains.

    Where the stream of errors is no terminal, as in a log file or a notebook, each finished epoch is a line there.
    """
    with tqdm(desc=title, unit="step", disable=None, dynamic_ncols=True, mininterval=REFRESH_SECONDS) as bar:
        shown_at, reached, told, done, of = 0.0, Progress(), 0, 0, 0

        def tell() -> None:
            nonlocal told
            for record in reached.history[told:] if bar.disable else ():
                epochs = round(of * reached.epoch / (done - reached.batch))
                say(f"{title}: epoch {record['epoch']} of {epochs}: {_in_words(record)}")
            told = len(reached.history)

        def watch(step: int, steps: int, progress: Progress, logs: Mapping[str, Tensor]) -> None:
            nonlocal shown_at, reached, told, done, of
            if reached is not progress:  # another run; of a resumed one the first epochs were told then
                reached, told = progress, len(progress.history)
            done, of = step + 1, steps
            tell()
            if bar.disable:
                return
            if bar.total != steps:
                bar.reset(total=steps)
                bar.initial = bar.n = step  # a resumed run starts in the middle
            bar.update(step + 1 - bar.n)
            if time.monotonic() - shown_at >= REFRESH_SECONDS:
                shown_at = time.monotonic()
                speed = progress.images / max(progress.seconds, 1e-9)
                last = {key: v for record in progress.history[-1:] for key, v in record.items() if "validation" in key}
                shown = _in_words({**logs, **last, "images_per_second": speed})
                bar.set_postfix_str(f"epoch {progress.epoch + 1}, {shown}")

        try:
            yield watch
        finally:
            tell()


def _in_words(values: Mapping[str, Any]) -> str:
    """What is known of loss, accuracies and speed."""
    shown = [f"loss {float(values['loss/task']):.3f}"] if "loss/task" in values else []
    for key, name in (
        ("accuracy", ""),
        ("validation/accuracy", "validation "),
        ("validation/shifted_accuracy", "shifted "),
    ):
        shown += [f"{name}accuracy {100 * float(values[key]):.1f} %"] if key in values else []
    return ", ".join([*shown, f"{values['images_per_second']:.0f} images/s"])


@contextmanager
def tensorboard(folder: Path) -> Generator[Callable[[Metrics], None] | None]:
    """What writes an epoch's record to TensorBoard, where that is installed."""
    try:
        from torch.utils.tensorboard.writer import SummaryWriter
    except ImportError:
        yield None
        return
    with SummaryWriter(folder / "tensorboard") as writer:

        def write(record: Metrics) -> None:
            for name, value in record.items():
                writer.add_scalar(name, value, record["epoch"])  # type: ignore[reportUnknownMemberType]

        yield write
