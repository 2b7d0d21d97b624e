"""Models under test: what a run, a module, an ONNX file or a function predicts, and what it says of itself.

Networks are tested as a copy that predicts faster: BatchNorm folded into convolutions, channels-last memory.
"""

import copy
import hashlib
import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, cast, final

import torch
from torch import Tensor, nn
from torch.fx import Node, Tracer
from torch.nn.modules.batchnorm import _BatchNorm  # type: ignore[reportPrivateUsage]
from torch.nn.utils.fusion import fuse_conv_bn_eval

from .._lib.seeds import generator_for
from ..core.add_block import ADDBlock
from ..core.batch_norm import SplitBatchNorm
from ..core.context import diffusion
from ..core.network import compile_network, device_of, evaluating, logits_of, memory_layout
from ..core.prediction import Average, predict
from ..data.base import Images
from ..errors import UserError, check_choice
from ..methods.base import overlaps_of, with_samples
from ..training.config import config_hash
from ..training.run_folder import Run, build_method, build_source, split_of, transform_of
from .cost import parameters_used, prediction_flops, training_flops
from .given_models import Given, class_order, in_order, resizing
from .test_sets import TestSuite

ADAPTED = " + BatchNorm of the test batch (uses test images)"
"""Marks a model whose BatchNorm is adapted."""
TOLERANCE = 1e-4
"""Largest difference of a fast copy's logits, relative to the largest: one that differs by more is not used."""
COMPARED = 2
"""Images on which a fast copy is compared with the network: each costs as much as testing two more."""
Outputs = Literal["logits", "probabilities"]
Predict = Callable[[Tensor, torch.Generator | None], Tensor]


@final
@dataclass(frozen=True, kw_only=True)
class ModelUnderTest:
    """A model ready to be tested."""

    predict: Predict
    """Class probabilities of float images in [0, 1]."""
    device: torch.device
    about: Mapping[str, Any]
    """Fields of its records."""
    model: Callable[[Tensor], Any]
    """What computes its outputs from float images, without noise: where it is a torch module, an attack freezes it."""
    outputs: Outputs = "logits"
    cost: Callable[[], Mapping[str, Any]]
    """Fields of its records that tell its cost, counted when they are asked for."""
    classes: tuple[str, ...] | None
    """What it tells apart, where that is known."""
    validation: Callable[[], Images] | None = None
    """Clean images it has not learnt from, to fit a temperature on."""

    @property
    def adapted(self) -> bool:
        """Whether its BatchNorm takes the statistics of the test batch."""
        return bool(self.about.get("adapted"))


@final
@dataclass(frozen=True, kw_only=True)
class HowTested:
    """How a model is to predict, and what tables call it; None stands for its own choice."""

    samples: int | None
    average: Average | None
    name: str | None
    compile: bool
    adapt: bool


def tested_run(
    run: Run, how: HowTested, *, selection: str, weights: Path, epoch: int | None, wanted: TestSuite
) -> ModelUnderTest:
    """A run with some of its weights, predicting as its method does, its classes in the order of the wanted tests."""
    config, expects = run.config, run.expects
    method = with_samples(build_method(config), config.method.name, how.samples, how.average)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    net, classes = run.load_weights(weights).to(device), expects.classes
    order = None if wanted.open_classes else class_order(classes, wanted.classes, wanted.data)
    if order is not None:
        in_order(net, order)
        classes = tuple(classes[i] for i in order)
    example = torch.rand(COMPARED, *expects.shape, generator=generator_for(0, "example")).to(device)
    fast = adapting_copy(net) if how.adapt else fast_copy(net, example, compile=how.compile)
    metrics, source = run.metrics, build_source(config)
    passes = method.samples
    claimed = overlaps_of(method, transform_of(config, source))
    cores = [record["core_seconds"] for record in metrics if "core_seconds" in record]
    about = {
        "model": (how.name or method.label) + ADAPTED * how.adapt,
        "adapted": how.adapt,
        "seed": config.seed,
        "config": config_hash(config),
        "weights": hash_of(run.read_weights(weights)),
        "selection": selection,
        "epoch": epoch,
        "samples": passes,
        "average": method.average,
        "overlaps": tuple(sorted({name for names in claimed.values() for name in names})),
        "train_seconds": sum(record["seconds"] for record in metrics),
        "train_core_seconds": sum(cores) if len(cores) == len(metrics) else None,
    }

    def cost() -> dict[str, Any]:
        images = sum(record.get("images_per_second", math.nan) * record["seconds"] for record in metrics)
        stream = generator_for(0, "cost", device=device)
        return {
            "parameters": parameters_used(net, passes),
            "flops": prediction_flops(lambda x: method.predict(net, x, stream), example[:1]),
            "train_flops": None if math.isnan(images) else training_flops(config, method, expects, round(images)),
        }

    return ModelUnderTest(
        predict=partial(method.predict, fast),
        device=device,
        about=about,
        model=fast,
        cost=cost,
        classes=classes,
        validation=None if order or how.adapt else lambda: split_of(config, source).validation,
    )


