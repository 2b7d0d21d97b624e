"""Fine-tuning: rates of the backbone, freezing, accumulation, class weights, patience, WiSE-FT, crops of pictures."""

import json

import numpy as np
import pytest
import torch
from PIL import Image
from support.pde_plus import in_stages
from support.peers import peer
from torch import nn
from torch.nn import functional as F

import pdeplus as pp
from pdeplus._lib.files import read_weights
from pdeplus.augment.resized_crop import ResizedCrop, part_weights
from pdeplus.core.batch_norm import keep_frozen_statistics
from pdeplus.data._pictures import fit_square
from pdeplus.data.base import Batch
from pdeplus.data.image_folder import ImageFolder
from pdeplus.methods.erm import ERM
from pdeplus.models.resnet18 import build
from pdeplus.training.config import Train, config_hash
from pdeplus.training.distributed import Engine, named_device
from pdeplus.training.loop import train_step
from pdeplus.training.optimizers import build_optimizers
from pdeplus.training.run_folder import fitted
from pdeplus.training.session import score_of
from pdeplus.training.wise_ft import SHARES, between

QUICK = [
    "model.name=plain_cnn",
    "model.width=2",
    "data.size=8",
    "train.limit=60",
    "train.batch_size=16",
    "method.name=erm",
]


def small(**options):
    torch.manual_seed(0)
    return build(classes=3, channels=3, width=4), Train(optimizer="adamw", lr=0.01, weight_decay=0.1, **options)


def batch_of(n, **options):
    x = torch.rand(n, 3, 8, 8, generator=torch.Generator().manual_seed(n))
    return Batch(x, torch.arange(n) % 3, lambda x, generator: x, torch.Generator().manual_seed(0), **options)


def test_the_backbone_has_its_own_rate_and_norms_and_biases_do_not_decay():
    model, settings = small(backbone_lr=0.001, decay="matrices")
    (task,) = build_optimizers(ERM(), model, settings).values()
    of = {id(p): group for group in task.param_groups for p in group["params"]}
    assert len(of) == len(list(model.parameters()))
    for name, p in model.named_parameters():
        assert of[id(p)]["lr"] == (0.01 if name.startswith("linear") else 0.001), name
        assert of[id(p)]["weight_decay"] == (0.1 if p.ndim > 1 else 0.0), name


def test_add_blocks_are_no_part_of_the_backbone():
    model, settings = small(backbone_lr=0.001)
    method = in_stages(schedule="alternating")  # whose task's optimiser has φ too
    net = method.prepare(model, torch.rand(2, 3, 8, 8))
    task = build_optimizers(method, net, settings)["task"]
    of = {id(p): group for group in task.param_groups for p in group["params"]}
    assert {of[id(p)]["lr"] for p in net.add_blocks.parameters()} == {0.01}


@pytest.mark.parametrize(
    ("options", "answer"),
    [
        ({"backbone_lr": 0.1, "optimizer": "muon"}, "need sgd or adamw"),
        ({"wise_ft": True}, "needs train.freeze_epochs of 1 to 29"),
        ({"accumulate": 0}, "train.accumulate=0 must be above 0"),
        ({"patience": -1}, "train.patience=-1 must be at least 0"),
    ],
)
def test_settings_that_cannot_be_are_refused(options, answer):
    with pytest.raises(pp.UserError, match=answer):
        Train(**options)


def test_new_settings_at_their_defaults_leave_hashes_alone():
    config = pp.load_config("demo")
    assert config_hash(config) == config_hash(pp.load_config("demo", ["train.accumulate=1", "train.device=auto"]))
    assert config_hash(config) != config_hash(pp.load_config("demo", ["train.accumulate=2"]))
    folder = ["data.name=image_folder", "data.root=x"]
    same = [*folder, "data.crop=1.0", "data.interpolation=bilinear"]
    assert config_hash(pp.load_config("demo", folder)) == config_hash(pp.load_config("demo", same))


