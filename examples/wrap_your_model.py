"""Add adaptive distributional diffusion to your own model and train it with your own loop."""

import torch
from torch import nn
from torch.nn import functional as F

import pdeplus as pp

torch.manual_seed(0)
model = nn.Sequential(
    nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(),
    nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 2),
)  # fmt: skip
x, y = torch.rand(64, 3, 16, 16), torch.arange(64) % 2
x[y == 1] *= 0.5  # two classes to tell apart

net = pp.add_diffusion(model, after=["1", "4"], example=x[:2])
optimizer = torch.optim.Adam(net.parameters(), 0.01)
for _ in range(40):
    similar = pp.augmix(x)
    with torch.no_grad(), pp.diffusion(net, active=False) as twin:
        net(similar)
    with pp.diffusion(net, local=True) as trace:
        task = F.cross_entropy(net(x), y)
    pairs = zip(twin.means, trace.means, trace.scales, strict=True)
    coverage = sum(pp.functional.coverage_nll(a, h.detach(), scale) for a, h, scale in pairs)
    optimizer.zero_grad()
    (task + coverage).backward()
    optimizer.step()

accuracy = (pp.predict(net, x, samples=10).argmax(-1) == y).float().mean()
print(f"accuracy {accuracy:.2f}, mean σ {[round(float(s.mean()), 3) for s in trace.scales]}")
