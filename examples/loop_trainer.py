"""PDE+ with the Hugging Face Trainer. On two GPUs: torchrun --nproc-per-node 2 examples/loop_trainer.py"""

import torch
from transformers import ResNetConfig, ResNetForImageClassification, Trainer, TrainingArguments

import pdeplus as pp


class PDEPlusTrainer(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        if not model.training:
            return super().compute_loss(model, inputs, return_outputs)
        return criterion(inputs["pixel_values"], inputs["labels"], net=model)  # `model`: it may be wrapped


torch.manual_seed(0)
images, labels = torch.rand(64, 3, 32, 32), torch.arange(64) % 2
images[labels == 1] *= 0.5  # two classes to tell apart
config = ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic", num_labels=2)
net = pp.add_diffusion(ResNetForImageClassification(config), after=["input"], example=images[:2])
criterion = pp.PDEPlusLoss(net)
optimizer = torch.optim.AdamW(criterion.parameter_groups(lr=0.01))
data = [{"pixel_values": x, "labels": int(y)} for x, y in zip(images, labels, strict=True)]
options = {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 2, "num_train_epochs": 5}
arguments = TrainingArguments("trainer", save_strategy="no", disable_tqdm=True, report_to="none", **options)
trainer = PDEPlusTrainer(net, arguments, train_dataset=data, eval_dataset=data, optimizers=(optimizer, None))
trainer.model_accepts_loss_kwargs = False  # the loss is a mean over a part: the Trainer divides by the number of parts
trainer.train()
print(f"accuracy {(trainer.predict(data).predictions.argmax(-1) == labels.numpy()).mean():.2f}")
