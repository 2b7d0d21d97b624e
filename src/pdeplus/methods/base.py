"""What a method is, a generator of objectives, and what methods share: views of a batch, the objective on them."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import partial
from typing import Any, ClassVar, Literal, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Optimizer

from ..augment.base import Augmentor
from ..augment.identity import Identity
from ..core.network import logits_of
from ..core.prediction import Average, predict
from ..data.base import Batch
from ..errors import UserError
from ..functional import jensen_shannon
from ._mixing import Mix, over_mixed_labels

BuildOptimizer = Callable[[Iterable[nn.Parameter]], Optimizer]
"""Makes the run's main optimiser, as configured, for some parameters."""


@dataclass(frozen=True)
class Objective:
    """What to minimise and which optimisers step on it."""

    loss: Tensor
    parts: Mapping[str, Tensor]
    """The loss's terms by name: logged, and named if one is not finite."""
    update: tuple[str, ...] = ("task",)
    """Names of the optimisers that step."""
    reach: Literal["updated", "all"] = "updated"
    """Compute gradients of the updated parameters only, or (the authors' code) of all."""
    metrics: Mapping[str, Tensor] = field(default_factory=dict[str, Tensor])
    """What else to log: means over the epoch."""


class Method(ABC):
    """A way of training a classifier. Its fields are its options; only `objectives` has no default.

    A method whose network has noise at test makes `samples` and `average` options of its own.
    """

    samples: int = 0
    """Noisy passes at test; 0 is the plain network."""
    average: Average = "probabilities"
    """What those passes average."""
    differentiates_twice: ClassVar[bool] = False
    """Whether an objective holds gradients, so that learning from it takes second derivatives."""

    @property
    def label(self) -> str:
        """What tables call it."""
        return type(self).__name__

    @property
    def learns_plain(self) -> bool:
        """Whether a training step has a pass without noise, from which BatchNorm measures that pass's statistics."""
        return True

    @property
    def overlaps(self) -> tuple[str, ...] | None:
        """The test corruptions that its own changes of the images coincide with; None if it leaves them alone.

        What the augmentations among its options do is their own to say.
        """
        return None

    def prepare(self, model: nn.Module, example: Tensor) -> nn.Module:
        """The network to train: the model itself, or a changed copy. `example` is a batch of images."""
        return model

    def optimizers(self, model: nn.Module, build: BuildOptimizer) -> dict[str, Optimizer]:
        """The optimisers by name; a param group with schedule="constant" keeps its learning rate."""
        return {"task": build(model.parameters())}

    def begin(self, model: nn.Module, batch: Batch) -> dict[str, float]:
        """Set what the first batch sets, once before the first step; returns what to tell of it, by name."""
        return {}

    def in_batches(self, size: int, usual: int) -> "Method":
        """The method with what depends on the size of a batch in proportion: for `size` images in place of `usual`."""
        return self

    @abstractmethod
    def objectives(self, model: nn.Module, batch: Batch) -> Iterator[Objective]:
        """One training step: code after a yield runs after that objective's update."""

    def predict(self, model: nn.Module, images: Tensor, generator: torch.Generator | None) -> Tensor:
        """Class probabilities at test time, B×classes."""
        return predict(model, images, self.samples, generator=generator, average=self.average)


def views_of(batch: Batch, *augment: Callable[[Tensor, torch.Generator], Tensor]) -> list[Tensor]:
    """A clean view, after the data set's own transform, and its augmentation by each: all share one crop and flip.

    Images are in full precision, under autocast too.
    """
    with torch.autocast(batch.images.device.type, enabled=False):
        clean = batch.view()
        return [clean, *(one(clean, batch.generator) for one in augment)]


Views = Literal["original+augmented", "both augmented"]
"""A pair of views: the clean one and its augmentation, or two augmentations, each of a crop and flip of its own."""


def pair_of(batch: Batch, augmentor: Augmentor, views: Views) -> tuple[Tensor, Tensor]:
    """Two views of the batch: (clean, augmented) or (augmented, augmented)."""
    original, similar = views_of(batch, augmentor)
    if views == "both augmented":
        original, similar = similar, views_of(batch, augmentor)[1]
    return original, similar


