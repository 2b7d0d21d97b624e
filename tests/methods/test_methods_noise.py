"""RSE, EnResNet and fixed diffusion: where the noise is, how large, and what is trained and averaged."""

import pytest
import torch
from support.one_step import only_objective, random_batch, seeded, small_resnet
from support.pde_plus import in_stages
from torch import nn
from torch.nn import functional as F

import pdeplus as pp
from pdeplus._lib import registry
from pdeplus.augment.augmix import AugMix
from pdeplus.augment.crop_flip import CropFlip
from pdeplus.core.prediction import sample_logits
from pdeplus.core.surgery import add_blocks_of
from pdeplus.errors import UserError
from pdeplus.methods.base import overlaps_of, with_samples
from pdeplus.methods.en_resnet import EnResNet, Ensemble, redrawn
from pdeplus.methods.erm import ERM
from pdeplus.methods.fixed_diffusion import FixedDiffusion
from pdeplus.methods.rse import RSE

MODELS = {"resnet18": {}, "preact_resnet18": {}, "plain_cnn": {}, "wide_resnet": {"depth": 10, "widen": 1}}


def prepared(method, model=None):
    return method.prepare(model if model is not None else small_resnet(), torch.zeros(2, 3, 16, 16)).eval()


@pytest.mark.parametrize("name", MODELS)
def test_rse_has_more_noise_before_the_first_convolution_than_before_all_others(name):
    model = registry.build("models", name, {"width": 4, **MODELS[name]}, classes=5, channels=3)
    net = prepared(RSE(), model)
    inputs = []
    for module in net.modules():
        if isinstance(module, nn.Conv2d):
            module.register_forward_pre_hook(lambda m, args: inputs.append(args[0]))  # behind the noise's own hook
    with torch.no_grad(), pp.diffusion(net, generator=seeded()) as trace:
        net(torch.rand(64, 3, 16, 16))
    assert len(inputs) == len(trace.means) == sum(isinstance(m, nn.Conv2d) for m in model.modules())
    sizes = [float((seen - mean).std()) for seen, mean in zip(inputs, trace.means, strict=True)]
    assert sizes == pytest.approx([0.2, *[0.1] * (len(sizes) - 1)], rel=0.03)


