"""PDE+ and AugMix as losses: against formulas by hand, the library's own step, several processes, wrong input."""

import pytest
import torch
from support.distributed_jobs import together
from support.normless_cnn import without_batch_norm
from support.pde_plus import in_stages
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD, Adam

import pdeplus as pp
from pdeplus._lib.seeds import generator_for
from pdeplus.augment.augmix import AugMix
from pdeplus.augment.base import OnNormalised
from pdeplus.augment.identity import Identity
from pdeplus.core.surgery import add_blocks_of
from pdeplus.data.base import Batch
from pdeplus.models.plain_cnn import build
from pdeplus.training.distributed import Engine
from pdeplus.training.loop import train_step

MEAN, STD = (0.4, 0.5, 0.6), (0.2, 0.25, 0.3)


def stream() -> torch.Generator:
    return torch.Generator().manual_seed(3)


def diffused(**options) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = build(classes=3, channels=3, width=4)
        return pp.add_diffusion(net, after="auto", example=torch.zeros(2, 3, 8, 8), **options).train()


@pytest.fixture
def batch():
    return torch.rand(8, 3, 8, 8), torch.arange(8) % 3


def gradients(net: nn.Module) -> list[torch.Tensor]:
    return [p.grad for p in net.parameters() if p.grad is not None]


def test_the_loss_is_the_sum_of_its_formulas(batch):
    images, labels = batch
    criterion = pp.PDEPlusLoss(diffused(), jsd=2.0, coverage_weight=0.5, generator=stream())
    loss = criterion(images, labels)
    net, draws = diffused(), stream()
    similar = pp.augmix(images, generator=draws)
    with torch.no_grad(), pp.diffusion(net, active=False) as twin:
        net(similar)
    with pp.diffusion(net, generator=draws, local=True, learn_from=8) as trace:
        logits = net(torch.cat([images, similar]))
    task = F.cross_entropy(logits, labels.repeat(2))
    consistency = pp.functional.jensen_shannon(logits.view(2, 8, 3))
    triples = zip(twin.means, trace.means, trace.scales, strict=True)
    coverage = sum(pp.functional.coverage_nll(a, h[:8].detach(), s) for a, h, s in triples)
    torch.testing.assert_close(loss, task + 2 * consistency + 0.5 * coverage)
    expected = {"task": task, "consistency": consistency, "coverage": 0.5 * coverage}
    assert criterion.parts.keys() == expected.keys()
    for name, part in expected.items():
        torch.testing.assert_close(criterion.parts[name], part.detach())
    assert not any(part.requires_grad for part in criterion.parts.values())


def test_a_step_with_the_loss_is_the_librarys_own_step(batch):
    images, labels = batch
    ours, theirs = diffused(), diffused()
    method = in_stages()
    optimizers = method.optimizers(ours, lambda p: SGD(p, 0.1))
    whole = Batch(images, labels, Identity(), stream(), 0.1, torch.tensor([1.0, 2.0, 3.0]))
    train_step(ours, method, whole, optimizers, Engine("fp32", "cpu"))
    criterion = pp.PDEPlusLoss(theirs, generator=stream(), label_smoothing=0.1, class_weights=[1.0, 2.0, 3.0])
    theta, phi = criterion.parameter_groups(lr=0.1, diffusion_lr=0.001)
    both = SGD([theta]), Adam([phi])
    criterion(images, labels).backward()
    for optimizer in both:
        optimizer.step()
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.equal(one, other)
    ids = {id(p) for group in (theta, phi) for p in group["params"]}
    assert ids == {id(p) for p in theirs.parameters()}
    assert {id(p) for p in phi["params"]} == {id(p) for b in add_blocks_of(theirs) for p in b.parameters()}
    assert (theta["lr"], phi["lr"], phi["weight_decay"]) == (0.1, 0.001, 0.0)


