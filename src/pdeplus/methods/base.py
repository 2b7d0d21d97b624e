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

from .._lib.registry import NEW
from ..augment.base import Augmentor
from ..augment.identity import Identity
from ..core.network import logits_of
from ..core.prediction import Average, predict
from ..data.base import Batch
from ..errors import UserError, check_choice
from ..functional import jensen_shannon
from ._mixing import Mix, over_mixed_labels

BuildOptimizer = Callable[[Iterable[nn.Parameter]], Optimizer]
"""Makes the run's main optimiser, as configured, for some parameters."""
Augment = Callable[[Tensor, torch.Generator], Tensor]
"""An augmentation, or a function that uses some: images and the batch's random stream to images."""


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

    @property
    def augments(self) -> bool:
        """Whether it uses the augmentations among its options."""
        return True

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


def views_of(batch: Batch, *augment: Augment) -> list[Tensor]:
    """A clean view, after the data set's own transform, and its augmentation by each: all share one crop and flip.

    Images are in full precision, under autocast too.
    """
    with torch.autocast(batch.images.device.type, enabled=False):
        clean = batch.view()
        return [clean, *(one(clean, batch.generator) for one in augment)]


Views = Literal["original", "augmented", "original+augmented", "both augmented"]
"""Which views enter the cross-entropy: the image, an augmentation of it, these two, or two augmentations."""


def draw_views(batch: Batch, views: Views, number: int, *augment: Augment) -> list[Tensor]:
    """So many views: of x, a_1, a_2, in this order, where `views` begin with the original, else of a_1, a_2, x.

    a_1 is made by the first of `augment` and a_2 by the last. All share one crop and flip, but for a_2 where it follows
    a_1 as the second view: two augmentations by themselves have one each.
    """
    if views in ("original", "original+augmented"):
        return views_of(batch, *(augment[0], augment[-1])[: number - 1])
    clean, augmented = views_of(batch, augment[0])
    twin = [views_of(batch, augment[-1])[1]] if number > 1 else []
    return [augmented, *twin, clean][:number]


@dataclass(frozen=True, kw_only=True)
class WithViews(Method):
    """A method that learns from an image and from augmentations of it, and three options that say how.

    The views in its loss are the first ones of x, a_1, a_2, or of a_1, a_2, x (`draw_views`): the task is the
    cross-entropy of the first, or the mean of the first two's, and the first two or all three agree.
    """

    views: Views | Literal["published"] = field(default="published", metadata=NEW)
    """Whose cross-entropy is the task: the original's, an augmentation's, or the mean of both, or of two augmentations,
    each of a crop and flip of its own; published: the original's with agreement, an augmentation's without."""
    jsd: float = field(default=0.0, metadata=NEW)
    """Weight of the agreement of the views' predictions (Jensen-Shannon); 0 for none."""
    agreeing: Literal[2, 3] = field(default=3, metadata=NEW)
    """Views that agree: the first of the task and an augmentation, or the original and two augmentations."""

    def __post_init__(self) -> None:
        self.check_agreement()
        if self.chosen == "original" and not self.jsd:
            raise UserError("method.views='original' trains on no augmentation: set method.jsd, or method.name=erm")
        if self.number > 1:
            self.check_differing()

    @property
    def label(self) -> str:
        return type(self).__name__ + self.other_views

    @property
    def chosen(self) -> Views:
        """The views of the task, whatever option says so."""
        if self.views != "published":
            return self.views
        return "original" if self.jsd else "augmented"

    @property
    def in_task(self) -> int:
        """Views in the cross-entropy."""
        return 2 if self.chosen in ("original+augmented", "both augmented") else 1

    @property
    def agreement(self) -> float:
        """The weight of the agreement, whatever option says so."""
        return self.jsd

    @property
    def number(self) -> int:
        """Views in the loss, which is as many passes through the network."""
        return max(self.in_task, self.agreeing if self.agreement else 1)

    @property
    def other_views(self) -> str:
        """For a label: what is not as the method has it by default, in brackets."""
        own = type(self)
        other = [self.views] * (self.views != own.views) + [f"{self.agreeing} agree"] * (self.agreeing != own.agreeing)
        return f" ({', '.join(other)})" * bool(other)

    def check_agreement(self) -> None:
        """Refuse values of the three options that are not known, and a number of agreeing views where none agree."""
        check_range(0, math.inf, jsd=self.jsd)
        check_choice("method.views", self.chosen, Views)
        check_choice("method.agreeing", self.agreeing, Literal[2, 3])
        if not self.agreement and self.agreeing != type(self).agreeing:
            raise UserError(f"method.agreeing={self.agreeing} without agreement: set its weight, such as method.jsd=12")

    def check_differing(self) -> None:
        """Refuse several views that cannot differ."""
        augmentors = list(_augmentors(self))
        if augmentors and all(isinstance(one, Identity) for one in augmentors):
            what = f"method.jsd={self.jsd:g}: consistency" if self.jsd else f"method.views={self.views!r}"
            raise UserError(f"{what} needs views that differ: set method.augmentor=augmix")

    def drawn(self, batch: Batch, *augment: Augment) -> list[Tensor]:
        """The views in the loss."""
        return draw_views(batch, self.chosen, self.number, *augment)

    def objective(self, model: nn.Module, views: Sequence[Tensor], batch: Batch, mix: Mix | None = None) -> Objective:
        """The loss on these views, which go through the network as one batch."""
        return objective_on(model, views, batch, jsd=self.jsd, mix=mix, supervised=self.in_task)


