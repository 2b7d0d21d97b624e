"""AugMix training: which views go where, and the two losses."""

import pytest
import torch
from support.one_step import Scaled, Watched, only_objective, random_batch, seeded, small_resnet
from torch.nn import functional as F

from pdeplus.augment.augmix import AugMix
from pdeplus.errors import UserError
from pdeplus.functional import jensen_shannon
from pdeplus.methods.augmix import AugMixTraining
from pdeplus.training.distributed import Engine
from pdeplus.training.loop import train_step

OPTIONS = [{}, {"jsd": 12.0}]


def test_without_consistency_the_network_sees_one_augmented_view():
    net, batch = Watched(), random_batch(side=8)
    goal = only_objective(AugMixTraining(), net, batch)
    generator = seeded()
    expected = AugMix()(batch.transform(batch.images, generator), generator)
    assert len(net.seen) == 1
    assert torch.equal(net.seen[0], expected)
    assert set(goal.parts) == {"task"}
    by_hand = F.cross_entropy(net(expected), batch.labels)
    assert goal.loss.item() == pytest.approx(by_hand.item())


def test_with_consistency_three_views_of_one_crop_go_through_at_once():
    torch.manual_seed(0)
    net, batch = Watched(), random_batch(side=8)
    goal = only_objective(AugMixTraining(jsd=12.0, augmentor=Scaled(0.5, 0.1)), net, batch)
    clean = batch.transform(batch.images, seeded())
    assert len(net.seen) == 1
    assert torch.equal(net.seen[0], torch.cat([clean, 0.5 * clean, 0.1 * clean]))
    logits = torch.stack([net(factor * clean) for factor in (1, 0.5, 0.1)])
    task, consistency = F.cross_entropy(logits[0], batch.labels), jensen_shannon(logits)  # clean images alone
    assert consistency > 0
    assert goal.parts["task"].item() == pytest.approx(task.item())
    assert goal.parts["consistency"].item() == pytest.approx(consistency.item(), rel=1e-4)
    assert goal.loss.item() == pytest.approx((task + 12 * consistency).item(), rel=1e-5)


def test_equal_views_are_consistent_and_the_two_augmented_ones_differ():
    goal = only_objective(AugMixTraining(jsd=12.0, augmentor=Scaled(1, 1)), Watched(), random_batch(side=8))
    assert goal.parts["consistency"].item() == pytest.approx(0, abs=1e-6)
    net = Watched()
    only_objective(AugMixTraining(jsd=12.0), net, random_batch(side=8))
    clean, first, second = net.seen[0].chunk(3)
    assert not torch.equal(first, second)
    assert not torch.equal(clean, first)


def losses(options, steps):
    """The whole loss before each step on one batch with the same draws."""
    method = AugMixTraining(**options)
    net = method.prepare(small_resnet(), torch.rand(2, 3, 16, 16)).train()
    optimizers = method.optimizers(net, lambda p: torch.optim.SGD(p, lr=0.02))
    found = []
    for _ in range(steps):
        logs = train_step(net, method, random_batch(20), optimizers, Engine("fp32"))
        found.append(float(logs["loss/task"] + method.jsd * logs.get("loss/consistency", torch.zeros(()))))
    return found


@pytest.mark.parametrize("options", OPTIONS)
def test_two_steps_lower_the_loss_and_the_same_seed_gives_the_same(options):
    first = losses(options, 3)
    assert first[2] < first[1] < first[0]
    assert first == losses(options, 3)


def test_bad_options_are_named():
    with pytest.raises(UserError, match="jsd=-1"):
        AugMixTraining(jsd=-1.0)


def test_mixed_precision_keeps_the_consistency_in_full():
    net, batch = Watched(), random_batch(side=8)
    with torch.autocast("cpu", torch.bfloat16):
        goal = only_objective(AugMixTraining(jsd=12.0), net, batch)
    assert net.seen[0].dtype == torch.float32
    assert goal.parts["consistency"].dtype == torch.float32