def test_directional_diffusion_comes_with_the_network(batch):
    criterion = pp.PDEPlusLoss(diffused(covariance="directional", reach=2.0), generator=stream())
    criterion(*batch).backward()
    assert criterion.parts.keys() == {"task", "consistency"}
    assert len(criterion.parameter_groups(lr=0.1)) == 1
    plain = pp.PDEPlusLoss(diffused(covariance="directional", reach=0.0), generator=stream())
    assert criterion.parts["task"] != plain(*batch)  # the reach matters: there is noise
    both = pp.PDEPlusLoss(diffused(covariance="both"), generator=stream())
    both(*batch)
    assert both.parts.keys() == {"task", "consistency", "coverage"}


def test_augmix_loss_by_hand(batch):
    images, labels = batch
    criterion = pp.AugMixLoss(diffused(), jsd=12.0, generator=stream())
    loss, draws, net = criterion(images, labels), stream(), diffused()
    views = [images, pp.augmix(images, generator=draws), pp.augmix(images, generator=draws)]
    logits = net(torch.cat(views)).view(3, 8, 3)
    expected = F.cross_entropy(logits[0], labels) + 12 * pp.functional.jensen_shannon(logits)
    torch.testing.assert_close(loss, expected)
    (group,) = criterion.parameter_groups(lr=0.2)
    assert len(group["params"]) == len(list(criterion.net.parameters()))