def tested_model(
    model: object, how: HowTested, *, outputs: Outputs, example: Tensor, wanted: TestSuite
) -> ModelUnderTest:
    """A module, a model by name or any other function from float images in [0, 1] to logits (or probabilities)."""
    check_choice("outputs", outputs, Outputs)
    passes, average, adapt, name = how.samples or 0, how.average or "probabilities", how.adapt, how.name
    check_choice("average", average, Average)
    classes = None
    if isinstance(model, Given):
        given, name = model, name or model.label
        model, classes = _as_wanted(given, wanted, example.shape[-1])
        weights = given.mark or hash_of(cast(nn.Module, model).state_dict())
    elif isinstance(model, nn.Module):
        weights = hash_of(model.state_dict())
    elif callable(model):
        weights = "function"
    else:
        raise UserError(f"a {type(model).__name__} cannot be evaluated: give a run, a torch module or a function")
    noisy = isinstance(model, nn.Module) and any(isinstance(module, ADDBlock) for module in model.modules())
    if passes and not noisy:
        raise UserError(f"samples={passes}: the model has no ADD blocks and no noise to sample; leave it out or use 0")
    if passes and outputs == "probabilities":
        raise UserError(f"samples={passes} needs a model that returns logits, not outputs='probabilities'")
    device, network = torch.device("cpu"), None
    if adapt and not isinstance(model, nn.Module):
        raise UserError("BatchNorm can only be adapted in a torch module; leave out --adapt (Python: adapt)")
    if isinstance(model, nn.Module):
        device = device_of(model)
        network = (
            adapting_copy(model) if adapt else fast_copy(model, example[:COMPARED].to(device), compile=how.compile)
        )
    elif how.compile:
        warnings.warn("torch.compile is ignored: the model is not a torch module", stacklevel=2)
    function = cast(Callable[[Tensor], Any], model if network is None else network)

    def run(x: Tensor, generator: torch.Generator | None) -> Tensor:
        if network is not None and passes:
            return predict(network, x, passes, generator=generator, average=average)
        return _probabilities(function(x), len(x), outputs)

    def cost() -> dict[str, Any]:
        if not isinstance(model, nn.Module):
            return {}
        stream, one = generator_for(0, "cost", device=device), example[:1].to(device)
        with evaluating(model):  # an adapted copy could not take one image
            flops = prediction_flops(lambda x: logits_of(model(x)) if adapt else run(x, stream), one)
        return {"parameters": parameters_used(model, passes), "flops": flops}

    name = (name or getattr(model, "__name__", type(model).__name__)) + ADAPTED * adapt
    about = {"model": name, "adapted": adapt, "seed": 0, "selection": "given", "samples": passes, "average": average}
    return ModelUnderTest(
        predict=run,
        device=device,
        about=about | _fingerprint(weights, run, example.to(device)),
        model=function,
        outputs=outputs,
        cost=cost,
        classes=classes,
    )


def _as_wanted(given: Given, wanted: TestSuite, side: int) -> tuple[Callable[[Tensor], Any], tuple[str, ...] | None]:
    """The model with its classes in the order of the tests, and its images resized where they are of another size."""
    model, classes = given.model, given.expects.classes
    if isinstance(model, nn.Module):
        model = copy.deepcopy(model)
        if given.expects.facts is not None and given.expects.shape[-1] != side:
            resizing(model, given.expects.shape[-1])
    if classes and not wanted.open_classes:
        order = class_order(classes, wanted.classes, wanted.data)
        if order is not None:
            return in_order(model, order), tuple(classes[i] for i in order)
    return model, classes or None


def adapting_copy(net: nn.Module) -> nn.Module:
    """A copy whose BatchNorm normalises by the statistics of each test batch (Nado et al., 2020), else in eval mode.

    Nothing is kept from one batch to the next. A network without BatchNorm is refused.
    """
    adapted = copy.deepcopy(net).eval()
    norms = [m for m in adapted.modules() if isinstance(m, _BatchNorm | SplitBatchNorm)]
    if not norms:
        raise UserError(f"{type(net).__name__} has no BatchNorm to adapt; leave out --adapt (Python: adapt)")
    for norm in norms:
        norm.train()
        norm.momentum = 0.0
    return adapted


def hash_of(weights: Mapping[str, Tensor]) -> str:
    """A short hash that tells weights apart."""
    digest = hashlib.sha256()
    for name, tensor in sorted(weights.items()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:12]


