"""PDE+ with accelerate. In two processes: accelerate launch --cpu --num-processes 2 examples/loop_accelerate.py"""

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

import pdeplus as pp
from pdeplus.models.resnet18 import build  # any network will do

torch.manual_seed(0)
images, labels = torch.rand(64, 3, 16, 16), torch.arange(64) % 2
images[labels == 1] *= 0.5  # two classes to tell apart
net = pp.add_diffusion(build(classes=2, channels=3, width=8), after=["input"], example=images[:2])
criterion = pp.PDEPlusLoss(net)
optimizer = torch.optim.AdamW(criterion.parameter_groups(lr=0.01))
accelerator = Accelerator(gradient_accumulation_steps=2)
loader = DataLoader(TensorDataset(images, labels), 8, shuffle=True)
step, optimizer, loader = accelerator.prepare(criterion, optimizer, loader)  # the criterion, which holds the network
for _ in range(5):
    for x, y in loader:
        with accelerator.accumulate(step):
            accelerator.backward(step(x, y))
            optimizer.step()
            optimizer.zero_grad()
accuracy = (pp.predict(net.cpu(), images, samples=0).argmax(-1) == labels).float().mean()
accelerator.print(f"accuracy {accuracy:.2f}", {name: round(float(part), 3) for name, part in criterion.parts.items()})
