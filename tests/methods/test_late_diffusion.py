"""PDE+ on the images, on a share of a batch and late in training: what diffuses, what is learnt, when."""

import math
from dataclasses import replace

import pytest
import torch
from support.pde_plus import Darker, in_stages, make_batch, make_network
from torch import nn
from torch.nn import functional as F

import pdeplus as pp
from pdeplus.core.add_block import ADDBlock
from pdeplus.errors import UserError
from pdeplus.methods.base import overlaps_of
from pdeplus.methods.fixed_diffusion import FixedDiffusion
from pdeplus.methods.pde_plus import PDEPlus
from pdeplus.models.plain_cnn import build

LATE = PDEPlus(augmentor=Darker(), share=0.5)


def goal_of(method, net, progress):
    return next(iter(method.objectives(net, replace(make_batch(), progress=progress))))


def test_images_diffuse_before_the_network():
    net = pp.add_diffusion(nn.Flatten(), after=["input"], example=torch.rand(2, 3, 8, 8), initial_scale=0.2)
    x = torch.rand(400, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    assert torch.equal(net(x), x.flatten(1))
    with torch.no_grad(), pp.diffusion(net, generator=torch.Generator().manual_seed(1)) as trace:
        noise = net(x) - x.flatten(1)
    assert trace.names == ["input"]
    assert noise.mean().item() == pytest.approx(0, abs=0.005)
    assert noise.std().item() == pytest.approx(0.2, rel=0.01)


def test_images_given_by_keyword_diffuse_too():
    class ByName(nn.Module):
        def forward(self, pixel_values):
            return pixel_values.flatten(1)

    net = pp.add_diffusion(ByName(), after=["input"], example=torch.rand(2, 3, 8, 8))
    x, found = torch.rand(4, 3, 8, 8, generator=torch.Generator().manual_seed(0)), []
    for call in (lambda: net(x), lambda: net(pixel_values=x)):
        with torch.no_grad(), pp.diffusion(net, generator=torch.Generator().manual_seed(1)):
            found.append(call())
    assert torch.equal(*found)
    assert not torch.equal(found[0], x.flatten(1))


def test_a_loss_whose_images_diffuse_is_the_default_method():
    torch.manual_seed(0)
    net = pp.add_diffusion(build(classes=10, channels=3, width=4), after=["input"], example=torch.rand(2, 3, 16, 16))
    batch, method = make_batch(), PDEPlus(augmentor=Darker())
    criterion = pp.PDEPlusLoss(net, augmentor=Darker())
    for progress in (0.5, 0.7):
        criterion.generator = torch.Generator().manual_seed(0)
        expected = goal_of(method, net, progress).loss
        torch.testing.assert_close(criterion(batch.images, batch.labels, progress=progress), expected)
    assert [group["lr"] for group in criterion.parameter_groups(lr=0.1)] == [0.1, method.diffusion_lr]


def test_the_first_rows_diffuse_and_sigma_is_learnt_all_the_same():
    net = pp.add_diffusion(nn.Flatten(), after=["input"], example=torch.rand(2, 3, 8, 8))
    x = torch.rand(8, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    for share, rows in ((0.0, 0), (0.25, 2), (1.0, 8)):
        with pp.diffusion(net, generator=torch.Generator().manual_seed(1), share=share, learn_from=4) as trace:
            moved = (net(x) != x.flatten(1)).any(1)
        assert moved.tolist() == [True] * rows + [False] * (8 - rows)
        assert [len(scale) for scale in trace.scales] == [4]
        assert trace.scales[0].requires_grad


def test_sigma_starts_at_the_distance_of_an_augmentation_from_its_original():
    net, images = make_network(LATE), make_batch().images
    distance = (Darker()(images) - images).square().mean().sqrt().item()
    assert LATE.begin(net, make_batch()) == {"sigma/input": pytest.approx(distance, rel=1e-5)}
    coverage = goal_of(LATE, net, progress=0.0).parts["coverage"].item()
    assert coverage == pytest.approx(math.log(distance) + 0.5, rel=1e-4)


def test_one_sigma_per_sample_is_the_root_mean_square_of_its_elements():
    like = {"after": ["0"], "example": torch.zeros(2, 3, 8, 8), "initial_scale": None}
    x, found = torch.rand(4, 3, 8, 8, generator=torch.Generator().manual_seed(0)), {}
    for per in ("element", "sample"):
        torch.manual_seed(0)
        net = pp.add_diffusion(nn.Sequential(nn.Identity()), scale_per=per, **like).eval()
        with torch.no_grad(), pp.diffusion(net, generator=torch.Generator().manual_seed(1)) as trace:
            moved = net(x)
        found[per] = trace.scales[0]
    expected = found["element"].square().mean((1, 2, 3), keepdim=True).sqrt()
    assert found["element"].std() > 0.01
    torch.testing.assert_close(found["sample"], expected.expand(4, 3, 8, 8))
    noise = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(moved, x + expected * noise)


def test_a_sample_without_any_sigma_gives_no_gradient_that_is_no_number():
    block = ADDBlock(nn.Sequential(nn.BatchNorm2d(3)), head="relu", initial_scale=None, scale_per="sample").eval()
    nn.init.constant_(block.body[0].bias, -9.0)
    scale = block.scale(torch.rand(2, 3, 4, 4))
    assert scale.unique().tolist() == pytest.approx([1e-6])
    scale.sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in block.parameters())


def test_one_sigma_covers_a_sample_best_at_the_root_mean_square_distance():
    x, twin = torch.zeros(1, 3, 8, 8), torch.zeros(1, 3, 8, 8)
    twin[..., :4] = 0.4  # half of the image has not changed: a σ per element would go to 0 there
    loss = [pp.functional.coverage_nll(twin, x, torch.full_like(x, s)).item() for s in (0.2, 0.4 / 2**0.5, 0.35)]
    assert loss[1] < min(loss[0], loss[2])
    assert loss[1] == pytest.approx(math.log(0.4 / 2**0.5) + 0.5)


def test_nothing_diffuses_before_its_time():
    net, batch = make_network(LATE).eval(), make_batch()
    with torch.no_grad():
        plain = F.cross_entropy(net(Darker()(batch.images)), batch.labels).item()
    before, after = (goal_of(LATE, net, progress).parts["task"].item() for progress in (0.59, 0.6))
    assert before == pytest.approx(plain, rel=1e-6)
    assert abs(after - plain) > 1e-5


def test_one_pass_serves_both_objectives():
    net, seen = make_network(LATE), []
    net.register_forward_pre_hook(lambda module, args: seen.append(len(args[0])))
    goal = goal_of(LATE, net, progress=1.0)
    assert seen == [len(make_batch().images)]
    phi = [p for block in net.add_blocks for p in block.parameters()]
    assert any(g is not None and g.abs().sum() > 0 for g in torch.autograd.grad(goal.loss, phi, allow_unused=True))


def test_diffusion_that_never_begins_trains_as_augmix(tmp_path):
    small = ["train.epochs=2", "train.limit=60", "train.batch_size=27", "model.width=4"]
    late = [*small, "method.name=pde_plus", "method.views=augmented", "method.jsd=0", "method.placement=input"]
    ours = pp.train(pp.load_config("demo", [*late, "method.diffuse_after=1"]), tmp_path / "ours")
    theirs = pp.train(pp.load_config("demo", [*small, "method.name=augmix"]), tmp_path / "theirs")
    weights, expected = (pp.load_model(run.path).state_dict() for run in (ours, theirs))
    assert all(torch.equal(weights[name], tensor) for name, tensor in expected.items())
    begun = pp.train(pp.load_config("demo", [*late, "method.diffuse_after=0.5"]), tmp_path / "begun")
    changed = pp.load_model(begun.path).state_dict()
    assert not all(torch.equal(changed[name], tensor) for name, tensor in expected.items())


def test_constant_noise_on_half_of_the_images():
    method = FixedDiffusion(
        augmentor=Darker(), views="augmented", placement="input", share=0.5, diffuse_after=0.5, scale=0.3
    )
    net, seen = make_network(method), []
    first = next(module for module in net.modules() if isinstance(module, nn.Conv2d))
    first.register_forward_pre_hook(lambda module, args: seen.append(args[0].detach().clone()))
    for progress in (0.4, 0.5):
        goal_of(method, net, progress)
    images = Darker()(make_batch().images)
    assert torch.equal(seen[0], images)
    half = len(images) // 2
    assert torch.equal(seen[1][half:], images[half:])
    assert (seen[1][:half] - images[:half]).std().item() == pytest.approx(0.3, rel=0.1)


def test_noise_on_images_is_named_as_overlap():
    on_images, on_features = (LATE, FixedDiffusion(placement=("input",))), (in_stages(), FixedDiffusion())
    for method in (*on_images, *on_features):
        found = {one for names in overlaps_of(method, Darker()).values() for one in names}
        assert ("gaussian_noise" in found) == (method in on_images)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"share": 1.5}, "method.share=1.5"),
        ({"diffuse_after": -0.1}, "method.diffuse_after=-0.1"),
        ({"share": 0.5, "schedule": "alternating"}, "alternating' needs .* take method.name=pde_plus_stages"),
        (
            {"diffuse_after": 0.5, "covariance": "directional"},
            "directional' needs .* take method.name=pde_plus_directional",
        ),
    ],
)
def test_what_cannot_be_is_refused(options, named):
    with pytest.raises(UserError, match=named):
        PDEPlus(**options)


def test_only_images_diffuse_at_the_input():
    with pytest.raises(UserError, match="needs images as example"):
        pp.add_diffusion(nn.Linear(3, 2), after=["input"], example=torch.rand(2, 3))
