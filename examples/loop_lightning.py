"""PDE+ with Lightning and one optimiser; strategy="ddp" and accumulate_grad_batches work as always."""

import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset

import pdeplus as pp
from pdeplus.models.resnet18 import build  # any network will do


class Classifier(lightning.LightningModule):
    def __init__(self, net):
        super().__init__()
        self.criterion = pp.PDEPlusLoss(net)  # holds the network: its parameters are this module's

    def training_step(self, batch, index):
        return self.criterion(*batch)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.criterion.parameter_groups(lr=0.01))


torch.manual_seed(0)
images, labels = torch.rand(64, 3, 16, 16), torch.arange(64) % 2
images[labels == 1] *= 0.5  # two classes to tell apart
net = pp.add_diffusion(build(classes=2, channels=3, width=8), after=["input"], example=images[:2])
quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
trainer = lightning.Trainer(max_epochs=5, accumulate_grad_batches=2, accelerator="cpu", **quiet)
trainer.fit(Classifier(net), DataLoader(TensorDataset(images, labels), 8, shuffle=True))
print(f"accuracy {(pp.predict(net.cpu(), images, samples=0).argmax(-1) == labels).float().mean():.2f}")
