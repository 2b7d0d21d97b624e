"""The overlap audit: what is claimed, how it is collected, and that the claims hold on pictures."""

import ast
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
from support.one_step import seeded
from support.pde_plus import in_stages
from support.pictures import pictures

import pdeplus as pp
from pdeplus._lib import registry
from pdeplus.augment._operations import NAMES as OPERATIONS
from pdeplus.augment._operations import apply_one
from pdeplus.augment.augmix import AugMix
from pdeplus.augment.auto_augment import AutoAugment
from pdeplus.augment.base import OVERLAPS, Augmentor, corruptions_like
from pdeplus.augment.blur import Blur
from pdeplus.augment.brightness import Brightness
from pdeplus.augment.contrast import Contrast
from pdeplus.augment.crop_flip import CropFlip
from pdeplus.augment.elastic import Elastic
from pdeplus.augment.gaussian_noise import GaussianNoise
from pdeplus.augment.hybrid import Hybrid
from pdeplus.augment.identity import Identity
from pdeplus.augment.p_norm_noise import PNormNoise
from pdeplus.augment.pixmix import PixMix
from pdeplus.augment.prime import Prime, deform, refilter
from pdeplus.augment.rand_augment import RandAugment
from pdeplus.augment.random_erasing import RandomErasing
from pdeplus.augment.rotation import Rotation
from pdeplus.augment.trivial_augment import TrivialAugment
from pdeplus.corruptions.suite import KNOWN
from pdeplus.methods.augmix import AugMixTraining
from pdeplus.methods.base import overlaps_of
from pdeplus.methods.erm import ERM

FOUR = ("brightness", "contrast", "defocus_blur", "gaussian_blur", "saturate")
"""What colour, contrast, brightness and sharpness coincide with."""


@pytest.mark.parametrize("name", registry.names("augment"))
def test_every_augmentation_claims_known_corruptions_only(name):
    claimed = registry.build("augment", name, {}).overlaps
    assert set(claimed) <= set(KNOWN)
    assert len(set(claimed)) == len(claimed)


def test_every_operation_has_been_judged():
    assert set(OPERATIONS) <= set(OVERLAPS)
    assert {name for claimed in OVERLAPS.values() for name in claimed} <= set(KNOWN)
    with pytest.raises(KeyError):  # one that nobody has judged cannot pass for harmless
        corruptions_like("solarize_add")


@pytest.mark.parametrize(
    ("augmentation", "claimed"),
    [
        (AugMix(operations=9), ()),
        (AugMix(operations=13), FOUR),
        (AutoAugment(policy="cifar10"), FOUR),
        (AutoAugment(policy="imagenet"), FOUR[1:]),  # its pairs have no brightness
        (RandAugment(), FOUR),
        (GaussianNoise(), ("gaussian_noise",)),
        (Blur(), ("defocus_blur", "gaussian_blur")),
        (Elastic(), ("elastic_transform",)),
        (Prime(), ("elastic_transform", "ripple")),
        (CropFlip(), ()),
        (Rotation(), ()),
        (Hybrid(), FOUR[2:4]),
        (TrivialAugment(), FOUR),
        (PNormNoise(), ("gaussian_noise",)),
        (RandomErasing(), ("checkerboard_cutout",)),
        (PixMix(), ()),
        (PixMix(operations=13), FOUR),
    ],
)
def test_claims(augmentation, claimed):
    assert augmentation.overlaps == claimed


@dataclass(frozen=True)
class Both(Augmentor):
    """A user's augmentation that holds others."""

    parts: tuple[Augmentor, ...] = (Blur(), Identity())
    overlaps = ("fog",)

    def __call__(self, x, generator=None):
        return x


def test_methods_are_searched_at_any_depth():
    assert overlaps_of(ERM(), CropFlip()) == {"crop_flip": ()}
    assert overlaps_of(in_stages(), CropFlip()) == {"augmix": (), "crop_flip": ()}
    harder = in_stages(augmentor=AugMix(operations=13))
    assert overlaps_of(harder, Identity()) == {"augmix": FOUR, "identity": ()}
    nested = overlaps_of(AugMixTraining(augmentor=Both()), CropFlip())
    assert nested == {__name__: ("fog",), "blur": ("defocus_blur", "gaussian_blur"), "identity": (), "crop_flip": ()}


