"""A trained run at work: the plain network it leaves behind, and its answers on pictures."""

import copy
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor, nn

from ._errors import UserError
from ._network import evaluating, logits_of
from ._seeds import generator_for
from .batch_norm import SplitBatchNorm
from .data._pictures import fit_square, picture_files, read_picture
from .diffusion import CHILD, ADDBlock, ADDBlocks, no_diffusion
from .methods.base import with_samples
from .prediction import averaged, sample_logits
from .run import Expects, Run, Selection, build_method

BATCH = 64
"""Pictures per forward pass."""


def load_model(path: str | Path, selection: Selection = "validation") -> nn.Module:
    """A run's network as a plain classifier: float images in [0, 1], B×C×H×W, to logits, B×classes.

    It is in eval mode and deterministic; gradients reach the images, and no parameter asks for one.
    """
    return plain(Run.load(path).network(selection)).requires_grad_(False)


def plain(net: nn.Module) -> nn.Module:
    """A copy of `net` in eval mode without ADD blocks, with ordinary BatchNorms in place of split ones.

    Its output equals that of `net` in eval mode with diffusion off bit for bit; `net` is left as it was.
    """
    model = copy.deepcopy(net).eval()
    for module in list(model.modules()):
        for hooks in (_hooks(module), _pre_hooks(module)):
            for key in [key for key, hook in hooks.items() if isinstance(getattr(hook, "block", None), ADDBlock)]:
                del hooks[key]
        if isinstance(getattr(module, CHILD, None), ADDBlocks):
            delattr(module, CHILD)
    for module in list(model.modules()):
        for name, child in module.named_children():
            if isinstance(child, SplitBatchNorm):
                setattr(module, name, _joined(child))
    return model


@final
@dataclass(frozen=True, kw_only=True)
class Prediction:
    """What a run says of one picture."""

    image: str
    """The picture's path."""
    label: str
    """The most probable class."""
    probability: float
    """Of that class."""
    spread: float | None
    """Standard deviation over the samples of that class's probability; None without samples."""
    top: tuple[tuple[str, float], ...]
    """The most probable classes and their probabilities, best first."""
    samples: int
    """Noisy passes; 0 is the plain network."""

    def to_json(self) -> str:
        """One line."""
        return json.dumps(asdict(self))


def predict_pictures(
    run: Run,
    paths: Sequence[str | Path],
    *,
    samples: int | None = None,
    selection: Selection = "validation",
    top: int = 3,
    seed: int = 0,
) -> Iterator[Prediction]:
    """Predictions for picture files and for all pictures in folders, in their order.

    Equal seeds give equal answers. Pictures that cannot be read are passed over and refused by name at the end.

    Args:
        run: a run with weights.
        paths: files and folders.
        samples: noisy passes E; None for the method's own, 0 for the plain network.
        selection: which epoch's weights.
        top: how many classes to name.
        seed: of the noise.
    """
    if top < 1:
        raise UserError(f"top={top} must be at least 1")
    config, expects = run.config, run.expects
    method = with_samples(build_method(config), config.method.name, samples, None)
    passes = int(getattr(method, "samples", 0))
    _check_shape(run, expects)
    net, broken = run.network(selection), list[str]()
    start = 0
    for names, x in _batches(paths, expects, broken):
        generator = generator_for(seed, "predict", start)
        logits = _logits(net, x, passes, generator)
        mean = averaged(logits, getattr(method, "average", "probabilities"))
        yield from _predictions(names, mean, logits.softmax(-1) if passes else None, expects.classes, top)
        start += len(names)
    if broken:
        raise UserError("; ".join(broken))


