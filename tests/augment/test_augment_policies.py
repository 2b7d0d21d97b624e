"""AutoAugment, RandAugment and TrivialAugment against torchvision's tables, ranges and answers."""

import pytest
import torch
from PIL import Image
from support.peers import peer
from support.pictures import pictures

from pdeplus.augment import _operations as operations
from pdeplus.augment.augmix import STEPS
from pdeplus.augment.augmix import _strengths as augmix_strengths
from pdeplus.augment.augmix import _torchvision_strengths as torchvision_strengths
from pdeplus.augment.auto_augment import AUTO_STEPS, AutoAugment, strengths, sub_policies
from pdeplus.augment.rand_augment import RAND_STEPS, RandAugment
from pdeplus.augment.trivial_augment import TRIVIAL_STEPS, WIDE, TrivialAugment


def snake(name):
    return "autocontrast" if name == "AutoContrast" else "".join("_" * (c == "X" or c == "Y") + c for c in name).lower()


def theirs(name):
    peer("torchvision")
    from torchvision.transforms import autoaugment

    return getattr(autoaugment, name)


def values(ranges, name, steps):
    number = torch.full((steps + 1,), operations.NAMES.index(name))
    return operations.values_of(ranges, number, torch.arange(steps + 1) / steps, torch.ones(steps + 1))


@pytest.mark.parametrize("policy", ["cifar10", "imagenet"])
def test_the_sub_policies_are_torchvisions(policy):
    table = theirs("AutoAugment")()._get_policies(getattr(theirs("AutoAugmentPolicy"), policy.upper()))
    expected = [[(snake(name), p, magnitude or 0) for name, p, magnitude in pair] for pair in table]
    assert sub_policies(policy) == expected
    assert len(expected) == 25


@pytest.mark.parametrize(
    ("kind", "steps", "ranges"),
    [
        ("AutoAugment", AUTO_STEPS, strengths(24, 32)),
        ("RandAugment", RAND_STEPS, strengths(24, 32)),
    ],
)
def test_the_ranges_are_torchvisions(kind, steps, ranges):
    space = theirs(kind)()._augmentation_space(steps + 1, (24, 32))
    assert {snake(name) for name in space} == set(ranges) - ({"identity"} if kind == "AutoAugment" else {"invert"})
    compare(space, steps, ranges)


def test_trivial_augments_ranges_are_torchvisions():
    space = theirs("TrivialAugmentWide")()._augmentation_space(TRIVIAL_STEPS + 1)
    assert {snake(name) for name in space} == set(WIDE)
    compare(space, TRIVIAL_STEPS, WIDE)


def compare(space, steps, ranges):
    for name, (magnitudes, signed) in space.items():
        mine, name = ranges[snake(name)], snake(name)
        assert mine.signed == signed, name
        if magnitudes.ndim:
            expected = (magnitudes + 1e-4).trunc() if mine.whole else magnitudes.float()
            expected = expected + (1 if name in ("brightness", "color", "contrast", "sharpness") else 0)
            assert torch.allclose(values(ranges, name, steps), expected.float(), atol=1e-3), name


def test_augmix_reaches_torchvisions_ranges():
    space = theirs("AugMix")(all_ops=True)._augmentation_space(11, (24, 32))
    mine = augmix_strengths(24, 32)
    assert {snake(name) for name in space} == set(mine)
    for name in ("ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate"):
        full = values(mine, snake(name), 10)[-1]
        assert full.item() == pytest.approx(space[name][0][-1].item(), abs=1)


def test_augmix_in_torchvisions_variant_has_its_ten_levels():
    space = theirs("AugMix")()._augmentation_space(10, (24, 32))
    mine = torchvision_strengths(24, 32)
    assert {snake(name) for name in space} == set(mine)
    for name, (magnitudes, signed) in space.items():
        one = mine[snake(name)]
        assert one.signed == signed, name
        if magnitudes.ndim:
            expected = magnitudes.trunc() if one.whole == "down" else magnitudes
            expected = expected + (1 if name in ("Brightness", "Color", "Contrast", "Sharpness") else 0)
            assert torch.allclose(values(mine, snake(name), STEPS), expected.float(), atol=1e-4), name


def test_augmix_in_torchvisions_variant_gives_its_images():
    """Each operation at each level: the same images, but for rounding and the borders of sheared or turned ones."""
    apply, space = theirs("_apply_op"), theirs("AugMix")()._augmentation_space(10, (24, 32))
    images = pictures(4)[:, :, :24]
    for name, (magnitudes, signed) in space.items():
        number = torch.full((4,), operations.NAMES.index(snake(name)))
        for k, sign in [(k, sign) for k in range(10) for sign in ((1, -1) if signed else (1,))]:
            magnitude = sign * float(magnitudes[k]) if magnitudes.ndim else 0.0
            expected = apply(images, name, magnitude, theirs("InterpolationMode").BILINEAR, None).float()
            mine = sign * (-1 if name.startswith("Translate") else 1)  # theirs moves, ours reads
            strength, plus = torch.full((4,), k / STEPS), torch.full((4,), float(mine))
            value = operations.values_of(torchvision_strengths(24, 32), number, strength, plus)
            difference = (operations.apply_each(images, number, value) - expected).abs().mean()
            assert difference < (4 if name in ("ShearX", "ShearY", "Rotate") else 0.6), (name, k, sign)


