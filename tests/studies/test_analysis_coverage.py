"""Diffusion coverage against networks whose μ, σ and h are known."""

import math

import pytest
import torch
from support.runs import trained
from torch import Tensor, nn

from pdeplus.augment.gaussian_noise import GaussianNoise
from pdeplus.augment.identity import Identity
from pdeplus.augment.invert import Invert
from pdeplus.core.surgery import Constant, add_noise
from pdeplus.data.base import split
from pdeplus.errors import UserError
from pdeplus.studies.analysis import coverage, probes
from pdeplus.studies.analysis.coverage import coverage_figure, coverage_over_training, coverage_ratio
from pdeplus.studies.analysis.figures import as_spec
from pdeplus.training.run_folder import Run, build_source


class Times(nn.Module):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, h: Tensor) -> Tensor:
        return h * self.factor


class AboveOne(nn.Module):
    """σ = max(h - 1, 0), which is 0 for some elements, as a ReLU head's can be."""

    def forward(self, h: Tensor) -> Tensor:
        return (h - 1).clamp(min=0)


def doubling(*scales: nn.Module) -> nn.Module:
    """h_l = 2^l x, and σ_l as given."""
    layers = [Times(2.0) for _ in scales]
    given = {str(i): scale for i, scale in enumerate(scales)}
    return add_noise(nn.Sequential(*layers, nn.Flatten()), list(given), lambda name: given[name])


def one(values: list[float]) -> Tensor:
    return torch.tensor(values).view(1, 1, 1, -1)


def test_the_ratio_is_the_distance_in_sigmas_at_every_block():
    images, views = one([0.1, 0.2, 0.3, 0.4]), one([0.1, 0.3, 0.5, 0.8])  # distances 0, 0.1, 0.2, 0.4
    rows = coverage_ratio(doubling(Constant(0.25), Constant(0.5)), images, views)
    assert [row["block"] for row in rows] == ["0", "1"]
    for row, factor, sigma in zip(rows, (2, 4), (0.25, 0.5), strict=True):
        ratios = [factor * d / sigma for d in (0, 0.1, 0.2, 0.4)]  # 0, 0.8, 1.6, 3.2
        assert row["ratio"] == pytest.approx(sum(ratios) / 4, rel=1e-5)
        assert row["median"] == pytest.approx(ratios[1], rel=0.002)
        assert (row["within"], row["zero"]) == (0.75, 0.0)


def test_elements_without_scope_are_not_covered_and_do_not_spoil_the_mean():
    images, views = one([0.25, 0.5, 1.0, 1.5]), one([0.25, 0.75, 1.5, 1.75])
    (row,) = coverage_ratio(doubling(AboveOne()), images, views)  # μ 0.5, 1, 2, 3; σ 0, 0, 1, 2; distance -, -, 1, 0.5
    assert row["ratio"] == pytest.approx((1 + 0.25) / 2)
    assert (row["within"], row["zero"]) == (0.5, 0.5)


def test_no_scope_at_all_has_no_ratio():
    (row,) = coverage_ratio(doubling(Constant(0.0)), one([0.1, 0.2]), one([0.1, 0.9]))
    assert row == {"block": "0", "ratio": None, "median": None, "within": 0.0, "zero": 1.0}


def test_views_that_equal_their_images_are_covered_wholly():
    (row,) = coverage_ratio(doubling(Constant(0.1)), one([0.1, 0.2]), one([0.1, 0.2]))
    assert (row["ratio"], row["median"], row["within"]) == (0.0, 0.0, 1.0)


def test_of_a_gaussian_view_95_per_cent_lie_within_two_sigma():
    """h' = μ + σ N(0, 1): the mean of |z| is √(2/π), its median 0.6745, and P(|z| ≤ 2) = 0.9545."""
    generator = torch.Generator().manual_seed(5)
    images = torch.rand(200, 1, 20, 50, generator=generator)
    views = images + 0.05 * torch.randn(images.shape, generator=generator)
    (row,) = coverage_ratio(doubling(Constant(0.1)), images, views)
    assert row["ratio"] == pytest.approx(math.sqrt(2 / math.pi), rel=0.005)
    assert row["median"] == pytest.approx(0.67449, rel=0.01)
    assert row["within"] == pytest.approx(0.9545, abs=0.002)


