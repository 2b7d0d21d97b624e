"""The fast network: whitening, identity filters and the residual form against closed forms."""

import pytest
import torch
from torch.nn import functional as F

import pdeplus as pp
from pdeplus._lib.registry import build
from pdeplus.data.base import split
from pdeplus.errors import UserError
from pdeplus.evaluation.cost import prediction_flops
from pdeplus.models.base import build_model, fit_images
from pdeplus.models.fast_cnn import FastCNN, Whitening
from pdeplus.training.config import config_hash, load_config


def fast_cnn(**options) -> FastCNN:
    return build("models", "fast_cnn", {"widths": [8, 12, 16], **options}, classes=5, channels=3)


def smooth_images(n: int = 50, channels: int = 3, seed: int = 0) -> torch.Tensor:
    """Images whose neighbouring pixels and channels are alike, about a mean that is not 0."""
    noise = torch.randn(n, channels + 1, 18, 18, generator=torch.Generator().manual_seed(seed))
    return 0.4 + 0.1 * F.avg_pool2d(noise[:, :-1] + 2 * noise[:, -1:], 3, 1)


@pytest.mark.parametrize("channels", [1, 3])
def test_whitened_patches_have_mean_0_and_the_identity_as_covariance(channels):
    images, layer = smooth_images(channels=channels), Whitening(channels)
    layer.fit_images(images)
    out = layer(images).transpose(0, 1).flatten(1).double()
    n = 4 * channels
    assert out.shape[0] == 2 * n
    assert torch.equal(out[n:], -out[:n])
    assert out.mean(1).abs().max() < 1e-4
    variances = torch.linalg.eigvalsh(torch.cov(F.unfold(images, 2).transpose(0, 1).flatten(1).double()))
    shrunk = variances / (variances + 5e-4 * variances.mean())  # 1 but for directions that hardly vary
    assert torch.allclose(torch.cov(out[:n]), torch.diag(shrunk), atol=2e-3)
    assert shrunk.min() > 0.9


def test_before_it_is_fitted_whitening_hands_patches_on():
    images = torch.rand(2, 3, 5, 5)
    patches = F.unfold(images, 2).view(2, 12, 4, 4)
    assert torch.allclose(Whitening(3)(images), torch.cat([patches, -patches], 1))


def test_the_filters_are_frozen_and_the_layer_is_stored_with_the_weights():
    net = fast_cnn()
    fit_images(net, smooth_images)
    net(torch.rand(4, 3, 16, 16)).sum().backward()
    assert net.whitening.weight.grad is None
    assert net.whitening.bias.grad is None
    other = fast_cnn()
    other.load_state_dict(net.state_dict())
    assert torch.equal(other.whitening.weight, net.whitening.weight)


def test_the_bias_learns_where_it_is_told_to():
    net = fast_cnn(learn_bias=True)
    fit_images(net, smooth_images)
    net(torch.rand(4, 3, 16, 16)).sum().backward()
    assert net.whitening.weight.grad is None
    assert net.whitening.bias.grad.abs().max() > 0


def test_the_option_of_the_bias_leaves_older_configs_as_they_were():
    assert config_hash(load_config("fast", [])).startswith("daee0b80")
    assert config_hash(load_config("fast", [])) != config_hash(load_config("fast", ["model.learn_bias=true"]))


def test_images_are_asked_for_only_by_networks_that_are_set_by_them():
    net = build("models", "resnet18", {"width": 2}, classes=5, channels=3)
    fit_images(net, lambda: pytest.fail("asked for images"))


def test_a_network_that_normalises_its_input_is_whitened_by_normalised_images():
    options = {"mean": [0.4, 0.5, 0.6], "std": [0.2, 0.3, 0.4]}
    net = build_model("fast_cnn", {"widths": [8, 8, 8], **options}, classes=5, channels=3)
    fit_images(net, smooth_images)
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in options.values())
    layer = Whitening(3)
    layer.fit_images((smooth_images() - mean) / std)
    assert torch.equal(net.whitening.weight, layer.weight)


