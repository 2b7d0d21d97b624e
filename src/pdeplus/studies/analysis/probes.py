"""What every analysis of runs shares: the question and a section of the answer, images, networks, and passes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, final

import torch
from torch import Tensor, nn

from ..._lib.seeds import generator_for
from ...augment.base import Augmentor
from ...augment.brightness import Brightness
from ...augment.gaussian_noise import GaussianNoise
from ...augment.rotation import Rotation
from ...core.context import diffusion, no_diffusion
from ...core.network import device_of, evaluating, logits_of
from ...core.surgery import add_blocks_of
from ...data.base import Images
from ...errors import UserError, check_choice, check_least
from ...evaluation.tested_models import Outputs
from ...reports.figures import Figure, Row
from ...training.run_folder import Run, build_source, split_of

BATCH = 64
"""Images per pass: what bounds the memory."""
AUGMENTATIONS: dict[str, Augmentor] = {
    "brightness": Brightness(),
    "gaussian_noise": GaussianNoise(fraction=1.0),
    "rotation": Rotation(),
}
"""What views of images are taken from: the paper's three, by their names in the registry, each on every image."""


@final
@dataclass(frozen=True, kw_only=True)
class Question:
    """What is analysed, and on how many images."""

    runs: Mapping[str, Run]
    """The runs by their labels."""
    images: int
    seed: int

    def rows_of_each(self, gaps: list[str], find: Callable[[str, Run], list[Row]]) -> list[Row]:
        """The rows of all runs that allow them; of the others the reason goes to the gaps. Refuses where none does."""
        rows, reasons = list[Row](), list[str]()
        for label, run in self.runs.items():
            try:
                rows += find(label, run)
            except (UserError, OSError) as error:  # such as a data set that is no longer there
                reasons.append(f"{label}: {error}")
        if not rows:
            raise UserError("; ".join(reasons))
        gaps += reasons
        return rows

    def best_network(self, run: Run) -> tuple[nn.Module, Images]:
        """The network of the run's best epoch, and held-out images for it."""
        return network_of(run, run.weights("validation")[1]), held_out(run, self.images, self.seed)


@final
@dataclass(frozen=True, kw_only=True)
class Section:
    """One finding: a figure, what it shows in words, and its rows by the name of their file."""

    words: str
    figure: Figure
    tables: Mapping[str, Sequence[Row]]


def counted(images: Mapping[str, int]) -> str:
    """How many images each run was looked at with, in words."""
    return "Validation images: " + ", ".join(f"{n} for {label}" for label, n in images.items()) + "."


def held_out(run: Run, images: int, seed: int) -> Images:
    """At most so many of the run's validation images, drawn by `seed`; none was learnt from, none is a test image."""
    check_least("images", images, 1)
    validation = split_of(run.config, build_source(run.config)).validation
    order = torch.randperm(len(validation), generator=generator_for(seed, "analysis images"))
    return validation.take(order[:images])


def network_of(run: Run, weights: Path) -> nn.Module:
    """The run's network with these weights, in eval mode, on the GPU where there is one."""
    return run.load_weights(weights).to("cuda" if torch.cuda.is_available() else "cpu")


def in_batches(x: Tensor) -> list[Tensor]:
    """The images in parts that one pass takes, in order."""
    return [x[start : start + BATCH] for start in range(0, len(x), BATCH)]


def lengths(v: Tensor) -> Tensor:
    """The Euclidean length of each row, B."""
    return v.flatten(1).norm(dim=1)  # type: ignore[reportUnknownVariableType]


def plain(model: nn.Module, of: Outputs) -> Callable[[Tensor], Tensor]:
    """The function from images to B×classes that the network is without noise, in eval mode."""
    check_choice("of", of, Outputs)

    def run(x: Tensor) -> Tensor:
        with evaluating(model), no_diffusion(model):
            logits = logits_of(model(x))
        return logits.softmax(-1) if of == "probabilities" else logits

    return run


def features(model: nn.Module, x: Tensor) -> list[Tensor]:
    """h_l of each ADD block in a pass without noise."""
    with evaluating(model), diffusion(model, active=False) as trace:
        model(x.to(device_of(model)))
    return trace.means


class Scope(NamedTuple):
    """N(μ_l, σ_l) of one ADD block."""

    block: str
    mean: Tensor
    scale: Tensor


def scopes(model: nn.Module, x: Tensor) -> list[Scope]:
    """Of each ADD block its features h_l for the mean, and σ_l = g_φl(h_l), in a pass without noise."""
    blocks = {block.name: block for block in add_blocks_of(model)}
    with evaluating(model):
        with diffusion(model, active=False) as trace:
            model(x.to(device_of(model)))
        found = zip(trace.names, trace.means, strict=True)
        return [Scope(name, h, blocks[name].scale(h)) for name, h in found]
