"""AugMix training: which views go where, and the two losses."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from pdeplus.augment.augmix import AugMix
from pdeplus.augment.base import Augmentor
from pdeplus.augment.crop_flip import CropFlip
from pdeplus.data.base import Batch
from pdeplus.errors import UserError
from pdeplus.functional import jensen_shannon
from pdeplus.methods.augmix import AugMixTraining
from pdeplus.models.resnet18 import build
from pdeplus.training.distributed import Engine
from pdeplus.training.loop import train_step

OPTIONS = [{}, {"jsd": 12.0}]


class Scaled(Augmentor):
    """Each call scales the images by the next of its factors."""

    overlaps = ()

    def __init__(self, *factors):
        self.factors = iter(factors)

    def __call__(self, x, generator=None):
        return next(self.factors) * x


class Watched(nn.Module):
    """A linear network that keeps what it was given."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3 * 8 * 8, 5)
        self.seen = []

    def forward(self, x):
        self.seen.append(x)
        return self.linear(x.flatten(1))


def make_batch(size=6, seed=0, side=8):
    images = torch.rand(size, 3, side, side, generator=torch.Generator().manual_seed(1))
    return Batch(images, torch.arange(size) % 5, CropFlip(padding=1), torch.Generator().manual_seed(seed))


def only(method, net, batch):
    (goal,) = method.objectives(net, batch)
    return goal


def test_without_consistency_the_network_sees_one_augmented_view():
    net, batch = Watched(), make_batch()
    goal = only(AugMixTraining(label_smoothing=0.1), net, batch)
    generator = torch.Generator().manual_seed(0)
    expected = AugMix()(batch.transform(batch.images, generator), generator)
    assert len(net.seen) == 1
    assert torch.equal(net.seen[0], expected)
    assert set(goal.parts) == {"task"}
    by_hand = F.cross_entropy(net(expected), batch.labels, label_smoothing=0.1)
    assert goal.loss.item() == pytest.approx(by_hand.item())


def test_with_consistency_three_views_of_one_crop_go_through_at_once():
    torch.manual_seed(0)
    net, batch = Watched(), make_batch()
    goal = only(AugMixTraining(jsd=12.0, augmentor=Scaled(0.5, 0.1)), net, batch)
    clean = batch.transform(batch.images, torch.Generator().manual_seed(0))
    assert len(net.seen) == 1
    assert torch.equal(net.seen[0], torch.cat([clean, 0.5 * clean, 0.1 * clean]))
    logits = torch.stack([net(factor * clean) for factor in (1, 0.5, 0.1)])
    task, consistency = F.cross_entropy(logits[0], batch.labels), jensen_shannon(logits)  # clean images alone
    assert consistency > 0
    assert goal.parts["task"].item() == pytest.approx(task.item())
    assert goal.parts["consistency"].item() == pytest.approx(consistency.item(), rel=1e-4)
    assert goal.loss.item() == pytest.approx((task + 12 * consistency).item(), rel=1e-5)


def test_equal_views_are_consistent_and_the_two_augmented_ones_differ():
    goal = only(AugMixTraining(jsd=12.0, augmentor=Scaled(1, 1)), Watched(), make_batch())
    assert goal.parts["consistency"].item() == pytest.approx(0, abs=1e-6)
    net = Watched()
    only(AugMixTraining(jsd=12.0), net, make_batch())
    clean, first, second = net.seen[0].chunk(3)
    assert not torch.equal(first, second)
    assert not torch.equal(clean, first)


def losses(options, steps):
    """The whole loss before each step on one batch with the same draws."""
    method = AugMixTraining(**options)
    torch.manual_seed(0)
    net = method.prepare(build(classes=5, channels=3, width=4), torch.rand(2, 3, 16, 16)).train()
    optimizers = method.optimizers(net, lambda p: torch.optim.SGD(p, lr=0.02))
    found = []
    for _ in range(steps):
        logs = train_step(net, method, make_batch(20, side=16), optimizers, Engine("fp32"))
        found.append(float(logs["loss/task"] + method.jsd * logs.get("loss/consistency", torch.zeros(()))))
    return found


@pytest.mark.parametrize("options", OPTIONS)
def test_two_steps_lower_the_loss_and_the_same_seed_gives_the_same(options):
    first = losses(options, 3)
    assert first[2] < first[1] < first[0]
    assert first == losses(options, 3)


@pytest.mark.parametrize(("options", "message"), [({"jsd": -1.0}, "jsd=-1"), ({"label_smoothing": 2.0}, "label_smo")])
def test_bad_options_are_named(options, message):
    with pytest.raises(UserError, match=message):
        AugMixTraining(**options)


def test_mixed_precision_keeps_the_consistency_in_full():
    net, batch = Watched(), make_batch()
    with torch.autocast("cpu", torch.bfloat16):
        goal = only(AugMixTraining(jsd=12.0), net, batch)
    assert net.seen[0].dtype == torch.float32
    assert goal.parts["consistency"].dtype == torch.float32