@torch.inference_mode()
def _fingerprint(weights: str, run: Predict, example: Tensor) -> dict[str, str]:
    """Hashes that tell models apart by their weights and by their answers to an example, which code decides as well."""
    answers = run(example, generator_for(0, "fingerprint", device=example.device)).double().cpu()
    text = weights + ",".join(f"{float(p):.4f}" for p in answers.flatten())
    mark = hashlib.sha256(text.encode()).hexdigest()[:12]
    return {"config": mark, "weights": mark}


def _probabilities(answer: Any, n: int, outputs: Outputs) -> Tensor:
    """Class probabilities from what a model returned for n images, if it is what `outputs` says."""
    found = logits_of(answer).float()
    if found.ndim != 2 or len(found) != n:
        shape = "×".join(map(str, found.shape))
        raise UserError(f"the model returns {shape} for {n} images; {n}×classes is needed")
    alike = bool((found >= 0).all()) and bool(((found.sum(-1) - 1).abs() < 1e-3).all())
    if outputs == "logits" and alike:
        raise UserError("the model returns probabilities: its rows sum to 1; set outputs='probabilities'")
    if outputs == "probabilities" and not alike:
        raise UserError("outputs='probabilities', but the model's rows do not sum to 1; set outputs='logits'")
    return found.softmax(-1) if outputs == "logits" else found


@torch.no_grad()
def fast_copy(net: nn.Module, example: Tensor, *, compile: bool = False) -> nn.Module:
    """A copy in eval mode with the same predictions up to rounding; ADD blocks still work.

    What cannot be followed or does not come out equal on `example` (float B×C×H×W) is left as it was.
    """
    try:
        kept, fast = (copy.deepcopy(net).eval() for _ in range(2))
    except Exception:  # a user's network may hold what cannot be copied
        if compile:
            warnings.warn("torch.compile is ignored: the network cannot be copied", stacklevel=2)
        return _InEvalMode(net)
    try:
        for part in [fast, *(module.body for module in fast.modules() if isinstance(module, ADDBlock))]:
            fold_batch_norm(part)
        fast.to(memory_format=memory_layout(fast, True, example.device))  # type: ignore[reportCallIssue]
        pairs = zip(_results(kept, example), _results(fast, example), strict=True)
        same = all(bool((q - p).abs().max() <= TOLERANCE * p.abs().max().clamp(min=1)) for p, q in pairs)
    except Exception:  # a user's network may refuse to be traced, or to be run on memory laid out otherwise
        same = False
    fast = fast if same else kept
    if compile:
        compile_network(fast)
    return fast


@final
class _InEvalMode(nn.Module):
    """Calls a network in eval mode and leaves it in the mode it was in."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Any:
        with evaluating(self.net):
            return self.net(x)


def fold_batch_norm(net: nn.Module) -> None:
    """Put each BatchNorm that alone follows a convolution into that convolution's weights, in place, in eval mode."""
    modules: dict[str, nn.Module] = dict(net.named_modules())  # type: ignore[reportUnknownArgumentType]
    called = [node for node in Tracer().trace(net).nodes if node.op == "call_module"]
    times = {str(node.target): sum(other.target == node.target for other in called) for node in called}
    for node in called:
        source = node.args[0] if len(node.args) == 1 else None
        if not isinstance(source, Node) or source.op != "call_module" or len(source.users) != 1:
            continue
        conv, norm = modules[str(source.target)], modules[str(node.target)]
        if times[str(source.target)] == times[str(node.target)] == 1 and _can_fold(conv, norm):
            net.set_submodule(str(source.target), fuse_conv_bn_eval(conv, norm))  # type: ignore[reportArgumentType]
            net.set_submodule(str(node.target), nn.Identity())


def _can_fold(conv: nn.Module, norm: nn.Module) -> bool:
    if not isinstance(conv, nn.Conv2d) or not isinstance(norm, nn.BatchNorm2d) or norm.running_mean is None:
        return False
    hooks = ("_forward_hooks", "_forward_pre_hooks")  # an ADD block may hang there
    return not any(getattr(module, kind) for module in (conv, norm) for kind in hooks)


def _results(net: nn.Module, x: Tensor) -> list[Tensor]:
    """Logits and, where there are ADD blocks, the features and σ of each."""
    blocks = {module.name: module for module in net.modules() if isinstance(module, ADDBlock)}
    if not blocks:
        return [logits_of(net(x)).float()]
    with diffusion(net, active=False) as trace:
        logits = logits_of(net(x)).float()
    scales = [blocks[name].scale(h).float() for name, h in zip(trace.names, trace.means, strict=True)]
    return [logits, *(h.float() for h in trace.means), *scales]