def format_predictions(predictions: Sequence[Prediction]) -> str:
    """Predictions as a table with aligned columns; the spread has a column where there is one."""
    rows = [["image", "label", "probability", "spread", "next"]]
    for p in predictions:
        others = ", ".join(f"{label} {probability:.3f}" for label, probability in p.top[1:])
        spread = "" if p.spread is None else f"{p.spread:.3f}"
        rows.append([_printable(p.image), p.label, f"{p.probability:.3f}", spread, others])
    shown = [i for i in range(len(rows[0])) if any(row[i] for row in rows[1:])]
    widths = [max(len(row[i]) for row in rows) for i in shown]
    lines = ["  ".join(row[i].ljust(width) for i, width in zip(shown, widths, strict=True)) for row in rows]
    return "\n".join(line.rstrip() for line in lines)


@torch.no_grad()
def _logits(net: nn.Module, x: Tensor, samples: int, generator: torch.Generator) -> Tensor:
    """Of every sample, E×B×classes; of the plain network, 1×B×classes."""
    if samples:
        return sample_logits(net, x, samples, generator=generator)
    with evaluating(net), no_diffusion(net):
        return logits_of(net(x))[None]


def _predictions(
    names: Sequence[str], mean: Tensor, each: Tensor | None, classes: Sequence[str], top: int
) -> Iterator[Prediction]:
    best, order = mean.sort(stable=True, dim=-1, descending=True)
    for i, name in enumerate(names):
        labels = [classes[int(k)] for k in order[i, :top]]
        spread = None if each is None else float(each[:, i, order[i, 0]].std(correction=0))
        yield Prediction(
            image=name,
            label=labels[0],
            probability=float(best[i, 0]),
            spread=spread,
            top=tuple(zip(labels, map(float, best[i, :top]), strict=True)),
            samples=0 if each is None else len(each),
        )


def _batches(paths: Sequence[str | Path], expects: Expects, broken: list[str]) -> Iterator[tuple[list[str], Tensor]]:
    """Names and images, B×C×S×S in [0, 1]; what cannot be read goes into `broken` in a line each."""
    names, images = list[str](), list[Tensor]()
    for path in _files(paths, broken):
        try:
            picture = fit_square(read_picture(path), expects.shape[-1])
        except UserError as error:
            broken.append(str(error))
            continue
        x = torch.from_numpy(picture).permute(2, 0, 1).float().div_(255)
        names.append(str(path))
        images.append(x.mean(0, keepdim=True) if expects.shape[0] == 1 else x)
        if len(names) == BATCH:
            yield names, torch.stack(images)
            names, images = list[str](), list[Tensor]()
    if names:
        yield names, torch.stack(images)


def _files(paths: Sequence[str | Path], broken: list[str]) -> Iterator[Path]:
    for path in map(Path, paths):
        if not path.is_dir():
            yield path
            continue
        try:
            found = picture_files(path)
        except OSError as error:
            broken.append(f"{error.filename or path}: {error.strerror}")
            continue
        if not found:
            broken.append(f"{path} holds no pictures")
        yield from found


def _check_shape(run: Run, expects: Expects) -> None:
    channels, height, width = expects.shape
    if channels not in (1, 3) or height != width:
        wanted = "×".join(map(str, expects.shape))
        raise UserError(f"{run.path} takes images of {wanted}; pictures can be made 1×S×S or 3×S×S only")


def _joined(split: SplitBatchNorm) -> nn.BatchNorm2d:
    """The BatchNorm that computes what `split` does in plain passes."""
    norm = nn.BatchNorm2d(len(split.running_mean), split.eps, split.momentum, affine=False).train(split.training)
    norm.weight, norm.bias, norm.affine = split.weight, split.bias, any(True for _ in split.parameters())
    norm.running_mean, norm.running_var = split.running_mean, split.running_var
    _hooks(norm).update(_hooks(split))
    return norm


def _hooks(module: nn.Module) -> dict[int, Any]:
    return module._forward_hooks  # type: ignore[reportPrivateUsage]


def _pre_hooks(module: nn.Module) -> dict[int, Any]:
    return module._forward_pre_hooks  # type: ignore[reportPrivateUsage]


def _printable(path: str) -> str:
    """A path whose bytes are no text is shown with marks in their place."""
    return os.fsencode(path).decode("utf-8", "replace")
