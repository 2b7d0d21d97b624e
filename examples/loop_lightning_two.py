"""PDE+ with Lightning and two optimisers, as published: SGD on the network, Adam on φ. One backward serves both."""

import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset

import pdeplus as pp
from pdeplus.models.resnet18 import build  # any network will do


class Classifier(lightning.LightningModule):
    def __init__(self, net):
        super().__init__()
        self.criterion, self.automatic_optimization, self.parts = pp.PDEPlusLoss(net), False, 2

    def training_step(self, batch, index):
        self.manual_backward(self.criterion(*batch) / self.parts)
        for optimizer in self.optimizers() if (index + 1) % self.parts == 0 else ():  # accumulation is by hand here
            optimizer.step()
            optimizer.zero_grad()

    def configure_optimizers(self):
        theta, phi = self.criterion.parameter_groups(lr=0.02)
        return torch.optim.SGD([theta], momentum=0.9, nesterov=True), torch.optim.Adam([phi])


torch.manual_seed(0)
images, labels = torch.rand(64, 3, 16, 16), torch.arange(64) % 2
images[labels == 1] *= 0.5  # two classes to tell apart
net = pp.add_diffusion(build(classes=2, channels=3, width=8), after=["input"], example=images[:2])
quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
data = DataLoader(TensorDataset(images, labels), 8, shuffle=True)
lightning.Trainer(max_epochs=10, accelerator="cpu", **quiet).fit(Classifier(net), data)
print(f"accuracy {(pp.predict(net.cpu(), images, samples=0).argmax(-1) == labels).float().mean():.2f}")
