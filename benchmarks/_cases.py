"""What is measured: a configured network on made images, opened as a training run opens it."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast, final

import torch

from pdeplus._lib.seeds import generator_for
from pdeplus.augment.crop_flip import CropFlip
from pdeplus.augment.identity import Identity
from pdeplus.core.prediction import predict
from pdeplus.data.base import Batch, Split
from pdeplus.data.synthetic import draw
from pdeplus.methods.base import Method
from pdeplus.training.config import load_config
from pdeplus.training.loop import run_epoch, train_step
from pdeplus.training.run_folder import Expects, build_method, build_network
from pdeplus.training.session import Session, open_session

CLASSES = tuple("0123456789")
SETTINGS = ("train.lr=0.01", "train.epochs=1000000")
"""Of every case: a step that stays finite however often it is repeated, and a schedule that never ends."""


@final
@dataclass(frozen=True, kw_only=True)
class Case:
    """A preset with settings, and sizes; small enough to be handed to another process."""

    preset: str
    settings: tuple[str, ...] = ()
    width: int = 16
    batch: int = 128
    size: int = 32
    """Side of the images in pixels."""

    @property
    def sizes(self) -> str:
        """In words."""
        threads = torch.get_num_threads()
        work = f"{threads} thread{'s' * (threads > 1)}"
        return f"ResNet-18, width {self.width}, batch {self.batch}, {self.size} px, {work}"


def open_case(case: Case, *, bare: bool = True, batches: int = 1) -> Session:
    """The session of a run of this case.

    Args:
        case: what to train.
        bare: without the method's augmentation.
        batches: of an epoch.
    """
    config = load_config(
        case.preset, [*case.settings, *SETTINGS, f"model.width={case.width}", f"train.batch_size={case.batch}"]
    )
    method = build_method(config)
    method = _unaugmented(method) if bare else method
    network = build_network(config, method, Expects(classes=CLASSES, shape=(3, case.size, case.size)))
    images = draw("photo", batches * case.batch, case.size, generator_for(0, "bench"))
    return open_session(network, method, Split(images, images, CropFlip()), config.train, seed=0)


def bare_step(case: Case) -> Callable[[], object]:
    """A training step on a fixed batch, without augmentation."""
    session = open_case(case)
    images, labels = session.on_device(session.split.train)
    batch = Batch(images, labels, Identity(), generator_for(0, "bench steps", device=images.device))
    return partial(train_step, session.model.train(), session.method, batch, session.optimizers, session.engine)


def prediction(case: Case, samples: int) -> Callable[[], object]:
    """Predicting a fixed batch with so many noisy passes."""
    session = open_case(case)
    images, _ = session.on_device(session.split.train)
    return partial(predict, session.model.eval(), images, samples, generator=generator_for(0, "bench noise"))


def epoch(session: Session) -> None:
    """The next epoch of a session through the real loop: data, crop and flip, augmentation, steps."""
    with torch.random.fork_rng():  # the loop sets torch's global state at every step
        run_epoch(session, lambda step, checkpoint: None, lambda step, steps, progress, logs: None, lambda: False)
    session.progress.close_epoch({})


def _unaugmented(method: Method) -> Method:
    if not hasattr(method, "augmentor"):
        return method
    return cast(Method, replace(cast(Any, method), augmentor=Identity()))
