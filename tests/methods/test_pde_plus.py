"""PDE+: losses, gradients and schedules."""

import itertools
import math
from dataclasses import replace

import pytest
import torch
from support.pde_plus import Darker, in_stages, make_batch, make_network
from torch import nn
from torch.nn import functional as F

import pdeplus as pp
from pdeplus.augment.augmix import AugMix
from pdeplus.augment.base import Augmentor
from pdeplus.core import add_block
from pdeplus.core.add_block import ADDBlock
from pdeplus.core.context import Trace
from pdeplus.core.surgery import add_blocks_of
from pdeplus.errors import UserError
from pdeplus.training.distributed import Engine
from pdeplus.training.loop import train_step

SCHEDULES = ["fused", "alternating", "authors"]


def objectives(method, net, seed=0):
    """The losses of one step, no update taken."""
    parts = {}
    for goal in method.objectives(net, make_batch(seed)):
        parts |= {name: value.item() for name, value in goal.parts.items()}
    return parts


def test_schedules_compute_the_same_losses_from_the_same_state(monkeypatch):
    """With the noise taken out the three agree exactly; with it, on average over draws."""
    net = make_network(in_stages(initial_scale=0.2))
    with monkeypatch.context() as patch:
        patch.setattr(add_block, "diffuse", lambda h, scale, generator, prior: h)
        still = [objectives(in_stages(schedule=s, augmentor=Darker()), net) for s in SCHEDULES]
    for other in still[1:]:
        assert other["coverage"] == pytest.approx(still[0]["coverage"], rel=1e-5)
        assert other["task"] == pytest.approx(still[0]["task"], rel=1e-5)
        assert other["consistency"] == pytest.approx(still[0]["consistency"], rel=1e-3)
    means, errors = {}, {}
    for schedule in SCHEDULES:
        method = in_stages(schedule=schedule, augmentor=Darker())
        found = [objectives(method, net, seed) for seed in range(40)]
        draws = torch.tensor([[one[part] for part in ("task", "consistency", "coverage")] for one in found])
        means[schedule], errors[schedule] = draws.mean(0), draws.std(0) / math.sqrt(len(draws))
    for a, b in itertools.combinations(SCHEDULES, 2):
        gap = (means[a] - means[b]).abs()
        assert (gap < 4 * (errors[a] ** 2 + errors[b] ** 2).sqrt() + 1e-6).all()


def test_losses_are_those_of_the_formulas():
    """Recomputed from two passes by hand: sum over blocks of log σ + d²/2σ², and plain cross-entropy."""
    net = make_network(in_stages(initial_scale=0.2))
    batch, method = make_batch(), in_stages(augmentor=Darker())
    got = objectives(method, net)
    x, y = batch.images, batch.labels
    with torch.no_grad():
        with pp.diffusion(net, active=False) as twin:
            net(0.6 * x)
        with pp.diffusion(net, generator=make_batch().generator) as trace:
            logits = net(torch.cat([x, 0.6 * x]))
    coverage = 0.0
    for h_twin, h, s in zip(twin.means, trace.means, trace.scales, strict=True):
        h, s = h[:8], s[:8]
        coverage += (s.log() + (h_twin - h) ** 2 / (2 * s**2)).mean().item()
    assert got["coverage"] == pytest.approx(coverage, rel=1e-4)
    assert got["task"] == pytest.approx(F.cross_entropy(logits, torch.cat([y, y])).item(), rel=1e-4)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("twins", ["plain", "diffused"])
