"""A trained run at work: the plain network it leaves behind, its predictions for pictures, its export into one file."""

import contextlib
import copy
import io
import json
import logging
import os
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, cast, final

import torch
from torch import Tensor, nn

from .._lib.files import aside, write_synced
from .._lib.registry import require
from .._lib.seeds import generator_for
from ..core.add_block import ADDBlock
from ..core.batch_norm import SplitBatchNorm
from ..core.context import no_diffusion
from ..core.network import evaluating, logits_of
from ..core.prediction import averaged, sample_logits
from ..core.surgery import CHILD, ADDBlocks
from ..data._pictures import fit_square, picture_files, read_picture
from ..errors import RunFailed, UserError, check_choice, check_least, reason_of
from ..methods.base import with_samples
from ..training.run_folder import Expects, Run, Selection, build_method
from .given_models import Given, OnnxModel, is_run, names_a_model, open_model

BATCH = 64
"""Pictures per forward pass."""
Format = Literal["onnx", "torch"]
SUFFIX = {"onnx": ".onnx", "torch": ".pt2"}
TOLERANCE = 1e-4
"""Largest difference of a logit between file and network."""
BATCH_SIZES = (1, 2, 5)
"""Batch sizes at which the two are compared."""


def load_model(path: str | Path, selection: Selection = "validation", *, trust_code: bool = False) -> nn.Module:
    """A run's network, or one by URI, as a plain classifier: float images in [0, 1], B×C×H×W, to logits, B×classes.

    It is in eval mode and deterministic; gradients reach the images, and no parameter asks for one. Code outside
    pdeplus that the folder's config names is refused unless `trust_code` is true.
    """
    if not is_run(path) and names_a_model(str(path)):
        model = open_model(path).model
        if not isinstance(model, nn.Module):
            raise UserError(f"{path} is not a torch module; pp.evaluate and pdeplus predict take it as it is")
        return model
    return plain(Run.load(path, trust_code=trust_code).network(selection)).requires_grad_(False)


def plain(net: nn.Module) -> nn.Module:
    """A copy of `net` in eval mode without ADD blocks, with ordinary BatchNorms in place of split ones.

    Its output equals that of `net` in eval mode with diffusion off bit for bit; `net` is left as it was.
    """
    model = copy.deepcopy(net).eval()
    for module in list(model.modules()):
        kinds = module._forward_hooks, module._forward_pre_hooks  # type: ignore[reportPrivateUsage]
        for hooks in cast(tuple[dict[int, Any], ...], kinds):
            for key in [key for key, hook in hooks.items() if isinstance(getattr(hook, "block", None), ADDBlock)]:
                del hooks[key]
        if isinstance(getattr(module, CHILD, None), ADDBlocks):
            delattr(module, CHILD)
    for module in list(model.modules()):
        for name, split in module.named_children():
            if isinstance(split, SplitBatchNorm):  # of whose statistics those of plain passes remain
                norm = nn.BatchNorm2d(len(split.running_mean), split.eps, split.momentum, affine=False).eval()
                norm.weight, norm.bias, norm.affine = split.weight, split.bias, any(True for _ in split.parameters())
                norm.running_mean, norm.running_var = split.running_mean, split.running_var
                norm._forward_hooks.update(split._forward_hooks)  # type: ignore[reportPrivateUsage]
                setattr(module, name, norm)
    return model


