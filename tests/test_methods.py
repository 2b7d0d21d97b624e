"""One contract for every method."""

import copy

import pytest
import torch

from pdeplus import _registry
from pdeplus._engine import Engine
from pdeplus.augment.crop_flip import CropFlip
from pdeplus.data.base import Batch
from pdeplus.models.resnet18 import build
from pdeplus.trainer import train_step

NAMES = _registry.names("methods")


def make_batch(size=6, channels=3, classes=10, seed=0):
    generator = torch.Generator().manual_seed(seed)
    images = torch.rand(size, channels, 16, 16, generator=generator)
    labels = torch.arange(size) % classes
    return Batch(images, labels, CropFlip(padding=1), torch.Generator().manual_seed(seed))


def prepare(name, channels=3, classes=10):
    method = _registry.build("methods", name, {})
    torch.manual_seed(0)
    model = method.prepare(build(classes=classes, channels=channels, width=4), torch.rand(2, channels, 16, 16))
    optimizers = method.optimizers(model, lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9))
    return method, model.train(), optimizers


@pytest.mark.parametrize("name", NAMES)
def test_steps_lower_the_task_loss_on_a_fixed_batch(name):
    method, model, optimizers = prepare(name)
    losses = [float(train_step(model, method, make_batch(), optimizers, Engine("fp32"))["loss/task"]) for _ in range(8)]
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("size", "channels", "classes"), [(2, 1, 2), (3, 3, 100)])
def test_small_batches_any_channels_any_classes(name, size, channels, classes):
    method, model, optimizers = prepare(name, channels, classes)
    logs = train_step(model, method, make_batch(size, channels, classes), optimizers, Engine("fp32"))
    assert all(value.isfinite() for value in logs.values())
    probabilities = method.predict(model, torch.rand(5, channels, 16, 16), torch.Generator().manual_seed(0))
    assert probabilities.shape == (5, classes)
    assert torch.allclose(probabilities.sum(-1), torch.ones(5), atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_same_seed_same_weights_and_no_global_randomness(name):
    weights = []
    for _ in range(2):
        method, model, optimizers = prepare(name)
        state = torch.get_rng_state()
        for step in range(2):
            train_step(model, method, make_batch(seed=step), optimizers, Engine("fp32"))
        assert torch.equal(state, torch.get_rng_state())
        weights.append(copy.deepcopy(model.state_dict()))
    assert all(torch.equal(weights[0][key], weights[1][key]) for key in weights[0])


@pytest.mark.parametrize("name", NAMES)
def test_every_parameter_is_trained_by_some_optimiser(name):
    method, model, optimizers = prepare(name)
    before = copy.deepcopy(dict(model.named_parameters()))
    for step in range(3):
        train_step(model, method, make_batch(seed=step), optimizers, Engine("fp32"))
    still = [key for key, p in model.named_parameters() if torch.equal(p, before[key])]
    # a bias before BatchNorm has no effect, so no gradient beyond rounding
    assert all(key.endswith(("body.0.bias", "body.3.bias")) for key in still)
