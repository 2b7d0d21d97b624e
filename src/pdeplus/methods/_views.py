"""What the methods that change images share: views of a batch, and one objective for one view or several."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..augment.base import Augmentor, uniform
from ..augment.identity import Identity
from ..core.network import logits_of
from ..data.base import Batch
from ..errors import UserError
from ..functional import jensen_shannon
from ._mixing import Mix, over_mixed_labels
from .base import Objective, accuracy


def check_views(jsd: float, *augmentors: Augmentor) -> None:
    """Refuse consistency between views that cannot differ."""
    if jsd and all(isinstance(augmentor, Identity) for augmentor in augmentors):
        raise UserError(f"method.jsd={jsd:g}: consistency needs views that differ: set method.augmentor=augmix")


def clean_view(batch: Batch) -> Tensor:
    """The images after the data set's own transform, in full precision under autocast too."""
    with torch.autocast(batch.images.device.type, enabled=False):
        return batch.view()


def augmented_view(batch: Batch, augmentor: Augmentor) -> Tensor:
    """A clean view, augmented, in full precision."""
    with torch.autocast(batch.images.device.type, enabled=False):
        return augmentor(batch.view(), batch.generator)


def partly_augmented_view(batch: Batch, augmentor: Augmentor, share: float) -> Tensor:
    """A clean view with that share of its images, drawn at random, augmented; in full precision.

    The share is right on average in batches of any size: what is left of a whole number is rounded at random.
    """
    with torch.autocast(batch.images.device.type, enabled=False):
        view = batch.view()
        extra = uniform(1, 0, 1, view, batch.generator).item()
        count = int(share * len(view) + extra)
        chosen = torch.randperm(len(view), generator=batch.generator, device=view.device)[:count]
        return view.index_copy(0, chosen, augmentor(view[chosen], batch.generator))


def clean_and_augmented(batch: Batch, augmentors: Sequence[Augmentor]) -> list[Tensor]:
    """A clean view and its augmentation by each: all share one crop and flip, in full precision."""
    with torch.autocast(batch.images.device.type, enabled=False):
        clean = batch.view()
        return [clean, *(augment(clean, batch.generator) for augment in augmentors)]


def training_views(batch: Batch, augmentor: Augmentor, jsd: float) -> list[Tensor]:
    """What AugMix and PRIME train on: one augmented view, or for their consistency a clean one and two augmented."""
    return clean_and_augmented(batch, [augmentor] * 2) if jsd else [augmented_view(batch, augmentor)]


def objective_on(
    model: nn.Module,
    views: Sequence[Tensor],
    labels: Tensor,
    *,
    label_smoothing: float = 0.0,
    jsd: float = 0.0,
    mix: Mix | None = None,
) -> Objective:
    """Cross-entropy on the first view, and jsd times the Jensen-Shannon divergence of all: CE(v_1) + jsd · JS(v).

    The views go through the network as one batch; without `jsd` there is no such term. Losses are in full precision.

    Args:
        model: gives logits.
        views: each B×C×H×W; one without `jsd`, at least two with it.
        labels: B.
        label_smoothing: of the cross-entropy.
        jsd: weight of the consistency, 0 or more.
        mix: how the images, or their features, were mixed; the labels are then mixed alike.
    """
    logits = logits_of(model(torch.cat(list(views)))).reshape(len(views), len(labels), -1)
    first = logits[0]
    task = over_mixed_labels(lambda y: F.cross_entropy(first, y, label_smoothing=label_smoothing), labels, mix)
    parts, loss = {"task": task}, task
    if jsd:
        parts["consistency"] = jensen_shannon(logits.float())
        loss = task + jsd * parts["consistency"]
    right = over_mixed_labels(lambda y: accuracy(first, y), labels, mix)
    return Objective(loss, parts=parts, metrics={"accuracy": right})
