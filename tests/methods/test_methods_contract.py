"""What holds for every method and for the options that change what a step does."""

import copy
import json
from dataclasses import dataclass, replace

import pytest
import torch
from docs.methods_page import card, methods_page, relative_cost
from support.one_step import batch_of, seeded
from torch import nn

import pdeplus as pp
from pdeplus._lib import registry
from pdeplus.augment.crop_flip import CropFlip
from pdeplus.methods import IN_STAGES
from pdeplus.methods.base import Method, with_samples
from pdeplus.methods.erm import ERM
from pdeplus.models.resnet18 import build
from pdeplus.studies.experiment import named_methods, settings
from pdeplus.training.config import Part, load_config
from pdeplus.training.distributed import Engine
from pdeplus.training.loop import parameters_of, train_step
from pdeplus.training.run_folder import resume

NAMES = registry.names("methods")
VARIANTS = {
    **{name: (part.name, dict(part.options)) for name, part in named_methods().items()},
    "en_resnet_pgd": ("en_resnet", {"adversarial": True, "members": 2, "steps": 2}),
    "pgd in three steps": ("pgd", {"steps": 3, "random_start": True}),
    "pde_plus, laplace": ("pde_plus", {"prior": "laplace"}),
    "pde_plus_stages, authors": ("pde_plus", {**IN_STAGES, "schedule": "authors", "coverage_gradient": "through"}),
    "pde_plus_stages, alternating": ("pde_plus", {**IN_STAGES, "schedule": "alternating"}),
    "pde_plus_combined, perturbed guidance": ("pde_plus_combined", {"epsilon": 0.05}),
}
every_variant = pytest.mark.parametrize(("name", "options"), VARIANTS.values(), ids=list(VARIANTS))


def make_batch(size=6, channels=3, classes=10, seed=0):
    images = torch.rand(size, channels, 16, 16, generator=seeded(seed))
    return batch_of(images, classes, transform=CropFlip(padding=1), seed=seed)


def prepare(name, options, channels=3, classes=10):
    method = registry.build("methods", name, options)
    torch.manual_seed(0)
    model = method.prepare(build(classes=classes, channels=channels, width=4), torch.rand(2, channels, 16, 16))
    optimizers = method.optimizers(model, lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9))
    return method, model.train(), optimizers


def step(method, model, optimizers, batch):
    return train_step(model, method, batch, optimizers, Engine("fp32"))


@every_variant
def test_two_steps_lower_the_loss_on_a_fixed_batch(name, options):
    """Without the coverage: only σ learns from it, while the features that are to be covered move."""
    method, model, optimizers = prepare(name, options)
    for optimizer in optimizers.values():
        for group in optimizer.param_groups:
            group["lr"] = min(group["lr"], 0.01)  # a step small enough to go downhill
    totals = []
    for _ in range(3):
        *_, last = method.objectives(copy.deepcopy(model), make_batch())
        totals.append((last.loss - last.parts.get("coverage", 0)).item())
        step(method, model, optimizers, make_batch())
    assert totals[2] < totals[0]


@every_variant
@pytest.mark.parametrize(("size", "channels", "classes"), [(2, 1, 2), (3, 3, 100)])
def test_small_batches_any_channels_any_classes(name, options, size, channels, classes):
    method, model, optimizers = prepare(name, options, channels, classes)
    logs = step(method, model, optimizers, make_batch(size, channels, classes))
    assert all(value.isfinite() for value in logs.values())
    probabilities = method.predict(model, torch.rand(5, channels, 16, 16), seeded())
    assert probabilities.shape == (5, classes)
    assert torch.allclose(probabilities.sum(-1), torch.ones(5), atol=1e-5)


@every_variant
def test_same_seed_same_weights_and_no_global_randomness(name, options):
    weights = []
    for _ in range(2):
        method, model, optimizers = prepare(name, options)
        state = torch.get_rng_state()
        for seed in range(2):
            step(method, model, optimizers, make_batch(seed=seed))
        assert torch.equal(state, torch.get_rng_state())
        weights.append(copy.deepcopy(model.state_dict()))
    assert all(torch.equal(weights[0][key], weights[1][key]) for key in weights[0])


@every_variant
def test_every_parameter_is_trained_and_the_batch_is_left_alone(name, options):
    method, model, optimizers = prepare(name, options)
    before = copy.deepcopy(dict(model.named_parameters()))
    batch = make_batch()
    images, modes = batch.images.clone(), [module.training for module in model.modules()]
    for seed in range(3):
        step(method, model, optimizers, make_batch(seed=seed))
    step(method, model, optimizers, batch)
    still = [key for key, p in model.named_parameters() if torch.equal(p, before[key])]
    # a bias before BatchNorm has no effect, so no gradient beyond rounding
    assert all(key.endswith(("body.0.bias", "body.3.bias")) for key in still)
    assert torch.equal(batch.images, images)
    assert [module.training for module in model.modules()] == modes
    assert all(p.requires_grad for p in model.parameters())


