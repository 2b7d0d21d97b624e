"""From a pretrained network to a robust one: python examples/newcomer.py FOLDER MODEL [KEY=VALUE …]

FOLDER has train/ and test/ with one folder per class; MODEL is a URI such as timm:resnet18.a1_in1k.
The network is tested, fine-tuned with PDE+, compared with its state before, exported and saved in the current folder.
"""

import sys

import pdeplus as pp

folder, model, *settings = sys.argv[1:]
pp.evaluate(model, data=folder, quick=None, name="as it came", out="before", say=print)
run = pp.train("finetune", "runs/pde", model=model, data=folder, settings=settings, progress=True, say=print)
pp.evaluate(run, quick=None, say=print)
print(pp.report(["before", "runs/pde"], out="compared.html"))
print(pp.export(run, "torch", "robust.pt2"))  # torch.export.load("robust.pt2").module(): images in [0, 1] → logits
print(pp.save_pretrained(run, "robust_model"))  # weights, ONNX and a model card, ready for the Hugging Face hub
