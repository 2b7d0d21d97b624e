"""Fine-tuning a ResNet-18 of timm on a folder of pictures: the step, the loader, evaluation, corruptions, memory.

Ratios of CPU time on one thread, which other work on the machine does not change; memory is that of a new process. The
package `imagecorruptions`, of which the corruptions are timed too, must be installed for its table.
"""

import os
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F

from pdeplus._lib.environment import one_thread
from pdeplus._lib.seeds import generator_for
from pdeplus.corruptions.suite import CORRUPTIONS, corrupt
from pdeplus.data.base import Batch, Images
from pdeplus.data.image_folder import ImageFolder
from pdeplus.data.synthetic import draw
from pdeplus.evaluation.loop import evaluate
from pdeplus.training.config import load_config
from pdeplus.training.loop import train_step
from pdeplus.training.run_folder import fitted, prepare
from pdeplus.training.session import Session

from .augment import declare_operators
from .cases import peak_memory
from .results import Effort, Result, take_turns

NETWORK, TINY = "timm:resnet18.a1_in1k", "timm:resnet10t.c3_in1k"
PICTURE = 500, 375
"""Width and height of the files, as is usual of photographs in data sets."""
SEVERITY = 3
BARE, PLAIN, ERM, PDE = "the network alone, no augmentation", "plain loop", "finetune, ERM", "finetune, PDE+"
LOADER, STEP = "loader: decodes, resizes, batches", "plain step"
FORWARD, OURS, FURTHER = "bare forward", "pp.evaluate, clean, with its start", "pp.evaluate, further images"
FEW = 8
"""Images that an evaluation is started with: what it costs beyond them is what each further image costs."""
THEIRS = "imagecorruptions"


def measure(effort: Effort) -> Iterator[Result]:
    """Five tables."""
    declare_operators()
    size, batch = (32, 4) if effort.quick else (224, 8)
    about, rounds = f"ResNet-18, batch {batch}, {size} px, 1 thread, CPU time", effort.turns(3)
    with tempfile.TemporaryDirectory() as root, one_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # an untrained network is no better than chance
        write_folder(Path(root), 4 if effort.quick else 16, 16 * batch)
        steps = {name: step(root, size, batch, name) for name in (BARE, PLAIN, ERM, PDE)}
        seconds = take_turns(steps, rounds, time.process_time, steady=True)
        each = {name: 1000 * value / batch for name, value in seconds.items()}
        yield Result(f"finetune, step: {about}", each, "ms/image", PLAIN, {PDE: "≤ 2.6"}, rounds)
        loaded, load_all = load(root, size, batch), partial(load, root, size, batch)
        loading = take_turns({LOADER: load_all}, rounds, time.process_time)[LOADER]
        rates = {STEP: batch / seconds[PLAIN], LOADER: loaded / loading}
        title = f"finetune, loader of {PICTURE[0]}×{PICTURE[1]} JPEG files: {about}"
        yield Result(title, rates, "images/s", STEP, {LOADER: "≥ 1.1"}, rounds)
        yield _evaluation(root, size, batch, rounds, about)
        yield from _corruptions(size, 2 if effort.quick else 8, rounds)
        files = 40 if effort.quick else 50_000
        added = peak_memory(partial(folder_of, root, size, batch, files))
        title = f"finetune, peak memory that a streamed folder of {files:,} pictures and two steps add: {about}"
        yield Result(title, {PDE: added, "the budget": 1500.0}, "MiB", "the budget", {PDE: "≤ 1"})


def write_folder(root: Path, drawn: int, files: int) -> None:
    """Two classes of JPEG files, `files` in all: so many drawn pictures, each under several names."""
    images = draw("photo", drawn, 256, generator_for(0, "bench")).images[:drawn]
    for label in ("a", "b"):
        (root / label).mkdir()
    for i in range(files):
        path = root / "ab"[i % 2] / f"{i:06d}.jpg"
        if i < drawn:
            Image.fromarray(images[i].permute(1, 2, 0).numpy()).resize(PICTURE).save(path, quality=90)
        else:
            os.link(root / "ab"[(i % drawn) % 2] / f"{i % drawn:06d}.jpg", path)


def open_folder(root: str, size: int, batch: int, method: str, memory_gb: float = 2.0) -> Session:
    """The session of `pdeplus train finetune` on this folder, with weights that are drawn."""
    settings = [f"data.root={root}", f"data.size={size}", f"data.memory_gb={memory_gb}"]
    settings += [f"train.batch_size={batch}", "train.accumulate=1"]
    settings += [
        f"model.name={TINY if size < 64 else NETWORK}",
        "model.pretrained=false",
        "train.precision=fp32",
        "train.lr=1e-5",
    ]
    settings += ["train.validation=0.02", f"method.name={method}", "data.held_out=0.02"]
    return prepare(fitted(load_config("finetune", settings)))[0]