def test_batches_do_not_matter(monkeypatch):
    generator = torch.Generator().manual_seed(6)
    images, views = torch.rand(2, 10, 1, 4, 4, generator=generator)
    net = doubling(Constant(0.3))
    whole = coverage_ratio(net, images, views)
    monkeypatch.setattr(probes, "BATCH", 3)
    assert coverage_ratio(net, images, views)[0] == pytest.approx(whole[0])


def test_images_and_views_must_pair_up():
    with pytest.raises(UserError, match="images and views are 1×1×1×2 and 1×1×1×3"):
        coverage_ratio(doubling(Constant(1.0)), one([0.1, 0.2]), one([0.1, 0.2, 0.3]))


@pytest.fixture(scope="module")
def kept(tmp_path_factory) -> Run:
    """Three epochs, of which the second is kept."""
    folder = tmp_path_factory.mktemp("kept") / "run"
    return trained(folder, "train.limit=200", "train.epochs=3", "train.keep_every=2")


def test_over_training_rows_are_the_kept_epochs_and_the_last_on_held_out_images(kept):
    counts = []
    rows = coverage_over_training(
        kept,
        {"same": Identity(), "negative": Invert()},
        images=8,
        watch=lambda n, total=None: counts.append((n, total)),
    )
    assert list(dict.fromkeys((row["epoch"], row["augmentation"]) for row in rows)) == [
        (2, "same"),
        (2, "negative"),
        (3, "same"),
        (3, "negative"),
    ]
    assert all(row["ratio"] == 0 for row in rows if row["augmentation"] == "same")
    assert counts == [(1, 4)] * 4
    x = probes.held_out(kept, 8, 0).floats()
    assert [row for row in rows if row["epoch"] == 3 and row["augmentation"] == "negative"] == [
        {"epoch": 3, "augmentation": "negative", **row, "images": 8}
        for row in coverage_ratio(kept.network("last"), x, 1 - x)
    ]


def test_images_come_from_the_validation_split_alone(kept):
    config = kept.config
    parts = split(build_source(config), validation=0.1, limit=200, seed=config.seed)
    held = {bytes(image.numpy().tobytes()) for image in parts.validation.images}
    drawn = {bytes(image.numpy().tobytes()) for image in probes.held_out(kept, 5, 3).images}
    assert len(drawn) == 5
    assert drawn <= held


def test_the_same_seed_gives_the_same_views(kept):
    noise = {"noise": GaussianNoise(fraction=1.0)}
    first, second, other = (coverage_over_training(kept, noise, images=4, seed=seed) for seed in (1, 1, 2))
    assert first == second
    assert first != other


def test_runs_that_cannot_tell_are_refused_with_the_way_out(erm, pde, kept):
    with pytest.raises(UserError, match="no ADD blocks.*method.name=pde_plus"):
        coverage_over_training(erm, {"negative": Invert()})
    with pytest.raises(UserError, match="train.keep_every=1"):
        coverage_over_training(pde, {"negative": Invert()})
    with pytest.raises(UserError, match="images=0"):
        coverage_over_training(kept, {"negative": Invert()}, images=0)
    with pytest.raises(UserError, match="augmentors"):
        coverage_over_training(kept, {})


def test_the_figure_has_a_panel_for_each_block_and_training_augmentation():
    rows = [
        {"epoch": e, "block": b, "augmentation": a, "ratio": 1.5 * e, "median": 1.0, "within": 0.5, "trained": t}
        for t in ("rotation", "blur")
        for a in ("noise", "negative")
        for b in ("layer1", "layer2")
        for e in (1, 2)
    ]
    lost = rows[0] | {"ratio": None}
    spec = as_spec(coverage_figure([*rows, lost], "Coverage"))
    assert spec["facet"]["column"]["sort"] == ["layer1", "layer2"]
    assert spec["facet"]["row"]["sort"] == ["trained with rotation", "trained with blur"]
    assert len(spec["data"]["values"]) == len(rows)
    rule = spec["spec"]["layer"][-1]["layer"][0]
    assert rule["encoding"]["y"]["datum"] == coverage.LIMIT == 2
    bare = [{key: value for key, value in row.items() if key != "trained"} for row in rows]
    assert as_spec(coverage_figure(bare, "t"))["facet"].keys() == {"column"}