class Normalises(nn.Module):
    """Takes images in [0, 1] to a network that wants them normalised."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x):
        return self.net((x - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(STD).view(3, 1, 1))


@pytest.mark.parametrize("kind", [pp.PDEPlusLoss, pp.AugMixLoss])
def test_normalised_images_with_mean_and_std_are_as_good_as_plain_ones(batch, kind):
    images, labels = batch
    normalised = (images - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(STD).view(3, 1, 1)
    loss = kind(diffused(), mean=MEAN, std=STD, generator=stream())(normalised, labels)
    torch.testing.assert_close(loss, kind(Normalises(diffused()), generator=stream())(images, labels))


def test_augmix_takes_normalised_images_or_refuses_them():
    x = torch.rand(4, 3, 8, 8)
    mean, std = torch.tensor(MEAN).view(3, 1, 1), torch.tensor(STD).view(3, 1, 1)
    normalised = (x - mean) / std
    changed = pp.augmix(normalised, generator=stream(), mean=MEAN, std=STD)
    torch.testing.assert_close(changed * std + mean, pp.augmix(x, generator=stream()), atol=1e-5, rtol=0)
    for wrong in (normalised, 255 * x, x * torch.nan):
        with pytest.raises(pp.UserError, match=r"images must be in \[0, 1\], and these lie between .*; give the mean"):
            pp.augmix(wrong)
    with pytest.raises(pp.UserError, match="not uint8; divide by 255"):
        pp.augmix(torch.zeros(2, 3, 8, 8, dtype=torch.uint8))
    with pytest.raises(pp.UserError, match="give both or neither"):
        pp.augmix(normalised, mean=MEAN)
    with pytest.raises(pp.UserError, match=r"std=\[0.2, 0\] must be above 0"):
        OnNormalised(augment=AugMix(), mean=(0, 0), std=(0.2, 0))
    with pytest.raises(pp.UserError, match="one number for each channel: 3"):
        pp.augmix(normalised, mean=(0, 0), std=(1, 1))
    assert torch.equal(pp.augmix(x * 1.04, generator=stream()), pp.augmix(x * 1.04, generator=stream()))  # bicubic's


def test_in_eval_mode_it_is_the_plain_networks_cross_entropy(batch):
    images, labels = batch
    criterion = pp.PDEPlusLoss(diffused()).eval()
    expected = F.cross_entropy(criterion.net(images), labels)
    assert torch.equal(criterion(images, labels), expected)
    assert criterion.parts.keys() == {"task"}


def test_torchs_seed_repeats_the_loss_and_each_call_draws_anew(batch):
    def losses():
        torch.manual_seed(5)
        criterion = pp.PDEPlusLoss(diffused())
        return [float(criterion(*batch).detach()) for _ in range(2)]

    first = losses()
    assert first == losses()
    assert first[0] != first[1]


def test_scales_start_at_the_distance_of_twins(batch):
    criterion = pp.PDEPlusLoss(diffused(), generator=stream())
    started = criterion.start_scales(*batch)
    blocks = add_blocks_of(criterion.net)
    assert [f"sigma/{block.name}" for block in blocks] == list(started)
    with pp.diffusion(criterion.net) as trace:
        criterion.net(batch[0])
    for scale, distance in zip(trace.scales, started.values(), strict=True):
        torch.testing.assert_close(scale, torch.full_like(scale, distance), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"augmentor": "augmics"}, "did you mean 'augmix'"),
        ({"augmentor": 3}, "augmentor=3 must be an augmentation, its name, or a function"),
        ({"label_smoothing": 2}, "label_smoothing=2 must lie between 0 and 1"),
        ({"views": "none"}, "method.views='none' is not known"),
        ({"mean": MEAN}, "give both or neither"),
    ],
)
def test_wrong_options_are_answered_in_one_line(given, message):
    with pytest.raises(pp.UserError, match=message):
        pp.PDEPlusLoss(diffused(), **given)


def test_wrong_batches_and_networks_are_answered_in_one_line(batch):
    images, labels = batch
    with pytest.raises(pp.UserError, match="the network has no ADD blocks; make it with pdeplus.add_diffusion"):
        pp.PDEPlusLoss(build(classes=3, channels=3, width=4))
    criterion = pp.PDEPlusLoss(diffused())
    with pytest.raises(pp.UserError, match="labels must be class numbers, int64 of 8, not float32 of 8×3"):
        criterion(images, F.one_hot(labels).float())
    with pytest.raises(pp.UserError, match="int64 of 8, not list of 8"):
        criterion(images, labels.tolist())
    with pytest.raises(pp.UserError, match=r"images must be in \[0, 1\], and these lie between"):
        criterion(images * 4 - 2, labels)


def test_a_function_makes_similar_samples(batch):
    images, labels = batch
    criterion = pp.PDEPlusLoss(diffused(), augmentor=lambda x, generator: x.flip(3), generator=stream())
    assert torch.isfinite(criterion(images, labels))
    table = pp.PDEPlusLoss(diffused(), augmentor={"name": "augmix", "severity": 5}, generator=stream())
    assert table(images, labels) != criterion.parts["task"]


def wrapped_gradients() -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """In one of two processes: the gradients of its own half, and those that DistributedDataParallel leaves."""
    torch.distributed.init_process_group("gloo")
    rank = torch.distributed.get_rank()
    images, labels = torch.rand(8, 3, 8, 8, generator=generator_for(rank, "images")), torch.arange(8) % 3
    found = []
    for wrap in (nn.Identity(), DistributedDataParallel):
        net = without_batch_norm(diffused())
        criterion = pp.PDEPlusLoss(net, generator=generator_for(rank, "noise"))
        step = criterion if isinstance(wrap, nn.Identity) else wrap(criterion)
        for _ in range(2):  # two parts, one update
            (step(images, labels) / 2).backward()
        found.append([g.clone() for g in gradients(net)])
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()
    return found[0], found[1]


def test_around_the_criterion_ddp_leaves_the_mean_of_all_gradients():
    (own_0, joint_0), (own_1, joint_1) = together(wrapped_gradients)
    assert len(own_0) == len(list(diffused().parameters()))
    for a, b, joint, same in zip(own_0, own_1, joint_0, joint_1, strict=True):
        torch.testing.assert_close(joint, (a + b) / 2, rtol=1e-4, atol=1e-5)
        assert torch.equal(joint, same)