def test_parts_of_a_batch_give_the_gradient_of_the_whole():
    steps = {}
    for parts in (1, 3):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Flatten(), nn.Linear(192, 3))
        whole = batch_of(7)
        places = torch.arange(7).tensor_split(parts)
        batches = [Batch(whole.images[i], whole.labels[i], whole.transform, whole.generator) for i in places]
        optimizers = {"task": torch.optim.SGD(model.parameters(), 0.1)}
        logs = train_step(model, ERM(), batches, optimizers, Engine("fp32"))
        steps[parts] = model[1].weight.detach().clone(), logs["loss/task"]
    assert torch.allclose(steps[1][0], steps[3][0], atol=1e-6)
    assert float(steps[1][1]) == pytest.approx(float(steps[3][1]), abs=1e-6)


def test_each_optimiser_clips_its_own_gradient():
    first, second = nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(2))
    first.grad, second.grad = torch.tensor([30.0, 40.0]), torch.tensor([0.3, 0.4])
    Engine("fp32").step([torch.optim.SGD([first], 1.0), torch.optim.SGD([second], 1.0)], 1.0)
    assert torch.allclose(first, torch.tensor([-0.6, -0.8]))
    assert torch.allclose(second, torch.tensor([-0.3, -0.4]))  # together they would have cut it to a hundredth


@pytest.mark.parametrize("method", [ERM(), in_stages(jsd=0, mixture=False)])
def test_class_weights_weigh_the_cross_entropy(method):
    net = method.prepare(build(classes=3, channels=3, width=4), torch.rand(2, 3, 8, 8)).eval()
    weights = torch.tensor([1.0, 2.0, 5.0])
    batch = batch_of(5, class_weights=weights)
    goal = next(iter(method.objectives(net, batch)))
    if isinstance(method, ERM):
        losses = F.cross_entropy(net(batch.images), batch.labels, reduction="none")
        mine = weights[batch.labels]
        assert torch.allclose(goal.parts["task"], (losses * mine).sum() / mine.sum())
    plain = next(iter(method.objectives(net, batch_of(5))))
    assert not torch.allclose(goal.parts["task"], plain.parts["task"])


def test_frozen_batch_norm_keeps_its_statistics_and_the_rest_goes_on_measuring():
    net = nn.Sequential(nn.BatchNorm2d(3), nn.BatchNorm2d(3), nn.BatchNorm2d(3, affine=False))
    net[0].requires_grad_(False)
    net[1].weight.requires_grad_(False)  # as in the fast network: its bias learns
    net.train()
    keep_frozen_statistics(net)
    net(torch.rand(4, 3, 5, 5))
    assert [bool(norm.running_mean.any()) for norm in net] == [False, True, True]


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    """Three epochs, the backbone frozen in the first, then mixed with what it was before."""
    chosen = [*QUICK, "train.epochs=3", "train.freeze_epochs=1", "train.wise_ft=true", "train.keep_every=1"]
    chosen += ["train.accumulate=2", "train.class_weights=balanced", "train.backbone_lr=0.01", "train.device=cpu"]
    return pp.train(pp.load_config("demo", chosen), tmp_path_factory.mktemp("tuned") / "run")


def test_a_frozen_backbone_stays_as_it_was_and_then_learns(tuned):
    from pdeplus.training.run_folder import build_method, build_network

    start = build_network(tuned.config, build_method(tuned.config), tuned.expects).state_dict()
    first, second = read_weights(tuned.kept[1]), read_weights(tuned.kept[2])
    kept = {name: torch.equal(start[name], first[name]) for name in start if not name.endswith("tracked")}
    assert {name for name, same in kept.items() if not same} == {"linear.weight", "linear.bias"}
    assert kept["layer1.0.1.running_mean"]
    assert not torch.equal(first["layer1.0.0.weight"], second["layer1.0.0.weight"])


def test_weights_between_start_and_end_are_chosen_by_validation(tuned):
    told = json.loads((tuned.path / "wise_ft.json").read_text())
    assert set(told["scores"]) == {f"{share:.1f}" for share in SHARES}
    assert told["scores"][f"{told['share']:.1f}"] == max(told["scores"].values())
    _, best = max((score_of(record), record["epoch"]) for record in tuned.metrics)
    start, end = read_weights(tuned.path / "start.safetensors"), read_weights(tuned.kept[best])
    mixed = read_weights(tuned.path / "best.safetensors")
    wanted = between(start, end, told["share"])
    assert all(torch.equal(mixed[name], wanted[name]) for name in wanted)


