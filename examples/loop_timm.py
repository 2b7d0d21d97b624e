"""PDE+ in the style of timm's train.py: loss scaler, EMA, scheduler by updates. Images are normalised, as timm does."""

import timm
import torch
from timm.scheduler import CosineLRScheduler
from timm.utils import ModelEmaV3, NativeScaler

import pdeplus as pp

torch.manual_seed(0)
model = timm.create_model("resnet18", num_classes=2)  # pretrained=True where the hub can be reached
mean, std = (torch.tensor(model.default_cfg[key]).view(3, 1, 1) for key in ("mean", "std"))
labels = torch.arange(32) % 2  # two classes to tell apart: bright, and half as bright
images = (torch.rand(32, 3, 32, 32) / (1 + labels.view(-1, 1, 1, 1)) - mean) / std
net = pp.add_diffusion(model, after=["input"], example=images[:2]).train()
criterion = pp.PDEPlusLoss(net, mean=mean.flatten().tolist(), std=std.flatten().tolist(), label_smoothing=0.1)
criterion.start_scales(images[:16], labels[:16])  # σ starts at the features' distance to their augmentations
optimizer = torch.optim.AdamW(criterion.parameter_groups(lr=1e-3), weight_decay=0.05)
scheduler = CosineLRScheduler(optimizer, t_initial=8, t_in_epochs=False)
scaler, ema = NativeScaler("cpu"), ModelEmaV3(net)
for update in range(8):
    for part, (x, y) in enumerate(zip(images.split(16), labels.split(16), strict=True), 1):
        with torch.autocast("cpu", torch.bfloat16):
            loss = criterion(x, y) / 2  # two parts, one update
        scaler(loss, optimizer, clip_grad=1.0, parameters=net.parameters(), need_update=part == 2)
    optimizer.zero_grad()
    ema.update(net, step=update)
    scheduler.step_update(update + 1)
print(f"accuracy {(pp.predict(net, images, samples=0).argmax(-1) == labels).float().mean():.2f}")