class TwoConvolutions(nn.Module):
    """Linear in its input: 1×1 convolutions 2 → 3 → 2 without bias, on single pixels."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(2, 3, 1, bias=False), nn.Conv2d(3, 2, 1, bias=False)

    def forward(self, x):
        return self.second(self.first(x)).flatten(1)


@pytest.mark.parametrize("first", [0.2, 0.1])
def test_rse_on_a_linear_network_has_the_variance_of_the_formula(first):
    """Var = σ_first² |W₂W₁|² + σ_inner² |W₂|² by rows; first = 0.1 is the variant of the PDE+ authors."""
    model, x = TwoConvolutions(), torch.rand(1, 2, 1, 1)
    net = RSE(first=first).prepare(model, x).eval()
    w1, w2 = (layer.weight.detach().flatten(1) for layer in (model.first, model.second))
    logits = sample_logits(net, x, 20_000, generator=seeded())
    variance = first**2 * (w2 @ w1).square().sum(1) + 0.01 * w2.square().sum(1)
    assert torch.allclose(logits.var(0)[0], variance, rtol=0.05)
    assert torch.allclose(logits.mean(0), model(x), atol=5 * float(variance.max() / 20_000) ** 0.5)


def test_rse_trains_on_one_noisy_pass_and_averages_softmax_over_samples():
    method, batch = RSE(), random_batch()
    net = prepared(method)
    goal = only_objective(method, net, batch)
    generator = seeded()
    view = batch.transform(batch.images, generator)
    with pp.diffusion(net, generator=generator):
        task = F.cross_entropy(net(view), batch.labels)
    assert goal.loss.item() == pytest.approx(task.item(), rel=1e-5)
    x, variant = batch.images, RSE(samples=3)
    generator, passes = seeded(5), []
    with torch.no_grad():
        for _ in range(3):
            with pp.diffusion(net, generator=generator):
                passes.append(net(x).softmax(-1))
    assert torch.allclose(variant.predict(net, x, seeded(5)), torch.stack(passes).mean(0), atol=1e-5)
    assert torch.equal(RSE(samples=0).predict(net, x, None), net(x).softmax(-1))


def test_rse_says_that_its_images_are_noisy():
    assert overlaps_of(RSE(), CropFlip())["rse"] == ("gaussian_noise",)
    assert overlaps_of(RSE(first=0.0), CropFlip())["rse"] == ()
    with pytest.raises(UserError, match="no convolution"):
        RSE().prepare(nn.Sequential(nn.Flatten(), nn.Linear(3, 2)), torch.zeros(2, 3))


def test_en_resnet_has_noise_after_every_block_in_proportion_to_its_features():
    net = prepared(EnResNet(members=2, noise=0.1))
    names = [f"members.{i}.layer{stage}.{block}" for i in range(2) for stage in range(1, 5) for block in range(2)]
    assert [block.name for block in add_blocks_of(net)] == names
    outputs = []
    for name in names:
        net.get_submodule(name).register_forward_hook(lambda m, args, out: outputs.append(out))
    with torch.no_grad(), pp.diffusion(net, generator=seeded()) as trace:
        net(torch.rand(40, 3, 16, 16))
    for noisy, h in zip(outputs, trace.means, strict=True):
        assert ((noisy - h).std() / h.std(correction=0)).item() == pytest.approx(0.1, rel=0.05)


def test_an_ensemble_averages_the_logits_of_members_that_differ():
    torch.manual_seed(0)
    model = small_resnet()
    net, x = prepared(EnResNet(members=3), model), torch.rand(4, 3, 16, 16)
    members = [member(x) for member in net.members]
    assert torch.allclose(net(x), torch.stack(members).mean(0))
    assert torch.equal(members[0], model.eval()(x))  # the first is the model as it came
    for i in range(3):
        for j in range(i):
            a, b = (net.members[k].layer2[0].conv1.weight for k in (i, j))
            assert not torch.equal(a, b)
            assert a.std().item() == pytest.approx(b.std().item(), rel=0.2)
    assert all(p.requires_grad for p in net.parameters())


def test_members_follow_from_torchs_random_state():
    nets = [prepared(EnResNet(members=2)) for _ in range(2)]
    first, second = (net.state_dict() for net in nets)
    assert all(torch.equal(first[key], second[key]) for key in first)


class Fixed(nn.Module):
    """Holds a parameter that it cannot draw again."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))


def test_copies_that_cannot_differ_are_refused_and_others_keep_what_they_cannot_draw():
    with pytest.raises(UserError, match="no layer with reset_parameters"):
        redrawn(Fixed())
    model = nn.Sequential(nn.Linear(3, 3), Fixed(), nn.MultiheadAttention(4, 2), nn.BatchNorm1d(3))
    model[3].running_mean.fill_(7)
    copy = redrawn(model)
    assert not torch.equal(copy[0].weight, model[0].weight)
    assert not torch.equal(copy[2].in_proj_weight, model[2].in_proj_weight)
    assert torch.equal(copy[1].weight, model[1].weight)
    assert not copy[3].running_mean.any()


@pytest.mark.parametrize("members", [0, -1])
def test_an_ensemble_of_none_is_refused(members):
    with pytest.raises(UserError, match=f"members={members}.*1 or more"):
        EnResNet(members=members)
    with pytest.raises(UserError, match="at least 1"):
        Ensemble([])


def test_adversarial_images_are_near_and_raise_the_loss():
    natural, adversarial = EnResNet(members=2), EnResNet(members=2, adversarial=True)
    net, batch = prepared(natural).train(), random_batch(10)  # BatchNorm of the batch: an untrained net that reacts
    view = batch.transform(batch.images, batch.generator)
    attacked = adversarial.attacked(net, view, batch.labels, seeded())
    assert not attacked.requires_grad
    assert all(p.grad is None for p in net.parameters())
    assert (attacked - view).abs().max() <= 0.031 + 1e-6
    assert (attacked - view).abs().mean() > 0.01
    assert attacked.min() >= 0
    assert attacked.max() <= 1
    before, after = (only_objective(method, net, random_batch(10)).loss.item() for method in (natural, adversarial))
    assert after > before + 0.1
    assert (natural.label, adversarial.label) == ("EnResNet natural", "EnResNet")


