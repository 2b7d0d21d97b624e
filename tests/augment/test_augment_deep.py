"""DeepAugment: a network that learns to reconstruct, and distortions that leave it alone."""

from pathlib import Path

import pytest
import torch
from support.pictures import pictures

from pdeplus.augment import deep_augment as network
from pdeplus.augment.deep_augment import DeepAugment, distort_features, distort_weights
from pdeplus.errors import UserError


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    """So small a network gains nothing from more, and loses much on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    path = tmp_path_factory.mktemp("deep") / "deep.safetensors"
    network.save(network.train(pictures(64), steps=120, batch=16, width=12, blocks=2), path)
    return DeepAugment(weights=str(path))


def test_training_learns_to_reconstruct_and_repeats(trained):
    x = pictures(64) / 255
    weights = network.load(Path(trained.weights), 0)
    error = (network.reconstruct(weights, x) - x).square().mean()
    start = network.reconstruct(network.initial_weights(3, 12, 2, seeded()), x)
    assert error < 0.02 < (start - x).square().mean()
    few = [network.train(x, steps=2, width=4, blocks=1, seed=seed) for seed in (5, 5, 6)]
    assert all(torch.equal(few[0][name], few[1][name]) for name in few[0])
    assert not torch.equal(few[0]["decode.weight"], few[2]["decode.weight"])
    as_bytes = network.train(pictures(64), steps=2, width=4, blocks=1, seed=5)
    assert torch.allclose(as_bytes["decode.weight"], few[0]["decode.weight"], atol=1e-6)


@pytest.mark.parametrize("shape", [(2, 1, 7, 9), (1, 3, 32, 20), (3, 4, 64, 64)])
def test_any_image_size(shape):
    weights = network.initial_weights(shape[1], 4, 1, seeded())
    assert network.reconstruct(weights, torch.rand(shape)).shape == shape


def test_groups_are_distorted_differently_and_look_like_the_images(trained):
    image = pictures(64)[:1] / 255
    x = image.repeat(48, 1, 1, 1)
    out = trained(x, seeded())
    different = {tuple(o.flatten().tolist()) for o in out}
    assert 3 < len(different) <= 6  # six groups of eight
    plain = network.reconstruct(network.load(Path(trained.weights), 0), image).clamp(0, 1)
    distance = (out - plain).square().mean((1, 2, 3))
    assert distance.max() > 1e-4
    correlation = torch.corrcoef(torch.stack([image.flatten(), out.mean(0).flatten()]))[0, 1]
    assert correlation > 0.5


def test_the_loaded_weights_are_never_changed(trained):
    before = network.load(Path(trained.weights), 0)
    kept = {name: w.clone() for name, w in before.items()}
    for seed in range(8):
        changed = distort_weights(before, seeded(seed))
        assert any(not torch.equal(changed[name], kept[name]) for name in kept)
    assert all(torch.equal(before[name], kept[name]) for name in kept)


def test_distortions_do_not_depend_on_the_order_of_the_weights():
    weights = network.initial_weights(3, 4, 2, seeded())
    backwards = dict(reversed(weights.items()))
    for seed in range(10):
        one, other = (distort_weights(order, seeded(seed)) for order in (weights, backwards))
        assert all(torch.equal(one[name], other[name]) for name in weights)


def test_features_are_distorted_half_of_the_time_out_of_place():
    x = torch.rand(2, 16, 6, 6)
    kept = x.clone()
    changed = [not torch.equal(distort_features(x, seeded(seed)), x) for seed in range(400)]
    assert 0.35 < sum(changed) / 400 < 0.65
    assert torch.equal(x, kept)


def test_errors_name_the_way_out(trained, tmp_path):
    with pytest.raises(UserError, match="trained_on"):
        DeepAugment()(torch.rand(1, 3, 8, 8))
    with pytest.raises(UserError, match="3 channels, images have 1"):
        trained(torch.rand(1, 1, 8, 8))
    with pytest.raises(UserError, match="cannot be read"):
        DeepAugment(weights=str(tmp_path / "missing.safetensors"))(torch.rand(1, 3, 8, 8))
    other = tmp_path / "other.safetensors"
    network.save({"a": torch.ones(1)}, other)
    with pytest.raises(UserError, match="no image-to-image network"):
        DeepAugment(weights=str(other))(torch.rand(1, 3, 8, 8))
    with pytest.raises(UserError, match="steps=0"):
        network.train(torch.rand(2, 3, 8, 8), steps=0)


def test_trained_on_makes_a_file_to_use(tmp_path):
    augment = DeepAugment.trained_on(torch.rand(3, 1, 9, 8), str(tmp_path / "deep.safetensors"), steps=1, seed=3)
    assert augment.weights == str(tmp_path / "deep.safetensors")
    assert augment(torch.rand(2, 1, 12, 12), seeded()).shape == (2, 1, 12, 12)
