"""The rivals since the paper and the control: what the network sees, and the losses by hand."""

import pytest
import torch
from support.one_step import Scaled, Watched, only_objective, random_batch, seeded
from support.pde_plus import in_stages
from torch.nn import functional as F

from pdeplus.augment.augmix import AugMix
from pdeplus.augment.hybrid import Hybrid
from pdeplus.augment.identity import Identity
from pdeplus.augment.p_norm_noise import PNormNoise
from pdeplus.augment.pixmix import PixMix
from pdeplus.augment.random_erasing import RandomErasing
from pdeplus.augment.trivial_augment import TrivialAugment
from pdeplus.errors import UserError
from pdeplus.functional import jensen_shannon
from pdeplus.methods.base import overlaps_of
from pdeplus.methods.hybrid_augment import HybridAugment
from pdeplus.methods.pixmix import PixMixTraining
from pdeplus.methods.trivial_augment import TrivialAugmentTraining
from pdeplus.methods.two_views import TwoViews


def objective(method, batch):
    """The objective and the one batch that the network was given."""
    torch.manual_seed(0)
    net = Watched(batch.images[0].numel())
    goal = only_objective(method, net, batch)
    (x,) = net.seen
    return goal, x, net


def cropped(batch):
    generator = seeded()
    return batch.transform(batch.images, generator), generator


def test_two_views_loss_is_the_mean_of_both_and_the_weighted_agreement():
    batch = random_batch(side=8)
    goal, x, net = objective(TwoViews(jsd=6.0, augmentor=Scaled(0.3)), batch)
    clean, _ = cropped(batch)
    assert torch.equal(x, torch.cat([clean, 0.3 * clean]))
    logits = torch.stack([net(clean), net(0.3 * clean)])
    both = [F.cross_entropy(one, batch.labels).item() for one in logits]
    p, q = logits.softmax(-1)
    mean = (p + q) / 2
    divergence = (((p * (p / mean).log()).sum(1) + (q * (q / mean).log()).sum(1)) / 2).mean().item()
    assert divergence == pytest.approx(jensen_shannon(logits).item(), rel=1e-3)
    assert goal.parts["task"].item() == pytest.approx(sum(both) / 2, rel=1e-5)
    assert goal.parts["consistency"].item() == pytest.approx(divergence, rel=1e-3)
    assert goal.loss.item() == pytest.approx(sum(both) / 2 + 6 * divergence, rel=1e-4)
    right = (logits.argmax(-1) == batch.labels).float().mean()
    assert float(goal.metrics["accuracy"]) == pytest.approx(float(right))


def test_two_views_without_agreement_have_no_such_term():
    goal, _, _ = objective(TwoViews(jsd=0.0), random_batch(side=8))
    assert set(goal.parts) == {"task"}
    assert goal.loss.item() == goal.parts["task"].item()


def test_two_views_may_both_be_augmented_each_of_its_own_crop():
    batch = random_batch(side=8)
    _, x, _ = objective(TwoViews(views="both augmented"), batch)
    generator = seeded()
    first, second = (AugMix()(batch.transform(batch.images, generator), generator) for _ in range(2))
    assert torch.equal(x, torch.cat([first, second]))


@pytest.mark.parametrize("views", ["original+augmented", "both augmented"])
def test_the_control_is_pde_plus_without_diffusion(views):
    """The same views, cross-entropy and agreement: PDE+'s own, with noise of no size."""
    options = {"views": views, "jsd": 6.0}
    plain, seen, net = objective(TwoViews(**options), random_batch(side=8))
    method = in_stages(placement=("stage",), initial_scale=0.002, **options)
    diffused = method.prepare(net, random_batch(side=8).images)
    goal = only_objective(method, diffused.train(), random_batch(side=8))
    assert torch.allclose(diffused.seen[-1], seen, atol=0.02)
    assert goal.parts["task"].item() == pytest.approx(plain.parts["task"].item(), abs=2e-3)
    assert goal.parts["consistency"].item() == pytest.approx(plain.parts["consistency"].item(), abs=1e-4)


def test_the_controls_defaults_are_those_of_pde_plus():
    mine, theirs = TwoViews(), in_stages()
    assert (mine.augmentor, mine.jsd, mine.views) == (theirs.augmentor, theirs.jsd, theirs.views)


def test_hybrid_augment_is_supervised_on_the_image_and_on_its_hybrid():
    batch = random_batch(side=8)
    method = HybridAugment(augmentor=Hybrid(paired=1.0, exchange=1.0))
    goal, x, net = objective(method, batch)
    clean, generator = cropped(batch)
    augmentor = Hybrid(paired=1.0, exchange=1.0)
    image = augmentor.of_one(clean, generator)
    hybrid = augmentor.of_pairs(image, generator)
    assert not torch.equal(image, hybrid)
    assert torch.equal(x, torch.cat([image, hybrid]))
    both = [F.cross_entropy(net(view), batch.labels).item() for view in (image, hybrid)]
    assert goal.loss.item() == pytest.approx(sum(both) / 2, rel=1e-5)
    assert set(goal.parts) == {"task"}


def test_hybrid_augments_variants_leave_the_other_out():
    batch = random_batch(side=8)
    clean, _ = cropped(batch)
    _, x, _ = objective(HybridAugment(augmentor=Hybrid(variants="paired", paired=1.0)), random_batch(side=8))
    assert torch.equal(x[:6], clean)
    assert not torch.equal(x[6:], clean)
    _, x, _ = objective(HybridAugment(augmentor=Hybrid(variants="single")), batch)
    assert torch.equal(x[:6], x[6:])


def test_trivial_augment_does_three_things_in_order_and_any_may_be_left_out():
    batch = random_batch(20, 8)
    _, x, _ = objective(TrivialAugmentTraining(), batch)
    view, generator = cropped(batch)
    for part in (TrivialAugment(), PNormNoise(), RandomErasing()):
        view = part(view, generator)
    assert torch.equal(x, view)
    alone = TrivialAugmentTraining(noise=Identity(), erasing=Identity())
    _, x, _ = objective(alone, random_batch(20, 8))
    view, generator = cropped(batch)
    assert torch.equal(x, TrivialAugment()(view, generator))
    assert alone.label == "TrivialAugment"
    assert overlaps_of(TrivialAugmentTraining(), Identity())["p_norm_noise"] == ("gaussian_noise",)


def test_pixmix_sees_one_view_or_three():
    batch = random_batch(side=8)
    _, x, _ = objective(PixMixTraining(), batch)
    clean, generator = cropped(batch)
    assert torch.equal(x, PixMix()(clean, generator))
    goal, x, _ = objective(PixMixTraining(jsd=12.0), batch)
    assert len(x) == 18
    assert goal.loss.item() == pytest.approx((goal.parts["task"] + 12 * goal.parts["consistency"]).item(), rel=1e-5)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: TwoViews(jsd=-1.0), "jsd=-1"),
        (lambda: TwoViews(views="three"), "method.views='three'"),
        (lambda: TwoViews(augmentor=Identity()), "views that differ"),
        (lambda: HybridAugment(augmentor=Hybrid(single=1.2)), "single=1.2"),
        (lambda: HybridAugment(augmentor=Hybrid(variants="none")), "variants='none'"),
        (lambda: HybridAugment(augmentor=PixMix()), "method.augmentor must be hybrid, not PixMix"),
        (lambda: PixMixTraining(jsd=-2.0), "jsd=-2"),
    ],
)
def test_bad_options_are_named(build, message):
    with pytest.raises(UserError, match=message):
        build()