def test_the_mean_of_weights_is_linear_and_counts_are_the_tuned_ones():
    start, end = (
        {"w": torch.tensor([0.0, 4.0]), "n": torch.tensor(3)},
        {"w": torch.tensor([2.0, 0.0]), "n": torch.tensor(9)},
    )
    mixed = between(start, end, 0.25)
    assert mixed["w"].tolist() == [0.5, 3.0]
    assert int(mixed["n"]) == 9
    assert between(start, end, 1.0)["w"].tolist() == [2.0, 0.0]


def test_training_stops_when_the_score_no_longer_rises(tmp_path):
    chosen = [
        *QUICK,
        "train.epochs=9",
        "train.patience=2",
        "train.lr=1e-12",
        "train.weight_decay=0",
        "train.momentum=0",
    ]
    run = pp.train(pp.load_config("demo", [*chosen, "train.batch_norm=recalibrate"]), tmp_path / "run")
    assert len(run.metrics) == 3  # nothing is learnt: two more after the first
    assert run.finished


def test_a_device_that_is_not_there_is_refused():
    assert named_device("cpu") == torch.device("cpu")
    with pytest.raises(pp.UserError, match="train.device='warp' cannot be used: .*; use auto or cpu"):
        named_device("warp")


def test_sigma_starts_at_the_distance_of_the_twins():
    method = in_stages(scale_from="twins")
    torch.manual_seed(0)
    net = method.prepare(build(classes=3, channels=3, width=4), torch.rand(2, 3, 8, 8)).train()
    with torch.no_grad():
        net.layer4[1].bn2.weight.mul_(200)  # features as large as a pretrained network's
    before = {name: buffer.clone() for name, buffer in net.named_buffers()}
    told = method.begin(net, batch_of(6))
    assert all(torch.equal(before[name], buffer) for name, buffer in net.named_buffers())
    with pp.diffusion(net) as trace, torch.no_grad():
        net(torch.rand(4, 3, 8, 8))
    for name, scale in zip(trace.names, trace.scales, strict=True):
        assert float(scale.mean()) == pytest.approx(max(told[f"sigma/{name}"], 0.002), rel=1e-4)
        assert float(scale.std()) < 1e-4 * float(scale.mean())
    assert told["sigma/layer4"] > 10 > told["sigma/layer1"]
    assert in_stages().begin(net, batch_of(6)) == {}


def test_a_part_is_resized_as_torch_resizes_it():
    x = torch.rand(3, 2, 12, 16)
    top, left = torch.tensor([0.0, 3.0, 5.0]), torch.tensor([2.0, 0.0, 9.0])
    height, width = torch.tensor([12.0, 5.0, 7.0]), torch.tensor([9.0, 16.0, 3.0])
    out = part_weights(top, height, 12, 8).unsqueeze(1) @ x @ part_weights(left, width, 16, 8).mT.unsqueeze(1)
    for i in range(3):
        down, right, h, w = (int(values[i]) for values in (top, left, height, width))
        part = x[i : i + 1, :, down : down + h, right : right + w]
        wanted = F.interpolate(part, (8, 8), mode="bilinear", antialias=True)
        assert torch.allclose(out[i : i + 1], wanted, atol=1e-5), i


def test_crops_have_their_share_of_the_area_and_may_be_mirrored():
    ramp = torch.linspace(0, 1, 64).expand(400, 1, 64, 64).contiguous()
    out = ResizedCrop(least=0.25, size=32)(ramp, torch.Generator().manual_seed(0))
    assert out.shape == (400, 1, 32, 32)
    spread = (out.amax((1, 2, 3)) - out.amin((1, 2, 3))).square()  # of a ramp: the part's width, squared
    assert 0.55 < float(spread.mean()) < 0.7  # (1 + 0.25) / 2 of the area, of aspects about 1
    rising = (out[:, 0, 0, -1] > out[:, 0, 0, 0]).float().mean()
    assert 0.4 < float(rising) < 0.6
    whole = ResizedCrop(least=1.0, flip=False)(ramp, torch.Generator().manual_seed(0))
    assert torch.allclose(whole, ramp, atol=1e-5)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """Two classes of eight pictures of 48×60, each with a bright frame around its centre."""
    root = tmp_path_factory.mktemp("pictures")
    for label, name in enumerate(("dark", "light")):
        (root / name).mkdir()
        for i in range(8):
            picture = np.full((48, 60, 3), 255, np.uint8)
            picture[6:42, 12:48] = 60 + 100 * label + i  # 36 of 48: three quarters of the shorter side
            Image.fromarray(picture).save(root / name / f"{i}.png")
    return root


