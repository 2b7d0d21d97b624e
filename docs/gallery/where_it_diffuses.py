"""
Where does the network diffuse?
===============================

PDE+ learns a scale σ for every element of its features: how far apart similar images lie there. Averaged over channels,
σ is a map over the image. The network here is small and trained for only a few epochs, so the maps show how to
produce such a figure, not what a converged network does.
"""

import tempfile

import matplotlib.pyplot as plt
import torch
from torch.nn import functional as F

import pdeplus as pp
from pdeplus.data.digits import Digits

# %%
# Train PDE+ on the digits of the demo.

settings = [
    "method.name=pde_plus_stages",
    "method.diffusion_lr=0.02",
    "train.epochs=4",
    "model.width=4",
    "train.limit=700",
]
config = pp.load_config("demo", settings)
run = pp.train(config, out=f"{tempfile.mkdtemp()}/run")
print(f"validation accuracy {run.metrics[-1]['validation/accuracy']:.1%}")

# %%
# A forward pass within ``diffusion`` records the features h and the scale σ of every ADD block.

images = Digits().test()["clean"].floats()[:4]
net = run.model.eval()
with torch.no_grad(), pp.diffusion(net) as trace:
    net(images)
for name, scale in zip(trace.names, trace.scales, strict=True):
    print(f"{name}: σ of shape {tuple(scale.shape)}, mean {scale.mean():.3f}")

# %%
# The mean over channels, enlarged to the image. The first block follows the strokes; later ones see larger regions.

figure, axes = plt.subplots(3, 4, figsize=(7, 5.4), layout="constrained")
for column, image in enumerate(images):
    axes[0, column].imshow(image.permute(1, 2, 0).numpy())
for row, scale in enumerate(trace.scales[:2], start=1):
    maps = F.interpolate(scale.mean(1, keepdim=True), size=32, mode="bilinear")[:, 0]
    for column, one in enumerate(maps):
        shown = axes[row, column].imshow(one.numpy(), vmin=maps.min(), vmax=maps.max(), cmap="magma")
    figure.colorbar(shown, ax=axes[row], label=f"σ after {trace.names[row - 1]}")
for axis in axes.flat:
    axis.set_axis_off()
plt.show()
