"""PDE+ in a plain PyTorch loop. In two processes: torchrun --nproc-per-node 2 examples/loop_pytorch.py"""

import torch
from torch.distributed import init_process_group, is_torchelastic_launched
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import pdeplus as pp
from pdeplus.models.resnet18 import build  # any network will do

torch.manual_seed(0)
images, labels = torch.rand(64, 3, 16, 16), torch.arange(64) % 2
images[labels == 1] *= 0.5  # two classes to tell apart
net = pp.add_diffusion(build(classes=2, channels=3, width=8), after=["input"], example=images[:2])
step = criterion = pp.PDEPlusLoss(net, augmentor="augmix")
optimizer = torch.optim.AdamW(criterion.parameter_groups(lr=0.01))
data, several, parts = TensorDataset(images, labels), is_torchelastic_launched(), 2  # parts of a batch, one update
if several:
    init_process_group("gloo")  # "nccl" on GPUs
    step = DistributedDataParallel(criterion)  # around the criterion, which holds the network
for epoch in range(5):
    loader = DataLoader(data, 8, sampler=DistributedSampler(data, seed=epoch) if several else None, shuffle=not several)
    for number, (x, y) in enumerate(loader, 1):
        (step(x, y) / parts).backward()
        if number % parts == 0:
            optimizer.step()
            optimizer.zero_grad()
accuracy = (pp.predict(net, images, samples=0).argmax(-1) == labels).float().mean()
print(f"accuracy {accuracy:.2f}", {name: round(float(part), 3) for name, part in criterion.parts.items()})
