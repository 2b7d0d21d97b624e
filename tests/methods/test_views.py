"""One option for the views of the cross-entropy, two for their agreement, with one meaning in every method."""

import pytest
import torch
from support.one_step import Scaled, Watched, only_objective, random_batch, seeded
from support.pde_plus import in_stages
from torch.nn import functional as F

import pdeplus as pp
from pdeplus.augment.contrast import Contrast
from pdeplus.augment.hybrid import Hybrid
from pdeplus.augment.identity import Identity
from pdeplus.errors import UserError
from pdeplus.methods import noisymix
from pdeplus.methods.augmix import AugMixTraining
from pdeplus.methods.base import overlaps_of
from pdeplus.methods.fixed_diffusion import FixedDiffusion
from pdeplus.methods.gaussian import Gaussian
from pdeplus.methods.hybrid_augment import HybridAugment
from pdeplus.methods.noisymix import NoisyMix
from pdeplus.methods.pde_plus_combined import PDEPlusCombined
from pdeplus.methods.pixmix import PixMixTraining
from pdeplus.methods.prime import PrimeTraining
from pdeplus.methods.rlat import RLAT
from pdeplus.methods.trivial_augment import TrivialAugmentTraining
from pdeplus.methods.two_views import TwoViews
from pdeplus.training.config import config_hash

ALONE = {"noise": Identity(), "erasing": Identity()}
HARDLY = {"placement": ("stage",), "initial_scale": 0.01}
MAKE = {
    "augmix": AugMixTraining,
    "prime": PrimeTraining,
    "pixmix": PixMixTraining,
    "two_views": TwoViews,
    "trivial_augment": lambda **options: TrivialAugmentTraining(**ALONE, **options),
    "rlat": lambda **options: RLAT(epsilon=0.0, placement=("stage",), **options),
    "fixed_diffusion": lambda **options: FixedDiffusion(scale=0.0, placement=("stage",), **options),
    "pde_plus": lambda **options: in_stages(**HARDLY, **options),
    "pde_plus_combined": lambda **options: PDEPlusCombined(second=options["augmentor"], **HARDLY, **options),
}
X, A1, A2 = 1, 0.5, 0.1
"""The views are the images times these."""
TASK = {"original": (X,), "augmented": (A1,), "original+augmented": (X, A1), "both augmented": (A1, A2)}
PAIR = {"original": (X, A1), "augmented": (A1, A2), "original+augmented": (X, A1), "both augmented": (A1, A2)}


def divergence(logits):
    """(1/K) Σ KL(p_k ‖ mean)."""
    p = logits.double().softmax(-1)
    return (p * (p / p.mean(0)).log()).sum(-1).mean().item()