def test_mappings_lists_and_plain_classes_are_searched_and_one_name_is_listed_once():
    class Plain(ERM.__base__):
        objectives = None

        def __init__(self):
            self.by_stage = {"early": [AugMix()], "late": AugMix(operations=13)}

    assert overlaps_of(Plain(), GaussianNoise()) == {"augmix": FOUR, "gaussian_noise": ("gaussian_noise",)}


def test_a_method_may_state_its_own():
    @dataclass(frozen=True)
    class Noisy(ERM.__base__):
        augmentors: dict[str, Augmentor] = field(default_factory=lambda: {"views": Contrast()})
        overlaps = ("gaussian_noise",)
        objectives = None

    found = overlaps_of(Noisy(), Identity())
    assert found == {__name__: ("gaussian_noise",), "contrast": ("contrast",), "identity": ()}


def corrupted(x, name, severity=5):
    """Float B×3×H×W grey levels → the same."""
    return pp.corrupt(x.byte().permute(0, 2, 3, 1).contiguous(), name, severity).permute(0, 3, 1, 2).float()


def grey(augmented):
    return augmented * 255


def correlation(a, b):
    return torch.corrcoef(torch.stack([a.flatten(), b.flatten()]))[0, 1].item()


def saturation(x):
    return ((x.amax(1) - x.amin(1)) / x.amax(1)).mean((1, 2))


@pytest.fixture
def images():
    """Pictures of middle grey levels, which a moderate change does not cut: float B×3×32×32 in 60..160."""
    return (pictures().float() * (100 / 255) + 60).floor()


def test_brightness_moves_the_value_and_keeps_the_saturation(images):
    test = corrupted(images, "brightness")
    train = grey(Brightness(strength=0.4)(images / 255, seeded()))
    for out in (test, train):
        shift = (out - images).mean((1, 2, 3))
        assert (shift.abs() > 1).float().mean() > 0.9
        assert torch.allclose(saturation(out), saturation(images), atol=0.02)
    brighter = (train - images).mean((1, 2, 3)) > 1
    assert brighter.any()
    assert correlation((train - images)[brighter], (test - images)[brighter]) > 0.1
    assert ((train >= images) & (test >= images))[brighter].float().mean() > 0.99  # no pixel gets darker


def test_contrast_scales_the_distance_from_the_mean(images):
    test = corrupted(images, "contrast")
    train = grey(Contrast(strength=0.5)(images / 255, seeded()))
    lower = train.std((1, 2, 3)) < 0.95 * images.std((1, 2, 3))
    assert lower.any()
    assert correlation((train - images)[lower], (test - images)[lower]) > 0.85
    for out in (test, train):
        assert torch.allclose(out.mean((1, 2, 3)), images.mean((1, 2, 3)), atol=2)


def test_color_and_saturate_move_colours_towards_grey(images):
    test = corrupted(images, "saturate", 1)  # a factor of 0.3
    train = grey(apply_one(images / 255, "color", torch.full((len(images),), 0.3)))
    for out in (test, train):
        ratio = saturation(out) / saturation(images)
        assert ratio.mean().item() == pytest.approx(0.3, abs=0.06)


def test_gaussian_noise_is_white_and_alike_at_every_level_but_shot_and_speckle_are_not(images):
    many = images.repeat(4, 1, 1, 1)
    train = grey(GaussianNoise(std=0.05, fraction=1.0)(many / 255, seeded())) - many
    residuals = {"train": train} | {
        name: corrupted(many, name, 2) - many for name in ("gaussian_noise", "shot_noise", "speckle_noise")
    }
    grows = {name: correlation(residual.abs(), many) for name, residual in residuals.items()}
    assert max(abs(grows["train"]), abs(grows["gaussian_noise"])) < 0.02
    assert min(grows["shot_noise"], grows["speckle_noise"]) > 0.05
    for name in ("train", "gaussian_noise"):
        noise = residuals[name]
        assert abs(correlation(noise[..., 1:], noise[..., :-1])) < 0.02
        kurtosis = (noise - noise.mean()).pow(4).mean() / noise.var().square()
        assert kurtosis.item() == pytest.approx(3, abs=0.1)
    impulse = corrupted(many, "impulse_noise", 2) - many
    assert impulse.pow(4).mean() / impulse.square().mean().square() > 10  # few values, replaced