def objective_on(
    model: nn.Module,
    views: Sequence[Tensor],
    batch: Batch,
    *,
    jsd: float = 0.0,
    mix: Mix | None = None,
    supervised: Literal["first", "all"] = "first",
) -> Objective:
    """Cross-entropy on the first view, and jsd times the Jensen-Shannon divergence of all: CE(v_1) + jsd · JS(v).

    The views go through the network as one batch; without `jsd` there is no such term. Losses are in full precision.
    With `supervised="all"` the cross-entropy is the mean of all views' own.

    Args:
        views: each B×C×H×W, with the batch's labels, B; one view without `jsd`, at least two with it.
        batch: gives the labels and their smoothing.
        jsd: weight of the consistency, 0 or more.
        mix: how the images, or their features, were mixed; the labels are then mixed alike. Not with all supervised.
        supervised: whose cross-entropy is in the task.
    """
    number = len(views) if supervised == "all" else 1
    softened = partial(F.cross_entropy, label_smoothing=batch.label_smoothing, weight=batch.class_weights)
    logits = logits_of(model(torch.cat(list(views)))).reshape(len(views), len(batch.labels), -1)
    seen, labels = logits[:number].flatten(0, 1), batch.labels.repeat(number)
    task = over_mixed_labels(lambda y: softened(seen, y), labels, mix)
    parts, loss = {"task": task}, task
    if jsd:
        parts["consistency"] = jensen_shannon(logits.float())
        loss = task + jsd * parts["consistency"]
    right = over_mixed_labels(lambda y: accuracy(seen, y), labels, mix)
    return Objective(loss, parts=parts, metrics={"accuracy": right})


@torch.no_grad()
def accuracy(logits: Tensor, labels: Tensor) -> Tensor:
    """Fraction of rows whose largest logit is the label's."""
    return (logits.argmax(-1) == labels).float().mean()


def check_range(low: float, high: float, **options: float) -> None:
    """Refuse an option's value outside [low, high]; infinity and NaN are outside any range."""
    for name, value in options.items():
        if not (low <= value <= high and math.isfinite(value)):
            bounds = f"lie between {low:g} and {high:g}" if math.isfinite(high) else f"be a number of {low:g} or more"
            raise UserError(f"method.{name}={value} must {bounds}")


def check_views(jsd: float, *augmentors: Augmentor) -> None:
    """Refuse consistency between views that cannot differ."""
    if jsd and all(isinstance(augmentor, Identity) for augmentor in augmentors):
        raise UserError(f"method.jsd={jsd:g}: consistency needs views that differ: set method.augmentor=augmix")


def with_samples(method: Method, name: str, samples: int | None, average: str | None) -> Method:
    """The method predicting with so many noisy passes, averaged so; None leaves its own choice."""
    if samples is not None and samples < 0:
        raise UserError(f"samples={samples} must be 0 (no noise) or more")
    wanted = {key: value for key, value in (("samples", samples), ("average", average)) if value is not None}
    if not wanted:
        return method
    if is_dataclass(method) and "samples" in (option.name for option in fields(method)):
        return replace(method, **wanted)
    if samples:
        raise UserError(f"samples={samples}: the method {name} has no noise to sample; leave it out or take 0")
    return method


def overlaps_of(method: Method, transform: Augmentor) -> dict[str, tuple[str, ...]]:
    """For every augmentation that a method uses, the test corruptions it coincides with; () where there is none.

    Keys are names in the registry; what several augmentations of one name do is put together. A method that changes
    images itself is listed by its own name. Corruptions are plain names: nothing here knows the test images. Searched
    are the method's fields, through tuples, mappings and dataclasses, and the data set's own light transform.
    """
    found = dict[str, tuple[str, ...]]()
    for part in (method, *_augmentors(method), *_augmentors(transform)):
        if part.overlaps is not None:
            module = type(part).__module__  # the registry's name: the file's, or all of it in a user's own code
            name = module.rpartition(".")[2] if module.startswith("pdeplus.") else module
            found[name] = tuple(sorted({*found.get(name, ()), *part.overlaps}))
    return found


def _augmentors(value: object) -> Iterator[Augmentor]:
    """The augmentations in a value: the value itself, and those among its parts at any depth."""
    if isinstance(value, Augmentor):
        yield value
    parts: Iterable[object] = ()
    if isinstance(value, Mapping):
        parts = cast(Mapping[Any, object], value).values()
    elif isinstance(value, tuple | list | set | frozenset):
        parts = cast(Iterable[object], value)
    elif is_dataclass(value) and not isinstance(value, type):
        parts = [getattr(value, field.name) for field in fields(value)]
    elif isinstance(value, Method | Augmentor):  # a user's class need not be a dataclass, and no audit must miss it
        parts = vars(value).values()
    for part in parts:
        yield from _augmentors(part)