@pytest.mark.parametrize("agreeing", [0, 2, 3])
@pytest.mark.parametrize("views", TASK)
@pytest.mark.parametrize("name", MAKE)
def test_the_loss_is_the_formulas(name, views, agreeing):
    if (views, agreeing) == ("original", 0) and name not in ("fixed_diffusion", "pde_plus", "pde_plus_combined"):
        pytest.skip("refused: it would be ERM")
    options = {"jsd": 6.0, "agreeing": agreeing} if agreeing else {"jsd": 0.0}
    method = MAKE[name](views=views, augmentor=Scaled(A1, A2), **options)
    batch = random_batch(side=8, transform=Identity())
    torch.manual_seed(0)
    net = method.prepare(Watched(), batch.images).train()
    goal = only_objective(method, net, batch)
    order = (X, A1, A2) if views.startswith("original") else (A1, A2, X)
    seen = dict(zip(order, net.seen[-1].chunk(len(net.seen[-1]) // 6), strict=False))
    assert len(seen) == (3 if name == "pde_plus_combined" else max(len(TASK[views]), agreeing))
    assert all(torch.allclose(view, factor * batch.images, atol=0.05) for factor, view in seen.items())  # but for noise
    logits = {factor: net.linear(view.flatten(1)) for factor, view in seen.items()}
    task = sum(F.cross_entropy(logits[f], batch.labels).item() for f in TASK[views]) / len(TASK[views])
    assert goal.parts["task"].item() == pytest.approx(task, rel=1e-5)
    rest = goal.parts["coverage"].item() if "coverage" in goal.parts else 0
    if agreeing:
        agreement = divergence(torch.stack([logits[f] for f in (PAIR[views] if agreeing == 2 else order)]))
        assert agreement > 1e-3
        assert goal.parts["consistency"].item() == pytest.approx(agreement, rel=1e-3)
        rest += 6 * agreement
    assert goal.loss.item() == pytest.approx(task + rest, rel=1e-5)


def test_views_share_a_crop_but_two_augmentations_have_one_each():
    batch = random_batch(side=8)

    def seen(**options):
        net = Watched()
        only_objective(AugMixTraining(augmentor=Scaled(A1, A2), **options), net, random_batch(side=8))
        return net.seen[0]

    first, second = (batch.transform(batch.images, generator) for generator in [seeded()] * 2)
    assert not torch.equal(first, second)
    assert torch.equal(seen(views="original+augmented"), torch.cat([first, A1 * first]))
    both = [A1 * first, A2 * second]
    assert torch.equal(seen(views="both augmented"), torch.cat(both))
    assert torch.equal(seen(views="augmented", jsd=1.0, agreeing=2), torch.cat(both))
    assert torch.equal(seen(views="both augmented", jsd=1.0), torch.cat([*both, first]))


def test_older_names_of_pde_plus_options_are_views():
    assert in_stages(supervised="original").chosen == in_stages(views="original").chosen == "original"
    assert in_stages(views="both augmented", supervised="original").chosen == "augmented"
    assert (in_stages(mixture=False).number, in_stages(views="original", jsd=0.0).number) == (1, 1)
    assert in_stages(mixture=False).label == in_stages(views="original", jsd=0.0).label == "PDE+ w/o aug"
    assert FixedDiffusion(mixture=False).label == FixedDiffusion(views="original").label


def test_hybrid_augments_published_views_are_of_one_crop_and_its_others_mean_what_they_mean_elsewhere():
    hybrid = Hybrid(paired=1.0, exchange=1.0)
    batch, net = random_batch(side=8), Watched()
    only_objective(HybridAugment(augmentor=hybrid, jsd=1.0, agreeing=3), net, random_batch(side=8))
    generator = seeded()
    clean = batch.transform(batch.images, generator)
    image = hybrid.of_one(clean, generator)
    assert torch.equal(net.seen[0], torch.cat([image, hybrid.of_pairs(image, generator), clean]))
    net = Watched()
    only_objective(HybridAugment(augmentor=hybrid, views="original+augmented"), net, random_batch(side=8))
    generator = seeded()
    clean = batch.transform(batch.images, generator)
    assert torch.equal(net.seen[0], torch.cat([clean, hybrid(clean, generator)]))


@pytest.mark.parametrize(
    ("options", "levels"),
    [({}, [1, 2, 3]), ({"agreeing": 2}, [1, 2]), ({"views": "both augmented"}, [2, 3, 1])],
)
def test_noisymix_is_the_noisier_the_more_a_view_is_changed(options, levels, monkeypatch):
    found = []
    monkeypatch.setattr(noisymix, "noisy_at", lambda place, h, units, level, *rest: found.append(level) or h)
    goal = only_objective(NoisyMix(additive=1.0, **options), Watched(), random_batch(side=8))
    assert found == levels
    assert goal.loss.item() == pytest.approx((goal.parts["task"] + 12 * goal.parts["consistency"]).item(), rel=1e-5)


def test_the_audit_leaves_out_augmentations_that_no_view_has():
    assert overlaps_of(FixedDiffusion(augmentor=Contrast()), Identity())["contrast"] == ("contrast",)
    assert "contrast" not in overlaps_of(FixedDiffusion(augmentor=Contrast(), views="original"), Identity())
    assert overlaps_of(in_stages(augmentor=Contrast(), mixture=False), Identity())["contrast"]  # it is covered


@pytest.mark.parametrize(
    ("method", "known"),
    [
        ("augmix", "ff3571badc86"),
        ("prime", "4eb8c06c7266"),
        ("trivial_augment", "91fa7f0bdb1f"),
        ("fixed_diffusion", "7f438306db87"),
    ],
)
def test_configs_from_before_the_options_have_their_hashes(method, known):
    assert config_hash(pp.load_config("demo", [f"method.name={method}"])) == known


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: AugMixTraining(views="original"), "method.views='original' trains on no augmentation"),
        (lambda: AugMixTraining(views="clean"), "method.views='clean' is not known"),
        (lambda: AugMixTraining(jsd=1.0, agreeing=4), "method.agreeing=4 is not known"),
        (lambda: AugMixTraining(agreeing=2), "method.agreeing=2 without agreement: set its weight"),
        (lambda: TwoViews(jsd=0.0, agreeing=3), "method.agreeing=3 without agreement"),
        (lambda: RLAT(views="original+augmented"), "method.views='original.augmented' needs views that differ"),
        (lambda: Gaussian(jsd=-1.0), "method.jsd=-1"),
        (lambda: NoisyMix(jsd=0.0), "method.name='nfm'"),
        (lambda: FixedDiffusion(mixture=False, jsd=1.0), "method.mixture=false is method.views='original'"),
        (lambda: in_stages(views="original", supervised="original"), "older names of the same; leave them out"),
        (lambda: in_stages(covariance="directional", agreeing=3), "needs two views in one pass"),
        (lambda: in_stages(covariance="directional", views="original", jsd=0.0), "needs two views in one pass"),
        (lambda: in_stages(mixture=False, agreeing=3), "method.agreeing=3 without agreement"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(build, message):
    with pytest.raises(UserError, match=message) as caught:
        build()
    assert "\n" not in str(caught.value)
