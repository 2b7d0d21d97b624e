"""Whatever can be evaluated, made ready: a run, a torch module, an ONNX file, any function of images."""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, cast, final

import torch
from torch import Tensor, nn

from ._checkpoint import read_weights
from ._cost import parameters_used, prediction_flops, training_flops
from ._errors import UserError, check_choice
from ._fast import fast_copy
from ._network import logits_of
from ._onnx import OnnxModel
from ._seeds import generator_for
from .config import Config, to_tables
from .data.base import Images, split
from .diffusion import ADDBlock, Average, predict
from .methods.base import with_samples
from .overlap import overlaps_of
from .run import Run, build_method, build_source

Outputs = Literal["logits", "probabilities"]
Predict = Callable[[Tensor, torch.Generator | None], Tensor]


@final
@dataclass(frozen=True, kw_only=True)
class Subject:
    """A model ready to be tested."""

    predict: Predict
    """Class probabilities of float images in [0, 1]."""
    device: torch.device
    about: Mapping[str, Any]
    """What its records say of it."""
    classes: int | None
    """How many it tells apart, where that is known before it is run."""
    validation: Callable[[], Images] | None = None
    """Clean images it has not learnt from, to fit a temperature on."""


def subject_of_run(
    run: Run,
    *,
    selection: str,
    weights: Path,
    epoch: int | None,
    samples: int | None,
    average: Average | None,
    name: str | None,
) -> Subject:
    """A run with some of its weights, predicting as its method does."""
    config, expects = run.config, run.expects
    method = with_samples(build_method(config), config.method.name, samples, average)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    net = run.load_weights(weights).to(device)
    example = torch.rand(2, *expects.shape, generator=generator_for(0, "example")).to(device)
    fast = fast_copy(net, example)
    metrics, source = run.metrics, build_source(config)
    images = sum(record["images_per_second"] * record["seconds"] for record in metrics)
    passes = int(getattr(method, "samples", 0))
    claimed = overlaps_of(method, source.transform)
    about = {
        "model": name or getattr(method, "label", config.method.name),
        "seed": config.seed,
        "config": config_hash(config),
        "weights": hash_of(read_weights(weights)),
        "selection": selection,
        "epoch": epoch,
        "samples": passes,
        "average": getattr(method, "average", "probabilities"),
        "overlaps": tuple(sorted({name for names in claimed.values() for name in names})),
        "parameters": parameters_used(net, passes),
        "flops": prediction_flops(
            lambda x: method.predict(net, x, generator_for(0, "cost", device=device)), example[:1]
        ),
        "train_seconds": sum(record["seconds"] for record in metrics),
        "train_flops": training_flops(config, method, expects, round(images)),
    }

    def held_out() -> Images:
        train = config.train
        return split(source, validation=train.validation, limit=train.limit, seed=config.seed).validation

    def run_predict(x: Tensor, generator: torch.Generator | None) -> Tensor:
        return method.predict(fast, x, generator)

    return Subject(predict=run_predict, device=device, about=about, classes=len(expects.classes), validation=held_out)


def subject_of_model(
    model: object, *, samples: int | None, average: Average | None, name: str | None, outputs: Outputs, example: Tensor
) -> Subject:
    """A module, an ONNX file or any other function from float images in [0, 1] to logits (or probabilities)."""
    check_choice("outputs", outputs, Outputs)
    if isinstance(model, str | Path):
        if Path(model).suffix != ".onnx":
            raise UserError(f"{model} is neither a run folder nor an .onnx file")
        weights = hashlib.sha256(Path(model).read_bytes()).hexdigest()[:12] if Path(model).is_file() else ""
        model, name = OnnxModel(model), name or Path(model).stem
    elif isinstance(model, nn.Module):
        weights = hash_of(model.state_dict())
    elif callable(model):
        weights = ""
    else:
        raise UserError(f"a {type(model).__name__} cannot be evaluated: give a run, a torch module or a function")
    passes = samples or 0
    noisy = isinstance(model, nn.Module) and any(isinstance(module, ADDBlock) for module in model.modules())
    if passes and not noisy:
        raise UserError(f"samples={passes}: the model has no ADD blocks and no noise to sample; leave it out or take 0")
    if passes and outputs == "probabilities":
        raise UserError(f"samples={passes} needs a model that returns logits, not outputs='probabilities'")
    about = {
        "model": name or getattr(model, "__name__", type(model).__name__),
        "seed": 0,
        "config": weights,
        "weights": weights,
        "selection": "given",
        "samples": passes,
        "average": average or "probabilities",
    }
    if not isinstance(model, nn.Module):
        run = _as_predict(cast(Callable[[Tensor], Any], model), outputs)
        known = getattr(model, "classes", None)
        return Subject(predict=run, device=torch.device("cpu"), about=about, classes=len(known) if known else None)
    first = next(iter(model.parameters()), None)
    device = first.device if first is not None else torch.device("cpu")
    fast = fast_copy(model, example.to(device))
    run = _as_predict(fast, outputs)
    if passes:
        run = _with_noise(fast, passes, average or "probabilities")
    about["parameters"] = parameters_used(model, passes)
    about["flops"] = prediction_flops(lambda x: run(x, generator_for(0, "cost", device=device)), example[:1].to(device))
    return Subject(predict=run, device=device, about=about, classes=None)


def config_hash(config: Config) -> str:
    """Tells configs apart but for their name, their seed and the place of their data."""
    tables = to_tables(replace(config, name="", seed=0))
    if config.data.name != "image_folder":  # whose root is the data set
        tables["data"].pop("root", None)
    return hashlib.sha256(json.dumps(tables, sort_keys=True).encode()).hexdigest()[:12]


def hash_of(weights: Mapping[str, Tensor]) -> str:
    """Tells weights apart."""
    digest = hashlib.sha256()
    for name, tensor in sorted(weights.items()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:12]


def _with_noise(net: nn.Module, samples: int, average: Average) -> Predict:
    return lambda x, generator: predict(net, x, samples, generator=generator, average=average)


def _as_predict(model: Callable[[Tensor], Any], outputs: Outputs) -> Predict:
    def run(x: Tensor, generator: torch.Generator | None) -> Tensor:
        made = logits_of(model(x)).float()
        if made.ndim != 2 or len(made) != len(x):
            shape = "×".join(map(str, made.shape))
            raise UserError(f"the model returns {shape} for {len(x)} images; {len(x)}×classes is needed")
        alike = bool((made >= 0).all()) and bool(((made.sum(-1) - 1).abs() < 1e-3).all())
        if outputs == "logits" and alike:
            raise UserError("the model returns probabilities: its rows sum to 1; say outputs='probabilities'")
        if outputs == "probabilities" and not alike:
            raise UserError("outputs='probabilities', but the model's rows do not sum to 1; say outputs='logits'")
        return made.softmax(-1) if outputs == "logits" else made

    return run