@final
@dataclass(frozen=True, kw_only=True)
class Prediction:
    """What a model says of one picture."""

    image: str
    """The picture's path."""
    label: str
    """The most probable class."""
    probability: float
    """Probability of that class."""
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
    run: Run | Given,
    paths: Sequence[str | Path],
    *,
    samples: int | None = None,
    selection: Selection = "validation",
    top: int = 3,
    seed: int = 0,
) -> Iterator[Prediction]:
    """Predictions for picture files and for all pictures in folders, in their order.

    Equal seeds give equal answers. Pictures that cannot be read are passed over and refused by name at the end. With
    `samples` None there are as many noisy passes as the method has itself; 0 is the plain network.
    """
    check_least("top", top, 1)
    expects, method = run.expects, None
    if isinstance(run, Run):
        method = with_samples(build_method(run.config), run.config.method.name, samples, None)
    elif samples:
        raise UserError(f"samples={samples}: {run.label} has no noise to sample; leave it out or use 0")
    channels, height, width = expects.shape
    if channels not in (1, 3) or height != width:
        wanted = "×".join(map(str, expects.shape))
        name = run.path if isinstance(run, Run) else run.label
        raise UserError(f"{name} takes images of {wanted}; pictures can be made 1×S×S or 3×S×S only")
    net, broken, start = run.network(selection) if isinstance(run, Run) else run.model, list[str](), 0
    passes, average = (method.samples, method.average) if method else (0, "probabilities")
    for names, x in _batches(paths, expects, broken):
        if passes and isinstance(net, nn.Module):
            logits = sample_logits(net, x, passes, generator=generator_for(seed, "predict", start))
        elif isinstance(net, nn.Module):
            with torch.no_grad(), evaluating(net), no_diffusion(net):
                logits = logits_of(net(x))[None]
        else:
            logits = logits_of(net(x))[None]
        best, order = averaged(logits, average).sort(stable=True, dim=-1, descending=True)
        each = logits.softmax(-1)
        for i, name in enumerate(names):
            labels = [expects.classes[int(k)] if expects.classes else str(int(k)) for k in order[i, :top]]
            yield Prediction(
                image=name,
                label=labels[0],
                probability=float(best[i, 0]),
                spread=float(each[:, i, order[i, 0]].std(correction=0)) if passes else None,
                top=tuple(zip(labels, map(float, best[i, :top]), strict=True)),
                samples=passes,
            )
        start += len(names)
    if broken:
        raise UserError("; ".join(broken))


def format_predictions(predictions: Sequence[Prediction]) -> str:
    """Predictions as a table with aligned columns; the spread has a column where there is one."""
    rows = [["image", "label", "probability", "spread", "next"]]
    for p in predictions:
        others = ", ".join(f"{label} {probability:.3f}" for label, probability in p.top[1:])
        spread = "" if p.spread is None else f"{p.spread:.3f}"
        image = os.fsencode(p.image).decode("utf-8", "replace")  # bytes that are no text are shown as marks
        rows.append([image, p.label, f"{p.probability:.3f}", spread, others])
    shown = [i for i in range(len(rows[0])) if any(row[i] for row in rows[1:])]
    widths = [max(len(row[i]) for row in rows) for i in shown]
    lines = ["  ".join(row[i].ljust(width) for i, width in zip(shown, widths, strict=True)) for row in rows]
    return "\n".join(line.rstrip() for line in lines)


@final
@dataclass(frozen=True, kw_only=True)
class Exported:
    """A file that holds a network, and how far its logits are from the network's."""

    path: Path
    bytes: int
    difference: float
    weights: str
    """The epoch of the weights and how it was selected."""

    def __str__(self) -> str:
        sizes = ", ".join(map(str, BATCH_SIZES))
        agreement = f"logits within {self.difference:.1e} of torch's at batches of {sizes}"
        return f"{self.path}: {self.bytes / 1e6:.2f} MB, weights of {self.weights}, {agreement}"


def export(
    run: Run | Given,
    format: Format,
    out: str | Path | None = None,
    *,
    selection: Selection = "validation",
    force: bool = False,
) -> Exported:
    """Write the plain network of a run, or one by URI, into one file; `out` is model.onnx or model.pt2 in its folder.

    The file takes float images in [0, 1], B×C×H×W with any B, and gives logits. One that disagrees with the network is
    not left behind, and an existing file stays as it was unless `force` is true.
    """
    check_choice("format", format, Format)
    folder = run.path if isinstance(run, Run) else Path()
    path = Path(out) if out is not None else folder / f"model{SUFFIX[format]}"
    if path.is_dir():
        raise UserError(f"{path} is a folder; give --out a file's name")
    if path.exists() and not force:
        raise UserError(f"{path} exists already; overwrite it with --force, or choose another --out")
    if not path.parent.is_dir():
        raise UserError(f"{path}: there is no folder {path.parent}; make it first, or choose another --out")
    if format == "onnx":
        require("onnx", "onnxscript", "onnxruntime", purpose="export --format onnx", extra="onnx")
    if isinstance(run, Run):
        model, weights = load_model(run.path, selection, trust_code=run.trust_code), run.weights(selection)[0]
        weights, expects = f"epoch {weights} ({selection})", run.expects
    elif isinstance(run.model, nn.Module):
        model, weights, expects = run.model, run.label, run.expects
    else:
        raise UserError(f"{run.label} is an exported file already; a network by URI or a run can be exported")
    data = _encoded(model, expects, format)
    with aside(path) as written:
        write_synced(written, data)
        gap = _compared(model, expects, format, written)
        if not gap <= TOLERANCE:
            raise RunFailed(f"{path} was not written: its logits are {gap:.1e} from torch's, above {TOLERANCE:g}")
    return Exported(path=path, bytes=path.stat().st_size, difference=gap, weights=weights)