def test_coverage_is_that_of_so_many_images_and_the_task_that_of_all(schedule, twins, monkeypatch):
    if twins == "diffused" and schedule != "fused":
        pytest.skip("only fused has diffused twins")
    options = {"schedule": schedule, "twins": twins, "augmentor": Darker()}
    net, part = make_network(in_stages(initial_scale=0.2)), make_batch()
    monkeypatch.setattr(add_block, "diffuse", lambda h, scale, generator, prior: h)
    found, whole = (objectives(in_stages(coverage_images=n, **options), net) for n in (3, 256))
    few = {}
    for goal in in_stages(**options).objectives(net, replace(part, images=part.images[:3], labels=part.labels[:3])):
        few |= {name: value.item() for name, value in goal.parts.items()}
    expected, other = (few, whole) if schedule == "fused" else (whole, few)  # Algorithm 1 to the letter covers all
    assert found["coverage"] == pytest.approx(expected["coverage"], rel=1e-5)
    assert found["coverage"] != pytest.approx(other["coverage"], rel=5e-5)
    assert found["task"] == pytest.approx(whole["task"], rel=1e-6)


def traces(h, twin, scale):
    return Trace(means=[twin]), Trace(means=[h], scales=[scale])


def test_coverage_options_by_hand():
    h, twin, scale = torch.zeros(1, 2), torch.tensor([[2.0, 2.0]]), torch.tensor([[4.0, 4.0]])
    std = math.log(4) + 4 / (2 * 16)
    variance = 0.5 * (math.log(4) + 4 / 4)
    laplace = math.log(4) + 2 / 4
    assert in_stages().coverage(*traces(h, twin, scale)).item() == pytest.approx(std)
    assert in_stages(sigma_is="variance").coverage(*traces(h, twin, scale)).item() == pytest.approx(variance)
    assert in_stages(prior="laplace").coverage(*traces(h, twin, scale)).item() == pytest.approx(laplace)
    two = Trace(means=[twin, twin]), Trace(means=[h, h], scales=[scale, scale / 2])
    summed, averaged = (in_stages(coverage_reduction=r).coverage(*two).item() for r in ("sum", "mean"))
    assert summed == pytest.approx(2 * averaged)


def test_variance_reading_is_torchs_gaussian_nll_with_its_clamp():
    h, twin = torch.randn(4, 5), torch.randn(4, 5)
    scale = torch.relu(torch.randn(4, 5))
    assert (scale == 0).any()
    ours = in_stages(sigma_is="variance", head="relu").coverage(*traces(h, twin, scale))
    assert ours.item() == pytest.approx(nn.GaussianNLLLoss()(twin, h, scale).item(), rel=1e-5)