@pytest.mark.parametrize("name", corruptions_like("blur"))
@pytest.mark.parametrize("kind", ["blur", "sharpness"])
def test_blur_and_low_sharpness_take_away_the_same_fine_structure_as_the_narrow_blurs(kind, name, images):
    if kind == "blur":
        train = grey(Blur(least=0.8, most=0.8)(images / 255, seeded()))
    else:
        train = grey(apply_one(images / 255, "sharpness", torch.full((len(images),), 0.2)))
    test = corrupted(images, name, 4)
    assert correlation(train - images, test - images) > 0.85
    for other in ("glass_blur", "motion_blur", "zoom_blur"):  # not counted
        assert correlation(train - images, corrupted(images, other, 4) - images) < 0.7
    for out in (train, test):
        assert out.diff(dim=-1).square().mean() < 0.75 * images.diff(dim=-1).square().mean()
        assert torch.allclose(out.mean((1, 2, 3)), images.mean((1, 2, 3)), atol=1)


def share_near_a_blur(train, images):
    """Share of images nearer to a blurred one, at some severity, than half the blur's own change."""
    near = torch.zeros(len(images), dtype=torch.bool)
    for name in corruptions_like("blur"):
        for severity in range(1, 6):
            test = corrupted(images, name, severity)
            distance, change = ((a - test).square().sum((1, 2, 3)) for a in (train, images))
            near |= distance < 0.25 * change
    return near.float().mean().item()


def test_sharpness_often_comes_near_a_blur_and_primes_filter_hardly_ever():
    images = pictures().float().repeat(50, 1, 1, 1)
    factor = 0.1 + 1.8 * torch.rand(len(images), generator=seeded())
    assert share_near_a_blur(grey(apply_one(images / 255, "sharpness", factor)), images) > 0.2
    assert share_near_a_blur(grey(refilter(images / 255, 3, 4.0, seeded())), images) < 0.01


def displacements(move):
    """B×2×H×W: how far pixels were read from, of ramps to the right and downwards; borders left out."""
    ramp = torch.arange(32.0) * 4 + 64
    x = torch.stack([ramp.expand(32, 32), ramp.view(32, 1).expand(32, 32), torch.zeros(32, 32)]).repeat(16, 1, 1, 1)
    return ((move(x) - x) / 4)[:, :2, 5:-5, 5:-5]


def bend(field):
    """What is left of a displacement when the best affine map is taken out."""
    side = torch.linspace(-1, 1, field.shape[-1])
    basis = torch.stack([torch.ones(22, 22), side.expand(22, 22), side.view(-1, 1).expand(22, 22)]).view(3, -1).T
    values = field.reshape(-1, 22 * 22).T
    return (values - basis @ torch.linalg.lstsq(basis, values).solution).T.view_as(field)


@pytest.mark.parametrize(
    "move",
    [
        lambda x: corrupted(x, "elastic_transform", 4),
        lambda x: grey(Elastic()(x / 255, seeded())),
        lambda x: grey(deform(x / 255, 100, seeded())),
    ],
    ids=["elastic_transform", "elastic", "deform"],
)
def test_elastic_and_deform_bend_images_smoothly(move):
    bent = bend(displacements(move))
    assert bent.std() > 0.3  # pixels
    assert correlation(bent[..., 1:], bent[..., :-1]) > 0.7


def test_rotation_bends_nothing_nor_do_the_first_severities_of_elastic_transform():
    """These are affine maps: by convention geometric operations are not counted, and the audit says so."""
    assert bend(displacements(lambda x: grey(Rotation()(x / 255, seeded())))).std() < 0.1
    for severity in (1, 2):
        moved = displacements(lambda x, severity=severity: corrupted(x, "elastic_transform", severity))
        assert moved.std() > 0.5
        assert bend(moved).std() < 0.1


def test_the_audit_does_not_import_the_corruptions():
    source = Path(pp.__file__).parent
    for file in (*(source / "augment").glob("*.py"), *(source / "methods").glob("*.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Import | ast.ImportFrom):
                assert "corruptions." not in ast.unparse(node) + ".", f"{file.name}: {ast.unparse(node)}"
                assert "corruptions import" not in ast.unparse(node), f"{file.name}: {ast.unparse(node)}"
