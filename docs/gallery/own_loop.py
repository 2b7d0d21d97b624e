"""
Put PDE+ into your own loop
===========================

You have a network, a data loader and a training loop. To use PDE+ you change three things: add diffusion to the
network, use a criterion that takes images instead of logits, and pass parameter groups to the optimiser.
"""

import matplotlib.pyplot as plt
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import pdeplus as pp
from pdeplus.data.clothes import Clothes

# %%
# What you have
# -------------
# 2,334 pictures of clothes, 28×28, a small network, and a plain loop.

clothes = Clothes()
train, test = clothes.train(), clothes.test()["clean"]
loader = DataLoader(TensorDataset(train.floats()[::3], train.labels[::3]), batch_size=64, shuffle=True)


def network():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 49, 10),
    )  # fmt: skip


epochs = 6
model = network()
optimizer = torch.optim.AdamW(model.parameters(), lr=0.003)
for _ in range(epochs):
    for x, y in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()

# %%
# With PDE+
# ---------
# The three changes are numbered. ``progress`` tells the criterion how far training is: the images diffuse in the last
# 40 % of it.

net = pp.add_diffusion(network(), after=["input"], example=train.floats()[:2])  # 1
criterion = pp.PDEPlusLoss(net)  # 2
optimizer = torch.optim.AdamW(criterion.parameter_groups(lr=0.003))  # 3
for epoch in range(epochs):
    for x, y in loader:
        optimizer.zero_grad()
        criterion(x, y, progress=epoch / epochs).backward()
        optimizer.step()
print({name: round(float(part), 2) for name, part in criterion.parts.items()})

# %%
# At test time use the plain network: ``net(x)`` adds no noise, and ``pp.plain(net)`` is a copy without ADD blocks.
# ``pp.predict(net, x, samples=10)`` averages ten noisy passes. Here are both networks under Gaussian noise, the
# corruption that PDE+ helps most against:

levels = [0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3]
images = test.floats()
noise = torch.randn(images.shape, generator=torch.Generator().manual_seed(0))
figure, axis = plt.subplots(figsize=(6, 3.4), layout="constrained")
for name, trained in {"cross-entropy": model.eval(), "PDE+": pp.plain(net)}.items():
    with torch.no_grad():
        right = [(trained((images + s * noise).clamp(0, 1)).argmax(1) == test.labels).float().mean() for s in levels]
    axis.plot(levels, [100 * float(share) for share in right], marker="o", label=name)
axis.set_xlabel("standard deviation of Gaussian noise on the test images")
axis.set_ylabel("accuracy, %")
axis.set_ylim(0, 100)
axis.legend(frameon=False)
plt.show()

# %%
# What you may want to change
# ---------------------------
# **Normalised images.** Augmentations work on pixels in [0, 1]. If your loader normalises images, pass its ``mean`` and
# ``std``; otherwise normalised images are refused.

mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
criterion = pp.PDEPlusLoss(net, mean=mean, std=std)
normalised = (x - torch.tensor(mean).view(3, 1, 1)) / torch.tensor(std).view(3, 1, 1)
loss = criterion(normalised, y)

# %%
# **Features that diffuse, as in the paper.** Name modules instead of the input, or take ``after="auto"`` for the
# network's stages. The criterion then learns from originals and augmentations, all diffused, and asks that their
# predictions agree: 2.4 times the cost.

in_stages = pp.add_diffusion(network(), after=["2", "6"], example=x[:2]).train()
criterion = pp.PDEPlusLoss(in_stages)  # jsd=0 without the agreement, as published
loss = criterion(x, y)

# %%
# **A pretrained network.** Its features may be a hundred times as large as σ's initial value of 0.05. Call
# ``start_scales`` once before the first step: it sets each block's initial σ to the distance between the features of
# images and those of their augmentations.

print(criterion.start_scales(x, y))

# %%
# **Similar samples.** ``augmentor`` is a name (``"augmix"``, ``"prime"``, …; ``pdeplus list augment`` shows all), a
# dictionary such as ``{"name": "augmix", "severity": 5}``, or your function ``(images, generator) -> images``.

criterion = pp.PDEPlusLoss(net, augmentor=lambda x, generator: x.flip(3), jsd=0.0, label_smoothing=0.1)
loss = criterion(x, y)

# %%
# **Directional diffusion** (ours) is an option of ``add_diffusion``. The ADD blocks then have no parameters φ, so there
# is one parameter group.

directional = pp.add_diffusion(network(), after=["2", "6"], example=x[:2], covariance="directional", reach=0.5).train()
criterion = pp.PDEPlusLoss(directional)
loss = criterion(x, y)
assert len(criterion.parameter_groups(lr=0.01)) == 1

# %%
# **Two optimisers.** As published, Adam trains the parameters φ of the ADD blocks, and SGD the rest.
# ``theta, phi = criterion.parameter_groups(…)`` returns one group for each optimiser; one backward pass serves both.
# With SGD alone, φ hardly moves.
#
# **AugMix without diffusion**: ``pp.AugMixLoss(net)`` for any network, with the same arguments.
#
# **In eval mode** (``net.eval()``) the criterion is the cross-entropy of the plain network, for validation.
#
# Your library
# ------------
#
# .. list-table::
#    :header-rows: 1
#
#    * - loop
#      - example
#      - several processes
#      - gradient accumulation
#    * - plain PyTorch
#      - :download:`loop_pytorch.py <../../examples/loop_pytorch.py>`
#      - ``DistributedDataParallel(criterion)``: wrap the criterion
#      - divide the loss by the number of parts
#    * - accelerate
#      - :download:`loop_accelerate.py <../../examples/loop_accelerate.py>`
#      - ``prepare(criterion, …)``: prepare the criterion
#      - ``accumulate(criterion)`` is enough
#    * - Hugging Face Trainer
#      - :download:`loop_trainer.py <../../examples/loop_trainer.py>`
#      - pass ``net=model``, the wrapped network
#      - set ``trainer.model_accepts_loss_kwargs = False``, otherwise the loss is not divided
#    * - Lightning
#      - :download:`loop_lightning.py <../../examples/loop_lightning.py>`
#      - ``strategy="ddp"``
#      - ``accumulate_grad_batches``
#    * - Lightning, two optimisers
#      - :download:`loop_lightning_two.py <../../examples/loop_lightning_two.py>`
#      - ``strategy="ddp"``
#      - by hand, as in the example
#    * - timm's style
#      - :download:`loop_timm.py <../../examples/loop_timm.py>`
#      - wrap the criterion, as in plain PyTorch
#      - divide the loss; the scaler's ``need_update``
#
# - The criterion holds the network, so wrap the criterion. If you wrap the network instead and call the criterion,
#   every process trains by itself.
# - Each process draws its own noise, even where all have the same seed. Augmentation and noise follow
#   ``torch.manual_seed``, or a ``generator`` that you pass.
# - BatchNorm normalises each part of a batch, and each process's share of it, separately, as in any training.
# - ``DataParallel`` is not supported: its threads do not see the diffusion. FSDP, DeepSpeed and GPUs have not been
#   tested. The slow tests run the examples on CPUs, all but timm's style also in two processes over gloo.
# - Where the images diffuse, a step costs that of a plain loop and the augmentation. Where features do, it is a
#   gradient-free pass of the batch, a forward and backward pass of twice the batch, and the augmentation.