def test_a_test_image_shows_its_share_of_the_centre(pictures):
    picture = np.array(Image.open(pictures / "dark" / "0.png"))
    assert fit_square(picture, 24).max() == 255
    for interpolation in ("bilinear", "bicubic"):
        method = Image.Resampling[interpolation.upper()]
        whole = np.array(Image.fromarray(picture).resize((40, 32), method))  # 24 / 0.75 is 32
        mine = fit_square(picture, 24, 0.75, interpolation).astype(int)
        assert np.abs(mine - whole[4:28, 8:32]).max() <= 1


def test_training_pictures_are_kept_whole_and_validation_is_cut_as_the_test(pictures):
    from pdeplus.data.base import split

    source = ImageFolder(root=str(pictures), size=24, crop=0.75, read_size=32)
    parts = split(source, validation=0.3, limit=0, seed=0)
    assert parts.train.images.shape[1:] == (3, 32, 32)
    assert int(parts.train.images.max()) == 255
    assert parts.validation.images.shape[1:] == source.test()["test"].images.shape[1:] == (3, 24, 24)
    assert int(parts.validation.images[:, :, 2:-2, 2:-2].max()) < 200
    assert torch.equal(parts.validation.images[:, 0, 9, 9] > 120, parts.validation.labels == 1)


def test_a_transform_must_give_images_of_the_tests_size(pictures, tmp_path):
    chosen = ["data.name=image_folder", f"data.root={pictures}", "data.size=24", "data.read_size=32", *QUICK[:2]]
    with pytest.raises(pp.UserError, match="with 32 pixels and others with 24; set data.transform=resized_crop"):
        pp.train(pp.load_config("demo", [*chosen, "train.batch_size=4"]), tmp_path / "run")


def test_any_augmentation_is_a_transform_and_the_audit_knows_it(tmp_path):
    from pdeplus.methods.base import overlaps_of
    from pdeplus.training.run_folder import build_source, transform_of

    config = pp.load_config("demo", [*QUICK, "data.transform=gaussian_noise"])
    source = build_source(config)
    assert overlaps_of(ERM(), transform_of(config, source)) == {"gaussian_noise": ("gaussian_noise",)}
    run = pp.train(
        pp.load_config("demo", [*QUICK, "train.epochs=1", "data.transform=gaussian_noise"]), tmp_path / "run"
    )
    assert run.config.data.options["transform"]["name"] == "gaussian_noise"
    with pytest.raises(pp.UserError, match="augment: 'nose' is not known"):
        pp.load_config("demo", ["data.transform=nose"])


def test_the_preset_fine_tunes_a_pretrained_network_on_a_folder(pictures, tmp_path):
    """From a file of weights to a run that is loaded and predicts; the network's own size is set small."""
    timm = peer("timm")
    torch.manual_seed(0)
    torch.save(timm.create_model("resnet10t", num_classes=5).state_dict(), tmp_path / "start.pt")
    chosen = [f"data.root={pictures}", "model.name=timm:resnet10t", f"model.weights={tmp_path / 'start.pt'}"]
    full = fitted(pp.load_config("finetune", chosen)).data.options
    assert (full["size"], full["crop"], full["interpolation"], full["read_size"]) == (176, 0.875, "bicubic", 201)
    lines = list[str]()
    chosen += ["data.size=32", "train.epochs=1", "train.batch_size=4", "train.precision=fp32"]
    run = pp.train(pp.load_config("finetune", chosen), tmp_path / "run", say=lines.append)
    (tmp_path / "start.pt").unlink()
    assert run.expects.shape == (3, 32, 32)
    assert run.config.data.options["read_size"] == 37
    (line,) = lines
    assert "mean [0.485, 0.456, 0.406]" in line
    assert "an ADD block on the images" in line
    assert "a new head for 2 classes" in line
    record = run.metrics[0]
    assert record["start/sigma/input"] > 0
    assert run.model(torch.rand(2, 3, 32, 32)).shape == (2, 2)