def test_each_sub_policy_gives_torchvisions_images(monkeypatch):
    """The same sub-policy with both operations and a plus sign: the same picture."""
    kind = theirs("AutoAugment")
    image = pictures(1)
    picture = Image.fromarray(image[0].permute(1, 2, 0).numpy())
    transform = kind(theirs("AutoAugmentPolicy").CIFAR10)
    for i, pair in enumerate(sub_policies("cifar10")):
        always = torch.zeros(2), torch.ones(2, dtype=torch.int64)
        monkeypatch.setattr(kind, "get_params", staticmethod(lambda n, i=i, a=always: (i, *a)))
        expected = torch.frombuffer(bytearray(transform(picture).tobytes()), dtype=torch.uint8).view(32, 32, 3)
        ours = image
        for name, _, magnitude in pair:
            which = torch.tensor([operations.NAMES.index(name)])
            plus = torch.ones(1) * (-1 if name.startswith("translate") else 1)  # theirs moves, ours reads
            value = operations.values_of(strengths(32, 32), which, torch.tensor([magnitude / AUTO_STEPS]), plus)
            ours = operations.apply_each(ours, which, value, "nearest")
        difference = (ours[0].permute(1, 2, 0).float() - expected).abs()
        assert difference.mean() < 2, pair


def test_auto_augment_draws_all_sub_policies_and_probabilities():
    white = torch.ones(5000, 1, 4, 4)
    out = AutoAugment(policy="imagenet")(white, torch.Generator().manual_seed(0))
    black = (out.flatten(1).mean(1) < 0.01).float().mean().item()
    turns = [p for pair in sub_policies("imagenet") for name, p, _ in pair if name in ("invert", "solarize")]
    assert black == pytest.approx(sum(turns) / 25, abs=0.03)  # white turns black; no pair has both


def test_rand_augment_draws_fourteen_operations(monkeypatch):
    seen = []
    monkeypatch.setattr("pdeplus.augment.rand_augment.apply_each", lambda x, which, value, how: seen.append(which) or x)
    RandAugment(count=3)(torch.rand(4000, 1, 2, 2), torch.Generator().manual_seed(0))
    assert len(seen) == 3
    share = torch.bincount(torch.cat(seen), minlength=len(operations.NAMES)) / 12_000
    drawn = {name: s for name, s in zip(operations.NAMES, share.tolist(), strict=True) if s}
    assert len(drawn) == 14
    assert "invert" not in drawn
    assert list(drawn.values()) == pytest.approx([1 / 14] * 14, abs=0.01)


def test_rand_augment_can_draw_the_identity(monkeypatch):
    images = pictures() / 255
    monkeypatch.setattr("pdeplus.augment.rand_augment.integers", lambda n, *rest: torch.full((n,), 0))
    assert torch.equal(RandAugment(magnitude=0)(images, torch.Generator().manual_seed(0)), images)


def test_trivial_augment_draws_fourteen_operations_and_31_strengths_alike(monkeypatch):
    seen = []
    monkeypatch.setattr(
        "pdeplus.augment.trivial_augment.apply_each", lambda x, *drawn: seen.append((drawn[0], drawn[1])) or x
    )
    TrivialAugment()(torch.rand(60_000, 1, 1, 1), torch.Generator().manual_seed(0))
    ((which, value),) = seen  # one operation for each image
    share = torch.bincount(which, minlength=len(operations.NAMES)) / 60_000
    drawn = {name: s for name, s in zip(operations.NAMES, share.tolist(), strict=True) if s}
    assert set(drawn) == set(WIDE)
    assert list(drawn.values()) == pytest.approx([1 / 14] * 14, abs=0.005)
    angles = value[which == operations.NAMES.index("rotate")]
    levels, counts = (angles.abs() / 4.5).round().unique(return_counts=True)  # 135 degrees in 30 steps
    assert levels.tolist() == list(range(31))
    assert (counts / len(angles)).tolist() == pytest.approx([1 / 31] * 31, abs=0.012)
    assert (angles < 0).float().mean().item() == pytest.approx(15 / 31, abs=0.03)


def test_trivial_augment_is_one_operation():
    """Of white images the brightness alone makes some grey; black come shears, shifts, rotations and solarize."""
    white = torch.ones(4000, 1, 4, 4)
    out = TrivialAugment()(white, torch.Generator().manual_seed(0))
    grey = ((out > 0) & (out < 1)).flatten(1).any(1).float().mean().item()
    posterized = 1 / 14 * 0.9  # 255 loses its lowest bits but at the first three strengths
    assert grey == pytest.approx(1 / 14 * 15 / 31 + posterized, abs=0.02)