@torch.no_grad()
def difference(model: nn.Module, exported: Callable[[Tensor], Tensor], shape: tuple[int, int, int]) -> float:
    """The largest difference of a logit on seeded random images, at every size in BATCH_SIZES."""
    images = [torch.rand(size, *shape, generator=generator_for(0, "export", size)) for size in BATCH_SIZES]
    return float(torch.stack([(model(x) - exported(x)).abs().max() for x in images]).max())


def _encoded(model: nn.Module, expects: Expects, format: Format) -> bytes:
    """The network as the bytes of a file, with what it says of itself.

    The exporters do not write it themselves: on a full disk they would end the process.
    """
    channels, height, width = expects.shape
    about = {"classes": json.dumps(expects.classes), "input": f"float B×{channels}×{height}×{width} in [0, 1]"}
    example = torch.zeros(2, *expects.shape)  # from a batch of one the exporter would conclude that it is always one
    shapes = ({0: torch.export.Dim("batch")},)
    with _exporting(format):
        if format == "onnx":
            names: dict[str, Any] = {"input_names": ["images"], "output_names": ["logits"]}
            onnx: Any = torch.onnx.export(model, (example,), dynamo=True, dynamic_shapes=shapes, verbose=False, **names)
            for node in onnx.model.graph:
                node.metadata_props.clear()  # it names files of this machine
            onnx.model.metadata_props.update(about)
            return onnx.model_proto.SerializeToString()
        program = torch.export.export(model, (example,), dynamic_shapes=shapes)
        for node in program.graph.nodes:
            node.meta.pop("stack_trace", None)  # it names files of this machine
        buffer = io.BytesIO()
        torch.export.save(program, buffer, extra_files=dict[str, Any](about))
        return buffer.getvalue()


def _compared(model: nn.Module, expects: Expects, format: Format, path: Path) -> float:
    """The largest difference of a logit between the network and the file."""
    with _exporting(format):
        read = OnnxModel(path) if format == "onnx" else torch.export.load(io.BytesIO(path.read_bytes())).module()
        return difference(model, read, expects.shape)


@contextlib.contextmanager
def _exporting(format: Format) -> Generator[None]:
    """Within it the exporters are quiet, and what they raise is told in one line."""
    try:
        with _quiet():
            yield
    except OSError:
        raise
    except Exception as error:  # a network of the user's own may hold anything
        raise RunFailed(f"the network cannot be exported as {format}: {reason_of(error, 300)}") from error


@contextlib.contextmanager
def _quiet() -> Generator[None]:
    """The exporters' remarks, meant for their developers, are not shown."""
    silence, before = io.StringIO(), logging.root.manager.disable
    with warnings.catch_warnings(), contextlib.redirect_stdout(silence), contextlib.redirect_stderr(silence):
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        try:
            yield
        finally:
            logging.disable(before)


def _batches(paths: Sequence[str | Path], expects: Expects, broken: list[str]) -> Iterator[tuple[list[str], Tensor]]:
    """Names and images, B×C×S×S in [0, 1]; what cannot be read goes into `broken` in a line each."""
    names, images = list[str](), list[Tensor]()
    facts = expects.facts
    square = partial(fit_square, crop=facts.crop, interpolation=facts.interpolation) if facts else fit_square
    for path in _files(paths, broken):
        try:
            picture = square(read_picture(path), expects.shape[-1])
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