def test_en_resnet_trains_all_members_by_one_loss_on_their_mean():
    method, batch = EnResNet(members=2), random_batch()
    net = prepared(method)
    goal = only_objective(method, net, batch)
    generator = seeded()
    view = batch.transform(batch.images, generator)
    with pp.diffusion(net, generator=generator):
        mean = (net.members[0](view) + net.members[1](view)) / 2
    assert goal.loss.item() == pytest.approx(F.cross_entropy(mean, batch.labels).item(), rel=1e-5)
    goal.loss.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in net.parameters())
    assert goal.metrics.keys() == {"accuracy"}


def test_fixed_diffusion_without_noise_and_mixture_is_erm_bit_for_bit():
    net, plain = prepared(FixedDiffusion(scale=0.0)), small_resnet().eval()
    found = only_objective(FixedDiffusion(scale=0.0, mixture=False), net, random_batch()).loss
    assert torch.equal(found, only_objective(ERM(), plain, random_batch()).loss)
    batch = random_batch()
    mixture = only_objective(FixedDiffusion(scale=0.0), net, batch).loss
    generator = seeded()
    original = batch.transform(batch.images, generator)
    both = torch.cat([original, AugMix()(original, generator)])
    assert mixture.item() == pytest.approx(F.cross_entropy(plain(both), batch.labels.repeat(2)).item(), rel=1e-5)


@pytest.mark.parametrize(("placement", "places"), [("stage", 4), ("block", 8), (("layer1", "layer3.0"), 2)])
def test_fixed_diffusion_has_one_scale_at_every_place(placement, places):
    net = prepared(FixedDiffusion(scale=2.5, placement=placement))
    with torch.no_grad(), pp.diffusion(net, generator=seeded()) as trace:
        net(torch.rand(2, 3, 16, 16))
    assert len(trace.scales) == places
    assert all(torch.equal(scale, torch.full_like(scale, 2.5)) for scale in trace.scales)


def test_fixed_diffusion_averages_samples_and_evaluation_may_replace_their_number():
    net, x = prepared(FixedDiffusion(scale=0.5)), torch.rand(3, 3, 16, 16)
    method = with_samples(FixedDiffusion(), "fixed_diffusion", 4, "logits")
    logits = sample_logits(net, x, 4, generator=seeded())
    assert torch.allclose(method.predict(net, x, seeded()), logits.mean(0).softmax(-1), atol=1e-6)
    assert torch.equal(with_samples(method, "", 0, None).predict(net, x, None), net(x).softmax(-1))
    assert FixedDiffusion(mixture=False).label == "FixDiff σ=0.1 w/o aug"
    assert (in_stages().label, in_stages(mixture=False).label) == ("PDE+", "PDE+ w/o aug")
    assert overlaps_of(FixedDiffusion(), CropFlip()) == {"augmix": (), "crop_flip": ()}


@pytest.mark.parametrize("method", [RSE(), EnResNet(members=2, adversarial=True, steps=2), FixedDiffusion()], ids=repr)
def test_mixed_precision_gives_finite_losses_in_full(method):
    net = prepared(method).train()
    with torch.autocast("cpu", torch.bfloat16):
        goal = only_objective(method, net, random_batch())
    assert goal.loss.dtype == torch.float32
    assert goal.loss.isfinite()


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (RSE, {"first": -0.1}, "first=-0.1"),
        (RSE, {"inner": -1.0}, "inner=-1"),
        (RSE, {"samples": -1}, "samples=-1"),
        (EnResNet, {"noise": -0.1}, "noise=-0.1"),
        (EnResNet, {"steps": 0}, "steps=0"),
        (EnResNet, {"epsilon": 2.0}, "epsilon=2"),
        (EnResNet, {"step_size": -1.0}, "step_size=-1"),
        (FixedDiffusion, {"scale": -1.0}, "scale=-1"),
    ],
)
def test_bad_options_are_named(kind, options, message):
    with pytest.raises(UserError, match=message):
        kind(**options)