@dataclass(frozen=True, kw_only=True)
class Augmented(WithViews):
    """A method that learns from the views of one augmentation and does nothing else."""

    augmentor: Augmentor = Identity()
    """What makes the views."""

    @property
    def label(self) -> str:
        return type(self.augmentor).__name__ + "+JSD" * bool(self.jsd) + self.other_views

    def objectives(self, model: nn.Module, batch: Batch) -> Iterator[Objective]:
        yield self.objective(model, self.drawn(batch, self.augmentor), batch)


def objective_on(
    model: nn.Module,
    views: Sequence[Tensor],
    batch: Batch,
    *,
    jsd: float = 0.0,
    mix: Mix | None = None,
    supervised: int = 1,
) -> Objective:
    """`objective_of` the views' logits; the views, each B×C×H×W, go through the network as one batch."""
    logits = logits_of(model(torch.cat(list(views)))).reshape(len(views), len(batch.labels), -1)
    return objective_of(logits, batch, jsd=jsd, mix=mix, supervised=supervised)


def objective_of(
    logits: Tensor, batch: Batch, *, jsd: float = 0.0, mix: Mix | None = None, supervised: int = 1
) -> Objective:
    """Mean cross-entropy of the supervised views, and jsd times the Jensen-Shannon divergence of all: CE + jsd · JS(v).

    Logits are K×B×classes, of K views; of these the first `supervised` are in the cross-entropy. Where images, or their
    features, were mixed, labels are mixed alike. Losses are in full precision.
    """
    seen = logits[:supervised].flatten(0, 1)
    cross_entropy = partial(F.cross_entropy, label_smoothing=batch.label_smoothing, weight=batch.class_weights)
    task = over_mixed_labels(lambda y: cross_entropy(seen, y.repeat(supervised)), batch.labels, mix)
    parts, loss = {"task": task}, task
    if jsd:
        parts["consistency"] = jensen_shannon(logits.float())
        loss = task + jsd * parts["consistency"]
    right = over_mixed_labels(lambda y: accuracy(seen, y.repeat(supervised)), batch.labels, mix)
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
        raise UserError(f"samples={samples}: the method {name} has no noise to sample; leave it out or use 0")
    return method


def overlaps_of(method: Method, transform: Augmentor) -> dict[str, tuple[str, ...]]:
    """For every augmentation that a method uses, the test corruptions it coincides with; () where there is none.

    Keys are names in the registry; what several augmentations of one name do is put together. A method that changes
    images itself is listed by its own name. Corruptions are plain names: nothing here knows the test images. Searched
    are the fields of a method that augments, through tuples, mappings and dataclasses, and the data set's own light
    transform.
    """
    found = dict[str, tuple[str, ...]]()
    own = _augmentors(method) if method.augments else ()
    for part in (method, *own, *_augmentors(transform)):
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