def test_every_convolution_starts_by_passing_its_input_through():
    net = fast_cnn()
    for group, inputs in ((net.group1, 24), (net.group2, 8), (net.group3, 12)):
        for half in group:
            conv = half[0]
            x = torch.rand(2, conv.in_channels, 6, 6)
            kept = min(conv.in_channels, conv.out_channels)
            assert torch.equal(conv(x)[:, :kept], x[:, :kept])
        assert group[0][0].in_channels == inputs


def test_the_residual_form_adds_the_input_of_each_second_half():
    plain, residual = fast_cnn().eval(), fast_cnn(residual=True).eval()
    residual.load_state_dict(plain.state_dict())
    h = torch.rand(2, 24, 9, 9)
    first, second = plain.group1
    assert torch.allclose(residual.group1(h), first(h) + second(first(h)))
    assert torch.allclose(plain.group1(h), second(first(h)))


def test_a_third_convolution_starts_as_the_identity_and_is_inside_the_residual():
    net, h = fast_cnn(depth=3, residual=True).eval(), torch.rand(2, 24, 9, 9)
    first, rest = net.group1
    convs = [layer for layer in rest if isinstance(layer, torch.nn.Conv2d)]
    assert [conv.in_channels for conv in convs] == [8, 8]
    assert torch.equal(convs[1](first(h)), first(h))
    assert torch.allclose(net.group1(h), first(h) + torch.nn.Sequential(*rest)(first(h)))


@pytest.mark.parametrize("depth", [0, -1, 2.5])
def test_a_depth_that_no_network_can_have_is_answered_in_one_line(depth):
    with pytest.raises(UserError, match=r"model\.depth"):
        fast_cnn(depth=depth)


def test_multiply_adds_are_those_of_the_regime():
    """33 million an image at widths 32, 128, 128: counted by hand, layer by layer."""
    net = build("models", "fast_cnn", {}, classes=10, channels=3).eval()
    by_hand = 31**2 * 24 * 12 + 9 * (31**2 * 24 * 32 + 15**2 * 32 * 32 + 15**2 * 32 * 128)
    by_hand += 9 * (7**2 * 128 * 128 + 7**2 * 128 * 128 + 3**2 * 128 * 128) + 128 * 10
    assert prediction_flops(net, torch.zeros(1, 3, 32, 32)) == 2 * by_hand
    assert 32.9e6 < by_hand < 33.1e6


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (torch.full((9, 3, 8, 8), 0.5), "all of one colour"),
        (torch.rand(3, 3, 3, 3), "patches of 12 numbers and the training images have only 12"),
    ],
)
def test_images_that_cannot_be_whitened_are_answered_in_one_line(images, message):
    with pytest.raises(UserError, match=message):
        Whitening(3).fit_images(images)


def test_bad_widths_are_answered_in_one_line():
    with pytest.raises(UserError, match=r"model.widths=\[8, 8\] must hold three numbers"):
        fast_cnn(widths=[8, 8])
    with pytest.raises(UserError, match="model.widths=0 must be at least 1"):
        fast_cnn(widths=[8, 0, 8])


@pytest.mark.parametrize("method", ["erm", "pde_plus"])
def test_a_run_is_whitened_by_its_own_training_images_and_loads(method, tmp_path):
    settings = [
        f"method.name={method}", "data.name=digits", "model.widths=[16,16,16]", "train.limit=150", "train.epochs=1",
        "train.batch_size=50",
    ]  # fmt: skip
    config = pp.load_config("fast", settings)
    run = pp.train(config, tmp_path / "run")
    seen = split(build("data", "digits", {}), validation=config.train.validation, limit=150, seed=0)
    layer = Whitening(3)
    layer.fit_images(seen.train.floats())
    assert torch.equal(run.model.whitening.weight, layer.weight)
