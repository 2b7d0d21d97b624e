"""What is timed: a network on synthetic images, opened as a training run opens it; and how much memory it takes."""

import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path

import torch

from pdeplus._lib.seeds import generator_for
from pdeplus.augment.crop_flip import CropFlip
from pdeplus.augment.identity import Identity
from pdeplus.core.prediction import predict
from pdeplus.data.base import Batch, Split
from pdeplus.data.synthetic import draw
from pdeplus.training.config import load_config
from pdeplus.training.loop import run_epoch, train_step
from pdeplus.training.run_folder import Expects, build_method, build_network
from pdeplus.training.session import Session, open_session

SETTINGS = ("train.lr=0.01", "train.epochs=1000000")
"""Each case's: a step that stays finite however often it is repeated, and a schedule that never ends."""
STATUS = Path("/proc/self/status")
Make = Callable[[], Callable[[], object]]
"""Prepares work that can be repeated; a module's function with its arguments, so that it can go to another process."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A preset with settings, and sizes."""

    preset: str
    settings: tuple[str, ...] = ()
    width: int = 16
    batch: int = 128
    size: int = 32
    """Side of the images in pixels."""

    def tiny_if(self, quick: bool) -> "Case":
        return replace(self, width=8, batch=4, size=16) if quick else self

    def __str__(self) -> str:
        threads = torch.get_num_threads()
        work = f"{threads} thread{'s' * (threads > 1)}"
        network = "fast_cnn" if self.preset == "fast" else "ResNet-18"
        return f"{network}, width {self.width}, batch {self.batch}, {self.size} px, {work}"


def open_case(case: Case, *, bare: bool = True, batches: int = 1) -> Session:
    """The session of a run whose epochs have so many batches; `bare` leaves out the method's augmentation."""
    sizes = (f"model.width={case.width}", f"train.batch_size={case.batch}")
    config = load_config(case.preset, [*case.settings, *SETTINGS, *sizes])
    method = build_method(config)
    if bare and "augmentor" in {option.name for option in fields(method)}:
        method = replace(method, augmentor=Identity())
    network = build_network(config, method, Expects(classes=tuple("0123456789"), shape=(3, case.size, case.size)))
    images = draw("photo", batches * case.batch, case.size, generator_for(0, "bench"))
    return open_session(network, method, Split(images, images, CropFlip()), config.train, seed=0)


def bare_step(case: Case) -> Callable[[], object]:
    """A training step on a fixed batch, without augmentation."""
    session = open_case(case)
    images, labels = session.on_device(session.split.train)
    stream = generator_for(0, "bench steps", device=images.device)
    batch = Batch(images, labels, Identity(), stream, session.settings.label_smoothing)
    return partial(train_step, session.model.train(), session.method, batch, session.optimizers, session.engine)


def prediction(case: Case, samples: int) -> Callable[[], object]:
    """Predicting a fixed batch with so many noisy passes."""
    session = open_case(case)
    images, _ = session.on_device(session.split.train)
    return partial(predict, session.model.eval(), images, samples, generator=generator_for(0, "bench noise"))


def epoch(session: Session) -> None:
    """The session's next epoch through the real loop: data, crop and flip, augmentation, steps."""
    with torch.random.fork_rng():  # the loop sets torch's global state at every step
        run_epoch(session, lambda step, checkpoint: None, lambda step, steps, progress, logs: None, lambda: False)
    session.progress.close_epoch({})


def peak_memory(make: Make) -> float | None:
    """MiB that preparing work and doing it twice adds to a process at the most; None where that cannot be told.

    The process is new. The interpreter, the libraries and what any first step allocates do not count.
    """
    if not STATUS.is_file():
        return None
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch._dynamo", "benchmarks.__main__", __name__])
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        try:
            return pool.submit(_peak, make).result()
        except BrokenProcessPool:  # it was killed, most likely for want of memory
            return None


def _peak(make: Make) -> float:
    warm_up()
    before = resident("VmRSS")
    work = make()
    work()
    work()  # the first makes the optimiser's state, the second holds it beside everything else
    return resident("VmHWM") - before


def warm_up() -> None:
    """A tiny step, after which libraries are loaded and threads have started; its batch can be shared by eight."""
    bare_step(Case(preset="pde_plus", width=8, batch=16, size=8))()


def resident(field: str) -> float:
    """MiB of this process alone: "VmRSS" now, "VmHWM" at its peak (getrusage would count the parent's too)."""
    return int(STATUS.read_text().partition(f"{field}:")[2].split()[0]) / 1024
