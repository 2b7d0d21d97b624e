"""add_diffusion on other people's models: Hugging Face, timm, torchvision."""

import pytest
import torch
from support.peers import peer

import pdeplus as pp


def check(model, after, x):
    model = model.eval()
    changed = pp.add_diffusion(model, after, x)
    with torch.no_grad():
        plain, off = pp.predict(model, x, samples=0), pp.predict(changed, x, samples=0)
        assert torch.equal(plain, off)
        with pp.diffusion(changed) as trace:
            changed(x)
    assert trace.names == list(after)
    noisy = pp.predict(changed, x, samples=3, generator=torch.Generator().manual_seed(0))
    assert noisy.shape == plain.shape
    assert not torch.equal(noisy, plain)
    assert torch.allclose(noisy.sum(-1), torch.ones(len(x)), atol=1e-5)


def test_hugging_face_resnet():
    hf = peer("transformers")
    config = hf.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic", num_labels=3)
    model = hf.ResNetForImageClassification(config)
    check(model, ["resnet.encoder.stages.0", "resnet.encoder.stages.1"], torch.rand(2, 3, 32, 32))


def test_hugging_face_vit_with_token_blocks():
    hf = peer("transformers")
    config = hf.ViTConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, image_size=32,
        patch_size=8, num_labels=3,
    )  # fmt: skip
    model = hf.ViTForImageClassification(config)
    names = dict(model.named_modules())
    layers = [n for n, m in names.items() if type(m).__name__ == "ViTLayer"]
    assert len(layers) == 2
    check(model, layers, torch.rand(2, 3, 32, 32))


@pytest.mark.parametrize(
    ("name", "after"),
    [("resnet18", ["layer1", "layer4"]), ("vit_tiny_patch16_224", ["blocks.0", "blocks.11"])],
)
def test_timm(name, after):
    options = {"img_size": 32} if "vit" in name else {}
    model = peer("timm").create_model(name, num_classes=4, **options)
    check(model, after, torch.rand(2, 3, 32, 32))


def test_torchvision():
    model = peer("torchvision").models.resnet18(num_classes=4)
    check(model, ["layer1", "layer2", "layer3", "layer4"], torch.rand(2, 3, 32, 32))
