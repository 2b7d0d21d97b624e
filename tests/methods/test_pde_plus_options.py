"""PDE+'s options beyond the paper's: twins of the diffused pass, agreement of the views, the weight of coverage."""

import pytest
import torch
from support.pde_plus import Darker, in_stages, make_batch, make_network
from torch.nn import functional as F

import pdeplus as pp
from pdeplus.core import add_block
from pdeplus.errors import UserError
from pdeplus.functional import coverage_nll, jensen_shannon


@pytest.fixture
def no_noise(monkeypatch):
    monkeypatch.setattr(add_block, "diffuse", lambda h, scale, generator, prior: h)


def one_objective(method, net):
    return next(iter(method.objectives(net, make_batch())))


def test_without_noise_diffused_twins_are_the_plain_ones(no_noise):
    plain, diffused = (in_stages(augmentor=Darker(), initial_scale=0.2, twins=twins) for twins in ("plain", "diffused"))
    net = make_network(plain)
    expected, found = (one_objective(method, net).parts["coverage"].item() for method in (plain, diffused))
    assert found == pytest.approx(expected, rel=1e-5)


def test_diffused_twins_are_rows_of_the_diffused_pass():
    method = in_stages(augmentor=Darker(), initial_scale=0.2, twins="diffused")
    net, batch = make_network(method), make_batch()
    found = one_objective(method, net).parts["coverage"].item()
    both = torch.cat([batch.images, Darker()(batch.images)])
    with torch.no_grad(), pp.diffusion(net, generator=make_batch().generator) as trace:
        net(both)
    n = len(batch.images)
    by_hand = sum(coverage_nll(h[n:], h[:n], s[:n]) for h, s in zip(trace.means, trace.scales, strict=True))
    assert found == pytest.approx(by_hand.item(), rel=1e-5)


def test_diffused_twins_leave_out_a_pass():
    calls = {}
    for twins in ("plain", "diffused"):
        method = in_stages(augmentor=Darker(), twins=twins)
        net, seen = make_network(method), []
        net.register_forward_pre_hook(lambda module, args, seen=seen: seen.append(len(args[0])))
        one_objective(method, net)
        calls[twins] = seen
    assert calls == {"plain": [8, 16], "diffused": [16]}


@pytest.mark.parametrize("schedule", ["fused", "alternating"])
def test_agreement_of_the_views(schedule, no_noise):
    method = in_stages(augmentor=Darker(), jsd=3.0, schedule=schedule)
    net, images = make_network(method), make_batch().images
    with torch.no_grad():
        expected = jensen_shannon(torch.stack([net(images), net(Darker()(images))]))
    goals = list(method.objectives(net, make_batch()))
    parts, total = goals[-1].parts, goals[-1].loss
    assert parts["consistency"].item() == pytest.approx(expected.item(), rel=1e-4)
    rest = sum(part.item() for name, part in parts.items() if name != "consistency")
    assert total.item() == pytest.approx(rest + 3 * expected.item(), rel=1e-5)


def test_a_view_that_only_agrees_has_no_cross_entropy(no_noise):
    method = in_stages(augmentor=Darker(), supervised="original")
    net, batch = make_network(method), make_batch()
    parts = one_objective(method, net).parts
    with torch.no_grad():
        logits = net(torch.cat([batch.images, Darker()(batch.images)]))[: len(batch.images)]
    assert parts["task"].item() == pytest.approx(F.cross_entropy(logits, batch.labels).item(), rel=1e-4)
    both = one_objective(in_stages(augmentor=Darker()), net).parts
    assert parts["consistency"].item() == pytest.approx(both["consistency"].item(), rel=1e-4)


def test_one_prediction_has_nothing_to_agree_with():
    alone = in_stages(augmentor=Darker(), mixture=False)
    assert alone.jsd > 0
    assert set(one_objective(alone, make_network(alone)).parts) == {"task", "coverage"}


@pytest.mark.parametrize("schedule", ["fused", "alternating"])
def test_the_weight_of_coverage(schedule, no_noise):
    once, twice = (in_stages(augmentor=Darker(), coverage_weight=w, schedule=schedule) for w in (1.0, 2.0))
    net = make_network(once)
    light, heavy = (one_objective(method, net).parts["coverage"].item() for method in (once, twice))
    assert heavy == pytest.approx(2 * light, rel=1e-6)


@pytest.mark.parametrize(
    ("options", "answer"),
    [
        ({"twins": "diffused", "schedule": "alternating"}, "method.twins='diffused' needs method.schedule='fused'"),
        ({"twins": "diffused", "mixture": False}, "method.twins='diffused' needs method.schedule='fused'"),
        ({"jsd": -1.0}, "method.jsd=-1.0 must be a number of 0 or more"),
        ({"coverage_weight": -1.0}, "method.coverage_weight=-1.0 must be a number of 0 or more"),
    ],
)
def test_what_does_not_go_together_is_refused(options, answer):
    with pytest.raises(UserError, match=answer):
        in_stages(**options)
