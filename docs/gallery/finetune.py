"""
Fine-tune a pretrained network on your own folder
=================================================

You have a folder of pictures, one folder for each class, and want a network for them that holds up when pictures are
noisy, blurred or taken in fog. This page first does it in Python, in half a minute of one core and without a download:
a network that was trained on five kinds of clothes learns five others from forty pictures each. The commands for
:ref:`a network of timm and your own pictures <finetune-command>` follow.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from PIL import Image

import pdeplus as pp
from pdeplus.data.clothes import Clothes

# %%
# A folder and a network
# ----------------------
# If there are folders ``train`` and ``test``, they are used as such; otherwise a fifth of each class is held out for
# testing. The pictures here come with pdeplus.

folder = Path(tempfile.mkdtemp())
clothes = Clothes()
train, test = clothes.train(), clothes.test()["clean"]
mine = [0, 2, 4, 6, 9]  # the classes to learn; the network knows the others
for part, source, count in (("train", train, 40), ("test", test, 100)):
    for label in mine:
        place = folder / "my_pictures" / part / clothes.classes[label].replace("/", " or ")
        place.mkdir(parents=True)
        for number, row in enumerate((source.labels == label).nonzero().flatten()[:count]):
            Image.fromarray(source.images[row].permute(1, 2, 0).numpy()).save(place / f"{number}.png")

known = [label for label in range(10) if label not in mine]
rows = torch.isin(train.labels, torch.tensor(known)).nonzero().flatten()
others = [(train.images[row] / 255, known.index(int(train.labels[row]))) for row in rows]
pretrained = pp.train(
    "demo", folder / "pretrained", data=others, settings=["model.width=8", "method.name=erm", "train.epochs=4"]
)
print(
    f"knows {', '.join(clothes.classes[label] for label in known)}: {pretrained.metrics[-1]['validation/accuracy']:.0%}"
)

# %%
# Fine-tune
# ---------
# Any torch module can be fine-tuned: give it a head for the new classes and pass it as ``model``. The preset
# ``finetune`` has the usual choices (AdamW, a lower learning rate for the backbone, label smoothing); its method is
# PDE+. We train once with it and once with plain cross-entropy (``erm``).

runs = []
for method in ("erm", "pde_plus"):
    torch.manual_seed(0)
    model = pretrained.model
    model.linear = torch.nn.Linear(model.linear.in_features, len(mine))
    settings = [f"method.name={method}", "data.size=28", "train.epochs=12", "train.precision=fp32", "train.lr=0.01"]
    settings += ["train.backbone_lr=0.003"]
    run = pp.train("finetune", folder / method, model=model.train(), data=folder / "my_pictures", settings=settings)
    runs.append(run)
    best = max(run.metrics, key=lambda row: row["validation/accuracy"] + row["validation/shifted_accuracy"])
    print(f"{method}: validation {best['validation/accuracy']:.0%}, shifted {best['validation/shifted_accuracy']:.0%}")

# %%
# *Shifted accuracy* is measured on validation pictures under four corruptions that do not occur in any test. The epoch
# with the best mean of both accuracies is kept.
#
# Compare
# -------
# Both networks are tested on the pictures in ``test``, clean and under some of the fifteen corruptions.

names = ["gaussian_noise", "defocus_blur", "fog", "contrast", "jpeg_compression"]
figure, axis = plt.subplots(figsize=(8, 3.4), layout="constrained")
for place, run in enumerate(runs):
    records = pp.evaluate(run, corruptions=names, severities=[3])
    bars = [100 * record.accuracy for record in records]
    axis.bar([i + 0.4 * place for i in range(len(bars))], bars, 0.38, label=("cross-entropy", "PDE+")[place])
axis.set_xticks([i + 0.2 for i in range(len(bars))], ["clean", *(name.replace("_", "\n") for name in names)])
axis.set_ylabel("accuracy, %")
axis.set_ylim(0, 100)
axis.legend(frameon=False, ncols=2, loc="upper right")
plt.show()

# %%
# With one seed and two hundred training pictures, differences of a few points mean nothing; see how to
# :doc:`evaluate and compare </docs/evaluation>`.
#
# .. _finetune-command:
#
# A network of timm, your own pictures
# ------------------------------------
#
# .. code-block:: bash
#
#     pip install -c constraints.txt -e '.[onnx,peers,plots]'   # in a clone: timm, torchvision, transformers
#     pdeplus train finetune data.root=my_pictures model.name=timm:resnet18.a1_in1k --dry-run
#     pdeplus train finetune data.root=my_pictures model.name=timm:resnet18.a1_in1k --out runs/pde
#     pdeplus train finetune data.root=my_pictures model.name=timm:resnet18.a1_in1k method.name=erm --out runs/erm
#
# torch and torchvision must come from the same package index: next to a CPU build of torch, the usual torchvision wheel
# cannot be imported, and neither can timm. The command then says what to install.
#
# The first command says how long training will take. The others fine-tune with PDE+ and with plain cross-entropy. Each
# prints the network's input format and the places of PDE+'s blocks, then a progress bar, or one line per epoch in a log
# file. Before training begins, all broken pictures are listed, and the classes of ``test/`` are compared with those of
# ``train/``.
#
# On a GPU nothing needs to be set. On a CPU, a ResNet-18 trains on eight to fourteen pictures per second and
# core; PDE+ takes 1.2 times as long (:doc:`measurements </docs/performance>`).
#
# .. code-block:: bash
#
#     pdeplus evaluate runs/erm runs/pde --limit 200
#     pdeplus report runs/erm runs/pde --out report.html
#     pdeplus predict runs/pde my_pictures/cat
#
# **Continue a run.** This continues from the last checkpoint with other settings, in the new folder
# ``runs/pde-branch1``; ``runs/pde`` stays as it is:
#
# .. code-block:: bash
#
#     pdeplus train --resume runs/pde train.epochs=15 train.lr=0.0003
#
# After Ctrl-C or a power cut, ``pdeplus train --resume runs/pde`` without settings continues where it stopped and ends
# with the same bits.
#
# **Change something.**
#
# .. list-table::
#    :header-rows: 1
#
#    * - you want
#      - set
#    * - another network
#      - ``model.name=timm:convnext_tiny.fb_in22k``, ``hf:microsoft/resnet-50``, ``torchvision:resnet50``
#        (:doc:`models </docs/models>`)
#    * - weights from a file, without the internet
#      - ``model.weights=FILE``
#    * - less memory (1.4 GB for a ResNet-18)
#      - ``train.accumulate=4`` (1.2 GB), or ``train.batch_size=16``
#    * - a few hundred pictures only
#      - ``train.freeze_epochs=2`` (the head learns first), ``train.patience=3``
#    * - classes of very different size
#      - ``train.class_weights=balanced``
#    * - to keep more of what the network knew before
#      - ``train.freeze_epochs=2 train.wise_ft=true``
#    * - text or digits, which must not be mirrored
#      - ``data.transform.flip=false``
#
# Compare instead of guessing:
#
# .. code-block:: bash
#
#     pdeplus sweep finetune data.root=my_pictures model.name=timm:resnet18.a1_in1k \
#         --methods erm augmix pde_plus --limit 200 --out compared
#
# **Use it.** The exported file holds the network with its normalisation: it takes images in [0, 1] and needs neither
# pdeplus nor torch.
#
# .. code-block:: bash
#
#     pdeplus export runs/pde --format onnx --out pictures.onnx
#
# :download:`newcomer.py <../../examples/newcomer.py>` does all of this in one Python script, from testing the network
# before training to a folder to share.
#
# *What was tested.* A test runs these commands on a tiny folder, with a small network whose weights are random.
# Downloading weights from the hubs was not tested.