@pytest.mark.parametrize(
    ("sigma_is", "scale", "value", "slope"),
    [
        # d² = 4·10⁻⁶ and v the variance, at least 10⁻⁶: ½ (log v + d²/v), and ½ (1/v - d²/v²) by v
        ("variance", 0.0, 0.5 * (math.log(1e-6) + 4), -1.5e6),
        ("variance", 1e-7, 0.5 * (math.log(1e-6) + 4), -1.5e6),
        ("variance", 1e-6, 0.5 * (math.log(1e-6) + 4), -1.5e6),
        ("variance", 2e-6, 0.5 * (math.log(2e-6) + 2), 0.5 * (5e5 - 1e6)),
        ("variance", 4e-6, 0.5 * (math.log(4e-6) + 1), 0.0),
        # by σ, where v = σ²: 2σ times that
        ("std", 0.0, 0.5 * (math.log(1e-6) + 4), 0.0),
        ("std", 1e-4, 0.5 * (math.log(1e-6) + 4), -300.0),
        ("std", 1e-3, 0.5 * (math.log(1e-6) + 4), -3000.0),
        ("std", 2e-3, 0.5 * (math.log(4e-6) + 1), 0.0),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_below_the_least_variance_value_and_gradient_are_torchs(sigma_is, scale, value, slope, dtype):
    h, twin = torch.zeros(1, 1, dtype=dtype), torch.full((1, 1), 2e-3, dtype=dtype)
    ours, theirs = (torch.full((1, 1), scale, dtype=dtype, requires_grad=True) for _ in range(2))
    loss = in_stages(head="relu", sigma_is=sigma_is).coverage(*traces(h, twin, ours))
    peer = nn.GaussianNLLLoss()(twin, h, theirs if sigma_is == "variance" else theirs.square())
    (loss + peer).backward()
    assert (loss.item(), peer.item()) == pytest.approx((value, value), rel=1e-6)
    assert (ours.grad.item(), theirs.grad.item()) == pytest.approx((slope, slope), rel=1e-5, abs=1)


@pytest.mark.parametrize("schedule", ["alternating", "authors"])
def test_local_coverage_reaches_no_backbone_and_no_other_block(schedule):
    method = in_stages(schedule=schedule, coverage_gradient="local", augmentor=Darker())
    net = make_network(method)
    goal = next(method.objectives(net, make_batch()))
    goal.loss.backward()
    reached = {name for name, p in net.named_parameters() if p.grad is not None}
    assert reached
    assert all(name.startswith("add_blocks.") for name in reached)


def test_each_blocks_coverage_reaches_that_block_only():
    method = in_stages(augmentor=Darker())
    net = make_network(method)
    with torch.no_grad(), pp.diffusion(net, active=False) as twin:
        net(0.6 * make_batch().images)
    for i in range(4):
        net.zero_grad()
        with pp.diffusion(net, local=True) as trace:
            net(make_batch().images)
        one = Trace(means=twin.means[i : i + 1]), Trace(means=trace.means[i : i + 1], scales=trace.scales[i : i + 1])
        method.coverage(*one).backward()
        assert {n.split(".")[1] for n, p in net.named_parameters() if p.grad is not None} == {str(i)}


def test_through_reaches_earlier_blocks_and_the_backbone():
    method = in_stages(schedule="authors", coverage_gradient="through", augmentor=Darker())
    net = make_network(method)
    goal = next(method.objectives(net, make_batch()))
    goal.loss.backward()
    assert net.conv1.weight.grad.abs().sum() > 0
    assert goal.update == ("diffusion",)


def test_fused_gradient_is_the_tasks_for_theta_and_the_sum_for_phi():
    """One backward of the sum gives θ the task's gradient alone, φ that of both terms."""
    method = in_stages(augmentor=Darker(), initial_scale=0.2)
    net = make_network(method)
    net.add_blocks[0].body[-1].weight.data.fill_(0.1)
    (goal,) = method.objectives(net, make_batch())
    named = dict(net.named_parameters())

    def gradient(loss):
        found = torch.autograd.grad(loss, list(named.values()), retain_graph=True, allow_unused=True)
        return {n: torch.zeros_like(p) if g is None else g for (n, p), g in zip(named.items(), found, strict=True)}

    task = gradient(goal.parts["task"] + method.jsd * goal.parts["consistency"])
    total, coverage = gradient(goal.loss), gradient(goal.parts["coverage"])
    for name in named:
        assert torch.allclose(total[name], task[name] + coverage[name], atol=1e-4, rtol=1e-3)
        if not name.startswith("add_blocks."):
            assert not coverage[name].any()
    assert coverage["add_blocks.0.body.0.weight"].any()
    assert task["add_blocks.0.body.0.weight"].any()  # cross-entropy trains φ too


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_who_updates_what(schedule):
    method = in_stages(schedule=schedule)
    net = make_network(method)
    optimizers = method.optimizers(net, lambda p: torch.optim.SGD(p, lr=0.1))
    sizes = {n: sum(p.numel() for g in o.param_groups for p in g["params"]) for n, o in optimizers.items()}
    phi = sum(p.numel() for b in add_blocks_of(net) for p in b.parameters())
    everything = sum(p.numel() for p in net.parameters())
    assert sizes["diffusion"] == phi
    assert sizes["task"] == (everything - phi if schedule == "fused" else everything)


def test_coverage_step_of_the_two_phase_schedules_leaves_theta_alone():
    for schedule in ("alternating", "authors"):
        method = in_stages(schedule=schedule, coverage_gradient="through", augmentor=Darker())
        net = make_network(method)
        optimizers = method.optimizers(net, lambda p: torch.optim.SGD(p, lr=0.0))
        theta = net.conv1.weight.clone()
        phi = add_blocks_of(net)[0].body[-1].bias.clone()
        train_step(net, method, make_batch(), optimizers, Engine("fp32"))
        assert torch.equal(net.conv1.weight, theta)
        assert not torch.equal(add_blocks_of(net)[0].body[-1].bias, phi)


@pytest.mark.parametrize(("block", "gain", "least"), [("paper", 0.2, 0.8), ("light", 0.1, 0.7)])
def test_training_drives_sigma_to_the_distance_of_the_twins(block, gain, least):
    """φ alone, many steps: the coverage loss falls below that of any fixed scale."""
    method = in_stages(schedule="alternating", augmentor=Darker(), diffusion_lr=0.03, placement=("0",), block=block)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 5), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 10))
    net = method.prepare(model, make_batch().images).train()
    optimizers = method.optimizers(net, lambda p: torch.optim.SGD(p, lr=0.0))
    for _ in range(600):
        train_step(net, method, make_batch(), optimizers, Engine("fp32"))
    with torch.no_grad():
        h, twin = model[0](make_batch().images), model[0](0.6 * make_batch().images)
        scale, distance = add_blocks_of(net)[0].scale(h), (twin - h).abs()
    coverage = (scale.log() + distance.square() / (2 * scale.square())).mean()
    best_fixed = (distance.square().mean((0, 2, 3)).sqrt().log() + 0.5).mean()  # one σ per channel, in closed form
    assert coverage < best_fixed - gain
    correlation = torch.corrcoef(torch.stack([scale.flatten(), distance.flatten()]))[0, 1]
    assert correlation > least  # it adapts to the place, not only to the channel