def test_a_method_needs_nothing_but_objectives():
    @dataclass(frozen=True, kw_only=True)
    class Bare(Method):
        def objectives(self, model, batch):
            yield from ERM().objectives(model, batch)

    method, images = Bare(), torch.rand(4, 3, 16, 16)
    assert (method.label, method.samples, method.average, method.overlaps) == ("Bare", 0, "probabilities", None)
    assert method.learns_plain
    assert not method.differentiates_twice
    model = build(classes=10, channels=3, width=4)
    assert method.prepare(model, images) is model
    optimizers = method.optimizers(model, lambda p: torch.optim.SGD(p, lr=0.05))
    assert {id(p) for p in parameters_of(optimizers["task"])} == {id(p) for p in model.parameters()}
    step(method, model, optimizers, make_batch())
    assert torch.equal(method.predict(model, images, None), pp.predict(model, images, samples=0))
    assert with_samples(method, "bare", 0, "logits") is method
    with pytest.raises(pp.UserError, match="samples=2: the method bare has no noise to sample; leave it out or use 0"):
        with_samples(method, "bare", 2, None)


@pytest.mark.parametrize("name", NAMES)
def test_samples_are_an_option_of_the_methods_with_noise_alone(name):
    noisy = {"en_resnet", "fixed_diffusion", "pde_plus", "pde_plus_combined", "rse"}
    assert {"samples", "average"} & set(registry.resolved("methods", name, {})) == (
        {"samples", "average"} if name in noisy else set()
    )


@every_variant
def test_the_task_has_the_batchs_label_smoothing(name, options):
    """(1 - s) · CE + s · mean over classes of -log p, where all images, mixed or attacked too, have the same logits."""
    method, model, _ = prepare(name, options)
    bias = torch.linspace(-1, 2, 10)
    for layer in model.modules():
        if isinstance(layer, nn.Linear):
            layer.weight.data.zero_()
            layer.bias.data.copy_(bias)
    surprise = -bias.log_softmax(0)
    for share in (0.0, 0.3, 1.0):
        batch = replace(make_batch(), label_smoothing=share)
        *_, goal = method.objectives(model, batch)
        expected = (1 - share) * surprise[batch.labels].mean() + share * surprise.mean()
        assert goal.parts["task"].item() == pytest.approx(expected.item(), rel=1e-5)


def hooks(model):
    return [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules()]


@every_variant
def test_a_step_leaves_gradients_where_it_updates_and_no_hooks(name, options):
    method, model, optimizers = prepare(name, options)
    before = hooks(model)
    for goal in method.objectives(model, make_batch()):
        mine = {id(p) for chosen in goal.update for p in parameters_of(optimizers[chosen])}
        assert all(p.grad is None for p in model.parameters()), "computing an objective gives no parameter a gradient"
        goal.loss.backward()
        reached = [key for key, p in model.named_parameters() if p.grad is not None and bool(p.grad.any())]
        theirs = [key for key, p in model.named_parameters() if id(p) in mine]
        assert reached
        if "task" in goal.parts:
            assert set(reached) <= set(theirs)
        for p in model.parameters():
            p.grad = None
    assert hooks(model) == before


@pytest.mark.parametrize("name", ["pde_plus", "pde_plus_combined"])
def test_coverage_reaches_the_diffusion_blocks_alone(name):
    method, model, _ = prepare(name, {})
    (goal,) = method.objectives(model, make_batch())
    goal.parts["coverage"].backward()
    reached = {
        key.partition(".")[0] for key, p in model.named_parameters() if p.grad is not None and bool(p.grad.any())
    }
    assert reached == {"add_blocks"}


@pytest.mark.parametrize("name", NAMES)
def test_an_interrupted_run_ends_with_the_same_weights(name, tmp_path):
    tiny = [
        "model.name=plain_cnn",
        "model.width=4",
        "data.size=8",
        "train.limit=60",
        "train.epochs=2",
        "train.batch_size=18",
    ]
    config = pp.load_config("demo", [*tiny, f"method.name={name}", "train.checkpoint_seconds=0"])
    whole = pp.train(config, tmp_path / "whole")

    def interrupt(number, steps, progress, logs):
        if number == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pp.train(config, tmp_path / "cut", watch=interrupt)
    assert not pp.Run.load(tmp_path / "cut").finished
    again = resume(tmp_path / "cut")
    assert (again.path / "model.safetensors").read_bytes() == (whole.path / "model.safetensors").read_bytes()


@pytest.mark.parametrize("name", NAMES)
def test_the_card_is_complete_and_the_cost_is_counted(name):
    assert card(name)["Title"].endswith(".")
    assert relative_cost(Part(name=name)) >= 1
    json.dumps(registry.resolved("methods", name, {}))  # what the run folder holds of it


def test_the_page_of_methods_is_current(request):
    page = (request.config.rootpath / "docs" / "methods.md").read_text("utf-8")
    assert page == methods_page(), "run: python docs/methods_page.py > docs/methods.md"


def test_labels_differ_and_recipes_are_settings():
    parts = named_methods()
    labels = [registry.build("methods", part.name, part.options).label for part in parts.values()]
    assert len(set(labels)) == len(labels)
    for name, part in parts.items():
        assert load_config("demo", settings(name)).method == part