def step(root: str, size: int, batch: int, arm: str) -> Callable[[], object]:
    """A training step on images in memory: of the preset, or as one writes it by hand."""
    session = open_folder(root, size, batch, "pde_plus" if arm == PDE else "erm")
    images, labels = session.on_device(session.split.train.take(torch.arange(batch)))
    stream, transform = generator_for(0, "bench steps"), session.split.transform
    if arm in (ERM, PDE):
        examples = Batch(images, labels, transform, stream, session.settings.label_smoothing)
        tools = session.optimizers, session.engine, session.settings.clip_norm
        return partial(train_step, session.model.train(), session.method, examples, *tools)
    optimizer = torch.optim.AdamW(session.model.parameters(), 1e-5, weight_decay=0.05)
    fixed = transform(images, stream)

    def by_hand() -> None:
        x = fixed if arm == BARE else transform(images, stream)
        optimizer.zero_grad()
        F.cross_entropy(session.model(x), labels, label_smoothing=0.1).backward()
        nn.utils.clip_grad_norm_(session.model.parameters(), 1.0)
        optimizer.step()

    session.model.train()
    return by_hand


def load(root: str, size: int, batch: int) -> int:
    """All pictures of the folder from disk, in batches of floats at the size at which training keeps them."""
    source = ImageFolder(root=root, size=size, read_size=round(size / 0.95), memory_gb=0, held_out=0.02)
    images = source.train()
    for part in images.batches(torch.arange(len(images)).split(batch)):
        part.floats()
    return len(images)


def _evaluation(root: str, size: int, batch: int, rounds: int, about: str) -> Result:
    session = open_folder(root, size, batch, "erm")
    net, found = session.model.eval().to(memory_format=torch.contiguous_format), session.split.train
    pixels = torch.nn.functional.interpolate(found.images.float(), size).to(torch.uint8)
    data, x = Images(pixels, found.labels), pixels.float() / 255
    few = data.take(torch.arange(FEW))
    arms = {
        FORWARD: partial(_forward, net, x, batch),
        OURS: partial(evaluate, net, "clean", data=(data.images, data.labels), batch_size=batch, name="bare"),
        FURTHER: partial(evaluate, net, "clean", data=(few.images, few.labels), batch_size=batch, name="bare"),
    }
    seconds = take_turns(arms, rounds, time.process_time)
    further = (len(x) - FEW) / max(seconds[OURS] - seconds[FURTHER], 1e-9)
    rates = {name: len(x) / seconds[name] for name in (FORWARD, OURS)} | {FURTHER: further}
    title = f"finetune, evaluation of {len(x)} images: {about}"
    return Result(title, rates, "images/s", FORWARD, {FURTHER: "≥ 0.95"}, rounds)


@torch.inference_mode()
def _forward(net: nn.Module, x: Tensor, batch: int) -> None:
    for part in x.split(batch):
        net(part)


def _corruptions(size: int, images: int, rounds: int) -> Iterator[Result]:
    """The fifteen at one severity, by us and by the package, on the same images."""
    package = reference_package()
    if package is None:
        return
    pixels = draw("photo", images, size, generator_for(0, "bench")).images.permute(0, 2, 3, 1).contiguous().numpy()
    arms = dict[tuple[str, str], Callable[[], Any]]()
    for name in CORRUPTIONS:
        arms["ours", name] = partial(corrupt, pixels, name, SEVERITY, "imagenet")
        arms[THEIRS, name] = partial(_one_by_one, package, pixels, name)
    seconds = take_turns(arms, rounds, time.process_time)
    each = {f"{who}, {name}": 1000 * value / images for (who, name), value in seconds.items()}
    total = {who: sum(value for name, value in each.items() if name.startswith(who)) for who in ("ours", THEIRS)}
    title = f"finetune, corruptions at {size} px, severity {SEVERITY}, {images} images, 1 thread, CPU time"
    yield Result(title, total | each, "ms/image", "ours", {THEIRS: "≥ 5"}, rounds)


def _one_by_one(package: ModuleType, pixels: np.ndarray, name: str) -> None:
    for image in pixels:
        package.corrupt(image, severity=SEVERITY, corruption_name=name)


def reference_package() -> ModuleType | None:
    """imagecorruptions where it is installed; it needs two names that NumPy and scikit-image have dropped since."""
    try:
        import imagecorruptions  # type: ignore[reportMissingImports]
        from imagecorruptions import corruptions  # type: ignore[reportMissingImports]
    except ImportError:
        return None
    np.float_ = np.float64  # type: ignore[reportAttributeAccessIssue]
    smooth = corruptions.gaussian

    def gaussian(image: np.ndarray, *given: Any, multichannel: bool = False, **more: Any) -> np.ndarray:
        return smooth(image, *given, channel_axis=-1 if multichannel else None, **more)

    corruptions.gaussian = gaussian
    return imagecorruptions


def folder_of(root: str, size: int, batch: int, files: int) -> Callable[[], object]:
    """Training by PDE+ from a folder of so many pictures, which is written in a folder of its own first."""
    declare_operators()
    many = Path(root) / "many"
    if not many.exists():
        many.mkdir()
        write_folder(many, 4, files)
    session = open_folder(str(many), size, batch, "pde_plus", memory_gb=0.5)
    assert session.split.train.stored.kept is None or files < 10_000, "it is not streamed"  # type: ignore[reportAttributeAccessIssue]
    coming = session.split.train.batches(session.batches(0))
    numbers = count()

    def work() -> None:
        x, labels = session.on_device(next(coming))
        examples = Batch(x, labels, session.split.transform, generator_for(0, "bench steps", next(numbers)))
        train_step(session.model.train(), session.method, examples, session.optimizers, session.engine)

    return work
