"""PDE+ combined: its loss worked out by hand, perturbed guidance, options."""

import pytest
import torch
from conftest import STAGES
from support.one_step import batch_of
from torch.nn import functional as F

import pdeplus as pp
from pdeplus.augment.brightness import Brightness
from pdeplus.augment.identity import Identity
from pdeplus.augment.invert import Invert
from pdeplus.errors import UserError
from pdeplus.functional import coverage_nll, jensen_shannon
from pdeplus.methods.pde_plus_combined import PDEPlusCombined


def prepared(net, x, **options):
    method = PDEPlusCombined(initial_scale=0.3, **options)
    return method, method.prepare(net, x).eval()


@torch.no_grad()
def test_the_loss_by_hand(net, x):
    """Views that need no chance, so that the diffused pass alone draws from the stream."""
    method, model = prepared(net, x, augmentor=Identity(), second=Invert(), jsd=5.0)
    (goal,) = method.objectives(model, batch_of(x, 10))
    parts = {name: float(part.detach()) for name, part in goal.parts.items()}
    views, labels = [x, x, 1 - x], torch.arange(len(x)) % 10
    with pp.diffusion(model, generator=torch.Generator().manual_seed(0)):
        logits = model(torch.cat(views)).view(3, len(x), 10)
    task = F.cross_entropy(logits[:2].flatten(0, 1), labels.repeat(2))
    consistency = jensen_shannon(logits)
    covered = 0.0
    with pp.diffusion(model, generator=torch.Generator().manual_seed(0)) as trace:
        model(torch.cat(views))
    for view in views[1:]:
        with pp.diffusion(model, active=False) as twin:
            model(view)
        for h_twin, h, sigma in zip(twin.means, trace.means, trace.scales, strict=True):
            covered += float(coverage_nll(h_twin, h[: len(x)], sigma[: len(x)])) / 2
    assert parts["task"] == pytest.approx(float(task), rel=1e-5)
    assert parts["consistency"] == pytest.approx(float(consistency), rel=1e-4)
    assert parts["coverage"] == pytest.approx(covered, rel=1e-4)
    assert float(goal.loss.detach()) == pytest.approx(float(task + 5 * consistency) + covered, rel=1e-4)
    assert goal.update == ("task", "diffusion")
    assert set(goal.metrics) == {"accuracy", *(f"sigma/{name}" for name in STAGES)}


def test_perturbed_guidance_is_harder_to_cover_and_leaves_the_task_alone(net, x):
    losses = []
    for epsilon in (0.0, 0.5):
        method, model = prepared(net, x, augmentor=Identity(), second=Identity(), epsilon=epsilon, jsd=0)
        (goal,) = method.objectives(model, batch_of(x, 10))
        assert not any(module._forward_pre_hooks for module in model.modules())
        losses.append({name: float(part.detach()) for name, part in goal.parts.items()})
    assert losses[1]["task"] == losses[0]["task"]
    assert losses[1]["coverage"] > losses[0]["coverage"]


def test_without_noise_equal_views_agree(net, x):
    method, model = prepared(net, x, augmentor=Identity(), second=Identity(), jsd=0.0)
    with torch.no_grad():
        for block in model.add_blocks:
            block.floor = 0.0
            block.body[-1].bias.fill_(-50.0)  # σ = softplus(-50)
    (goal,) = method.objectives(model, batch_of(x, 10))
    assert float(goal.parts["consistency"].detach()) == pytest.approx(0, abs=1e-6)


def test_options(net, x):
    with pytest.raises(UserError, match="method.jsd=-1"):
        PDEPlusCombined(jsd=-1)
    with pytest.raises(UserError, match="method.epsilon=-1"):
        PDEPlusCombined(epsilon=-1)
    with pytest.raises(UserError, match="method.samples=-1"):
        PDEPlusCombined(samples=-1)
    with pytest.raises(UserError, match="views that differ"):
        PDEPlusCombined(augmentor=Identity(), second=Identity())
    method, model = prepared(net, x, second=Brightness(), samples=3)
    assert method.predict(model, x, torch.Generator().manual_seed(0)).shape == (6, 10)