def test_views_and_mixture():
    class Shifted(Augmentor):
        overlaps = ()

        def __call__(self, x, generator=None):
            return x + 1

    def passes(**options):
        """What the network sees in the plain pass of the twins and in the task's, its last logits, the objective."""
        method, seen = in_stages(augmentor=Shifted(), **options), []
        net = make_network(method).train()
        net.register_forward_hook(lambda module, args, output: seen.append((args[0], output)))
        (goal,) = method.objectives(net, make_batch())
        (twins, _), (task, logits) = seen
        return twins, task, logits, goal

    x, labels = make_batch().images, make_batch().labels
    for options, inputs in (
        ({}, torch.cat([x, x + 1])),
        ({"views": "both augmented"}, torch.cat([x + 1, x + 1])),
        ({"mixture": False}, x),
    ):
        twins, task, logits, goal = passes(**options)
        assert torch.equal(twins, x + 1)
        assert torch.equal(task, inputs)
        assert torch.equal(goal.parts["task"], F.cross_entropy(logits, labels.repeat(len(inputs) // 8)))


@pytest.mark.parametrize(
    "options",
    [
        {"placement": "block"},
        {"placement": ("layer1", "layer3.0")},
        {"block": "light"},
        {"head": "relu", "initial_scale": 0},
        {"head": "relu", "initial_scale": 0, "sigma_is": "variance"},
        {"prior": "laplace"},
        {"prior": "student_t"},
        {"mixture": False},
        {"mixture": False, "schedule": "alternating"},
        {"schedule": "alternating", "coverage_gradient": "through"},
        {"schedule": "authors"},
        {"views": "both augmented"},
        {"augmentor": AugMix(severity=10, width=4, operations=13)},
        {"diffusion_schedule": "cosine"},
        {"samples": 3, "average": "logits"},
        {"covariance": "directional"},
        {"covariance": "directional", "reach": (0.1, 0.2, 0.3, 0.4), "per": "position", "views": "both augmented"},
        {"covariance": "both", "per": "channel"},
    ],
    ids=str,
)
def test_every_option_trains(options):
    method = in_stages(**options)
    net = make_network(method).train()
    optimizers = method.optimizers(net, lambda p: torch.optim.SGD(p, lr=0.05))
    for _ in range(2):
        logs = train_step(net, method, make_batch(), optimizers, Engine("fp32"))
    assert all(value.isfinite() for value in logs.values())
    places = {"block": 8, ("layer1", "layer3.0"): 2}.get(options.get("placement"), 4)
    assert sum(isinstance(m, ADDBlock) for m in net.modules()) == places
    logged = "distance/" if options.get("covariance") == "directional" else "sigma/"
    assert sum(name.startswith(logged) for name in logs) == places
    assert method.predict(net, make_batch().images, torch.Generator().manual_seed(0)).shape == (8, 10)


def test_directional_losses_are_cross_entropy_and_agreement_of_the_moved_pair():
    """Recomputed from the same draws by hand; there is no φ and no coverage loss."""
    method = in_stages(covariance="directional", reach=0.3, augmentor=Darker(), jsd=2.0)
    net, batch = make_network(method), make_batch()
    (goal,) = method.objectives(net, batch)
    with torch.no_grad(), pp.diffusion(net, generator=make_batch().generator, twins=True) as trace:
        logits = net(torch.cat([batch.images, 0.6 * batch.images]))
    assert set(goal.parts) == {"task", "consistency"}
    assert goal.update == ("task",)
    labels = batch.labels.repeat(2)
    assert goal.parts["task"].item() == pytest.approx(F.cross_entropy(logits, labels).item(), rel=1e-5)
    agreement = pp.functional.jensen_shannon(logits.view(2, 8, 10)).item()
    assert goal.loss.item() == pytest.approx(goal.parts["task"].item() + 2 * agreement, rel=1e-5)
    first, second = trace.means[0].chunk(2)
    gap = (second - first).square().mean().sqrt().item()
    assert goal.metrics["distance/layer1"].item() == pytest.approx(gap, rel=1e-5)
    assert set(method.optimizers(net, lambda p: torch.optim.SGD(p, lr=0.1))) == {"task"}
    assert all(p.requires_grad for p in net.parameters())
    assert method.label == "PDE+ (Darker, directional)"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mixture": False}, "covariance='directional' needs two views in one pass"),
        ({"schedule": "alternating"}, "covariance='directional' needs two views in one pass"),
        ({"samples": 5}, "method.samples=5: at test there are no twins"),
    ],
)
def test_directional_refuses_what_has_no_twins(options, message):
    with pytest.raises(UserError, match=message):
        in_stages(covariance="directional", **options)


def test_fused_refuses_a_gradient_that_needs_two_backwards():
    with pytest.raises(UserError, match="coverage_gradient='through'.*schedule='alternating'"):
        in_stages(coverage_gradient="through")


@pytest.mark.parametrize("preset", ["paper", "authors", "pde_plus"])
def test_presets_hold_what_their_names_promise(preset):
    config = pp.load_config(preset)
    method = config.method.options
    if preset == "paper":
        assert (method["placement"], method["sigma_is"], method["schedule"]) == ("block", "variance", "alternating")
        assert (config.train.lr, method["diffusion_lr"], method["samples"]) == (0.05, 0.015, 10)
    elif preset == "authors":
        assert (method["head"], method["schedule"], method["views"]) == ("relu", "authors", "both augmented")
        assert (config.train.lr, method["diffusion_lr"], config.train.label_smoothing) == (0.06, 0.001, 0.12)
        augmix = {"name": "augmix", "severity": 10, "width": 10, "operations": 13, "variant": "torchvision"}
        assert method["augmentor"] == augmix
    else:
        assert dict(method) == {}
    assert (config.train.epochs, config.train.batch_size, config.train.weight_decay) == (200, 128, 5e-4)
