"""AutoAug (Cubuk et al., 2019): cross-entropy on images changed by a policy that was learnt on a data set.

Idea: a search over pairs of operations finds those that help on one data set; they also help on other data sets.
Formula: CE(o_2(o_1(x))), where one of 25 pairs of operations is drawn for each image; each of the two operations has
its own strength and probability; x after crop and flip.
Source: Cubuk et al., AutoAugment: learning augmentation strategies from data, CVPR 2019.
Defaults: the policy learnt on CIFAR-10, without the Cutout that the original adds; the PDE+ authors' code takes policy
= "imagenet".
Cost: one forward and one backward pass, as ERM; and two operations on each image.
Published: CIFAR-10 accuracy clean / corrupted: ResNet-18 95.61 / 85.37 (PDE+ paper, policy "imagenet").
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

from torch import nn

from ..augment.auto_augment import AutoAugment, Policy
from ..data.base import Batch
from ..errors import check_choice
from .base import Objective, WithViews


@final
@dataclass(frozen=True, kw_only=True)
class AutoAug(WithViews):
    """Training on AutoAugment's images. The default is the policy of the small images."""

    policy: Policy = "cifar10"
    """The data set on which the 25 pairs were learnt; the PDE+ authors took "imagenet" for every data set."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("method.policy", self.policy, Policy)

    @property
    def label(self) -> str:
        policy = "" if self.policy == "imagenet" else f" ({self.policy} policy)"  # the paper has imagenet's
        return f"AutoAug{policy}" + "+JSD" * bool(self.jsd) + self.other_views

    @property
    def augmentor(self) -> AutoAugment:
        """What is done to the images."""
        return AutoAugment(policy=self.policy)

    @property
    def overlaps(self) -> tuple[str, ...]:
        """Test corruptions that the training images go through too."""
        return self.augmentor.overlaps

    def objectives(self, model: nn.Module, batch: Batch) -> Iterator[Objective]:
        yield self.objective(model, self.drawn(batch, self.augmentor), batch)
