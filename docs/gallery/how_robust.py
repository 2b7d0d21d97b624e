"""
How robust is my model?
=======================

You have a classifier and test images. One call shows how it holds up under fifteen corruptions: noise, blur, weather,
digital artefacts, at five severities each. Here the classifier is a small network that learns scikit-learn's
handwritten digits in a plain torch loop. To test a network on a folder of pictures, skip to
:ref:`from the command line <how-robust-command>`.

.. code-block:: bash

    pip install -c constraints.txt -e '.[digits,onnx,peers,plots]'   # in a clone, for everything on this page
"""

import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F

import pdeplus as pp

# %%
# Your model
# ----------
# The data: grey digits of 8×8 pixels, enlarged to 32×32 with three channels. The last 200 are the test images. The
# model and its training know nothing of pdeplus.

digits = load_digits()
images = F.interpolate(torch.tensor(digits.images)[:, None].float() / 16, size=32, mode="bilinear")
images, labels = images.expand(-1, 3, -1, -1).contiguous(), torch.tensor(digits.target)
x, y, x_test, y_test = images[:-200], labels[:-200], images[-200:], labels[-200:]

torch.manual_seed(0)
model = nn.Sequential(
    nn.Conv2d(3, 16, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU(),
    nn.Flatten(), nn.Linear(32 * 8 * 8, 10),
)  # fmt: skip
optimizer = torch.optim.Adam(model.parameters(), 0.002)
for _ in range(5):
    for rows in torch.randperm(len(x)).split(64):
        optimizer.zero_grad()
        F.cross_entropy(model(x[rows]), y[rows]).backward()
        optimizer.step()

# %%
# The test
# --------
# One call tests it: any torch module, or any function from images in [0, 1] to logits. Normalisation belongs in the
# model; normalised images are refused. A record holds what was measured on one test set; the clean images come first.

records = pp.evaluate(model, data=(x_test, y_test), name="my network")
clean, corrupted = records[0], records[1:]
mean = sum(record.accuracy for record in corrupted) / len(corrupted)
print(f"accuracy: clean {clean.accuracy:.1%}, corrupted {mean:.1%} (mean of {len(corrupted)} test sets)")

# %%
# Where is it weak? The lightest squares are the corruptions with the lowest accuracy.

accuracy = {(record.corruption, record.severity): 100 * record.accuracy for record in corrupted}
grid = [[accuracy[name, severity] for name in pp.CORRUPTIONS] for severity in range(1, 6)]
figure, axis = plt.subplots(figsize=(9, 3.2), layout="constrained")
shown = axis.imshow(grid, vmin=0, vmax=100, cmap="viridis_r", aspect="auto")
axis.set_xticks(range(15), [name.replace("_", " ") for name in pp.CORRUPTIONS], rotation=40, ha="right")
axis.set_yticks(range(5), range(1, 6))
axis.set_ylabel("severity")
figure.colorbar(shown, label="accuracy, %")
plt.show()

# %%
# ``pp.report(records, out="report.html")`` makes a page of these records. Data may also be a torch ``Dataset`` or
# ``DataLoader``, a folder of class folders, or a name such as ``"cifar10"``.
#
# .. _how-robust-command:
#
# From the command line
# ---------------------
# For pictures in a folder with a sub-folder per class:
#
# .. code-block:: bash
#
#     pdeplus evaluate timm:resnet18.a1_in1k --data my_pictures --report robust.html
#
# The class folders must have names that the model knows, here ImageNet's class names or WordNet ids. They are matched
# by name, in any order; if names do not match, the command stops and shows both lists. Your own weights come with
# their own head:
#
# .. code-block:: bash
#
#     pdeplus evaluate 'timm:test_resnet?weights=mine.safetensors' --data my_pictures --report robust.html
#
# The command prints the network's input format (image size, mean and standard deviation, which become part of the
# tested model), the expected time, a line of results, a short verdict and a command to try next. The page
# ``robust.html`` shows the same, with accuracies for every corruption and class, pictures that are misclassified once
# corrupted, the confusion matrix and the calibration. The records are in ``robust/``; if interrupted, the same command
# continues.
#
# .. list-table::
#    :header-rows: 1
#
#    * - you have
#      - write
#    * - a network of timm, torchvision or the Hugging Face hub
#      - ``timm:NAME``, ``torchvision:NAME``, ``hf:OWNER/NAME``
#    * - its weights in a file
#      - ``'timm:NAME?weights=FILE'`` (safetensors, or a torch checkpoint)
#    * - a folder in the hub's layout, or the weights in it
#      - ``FOLDER``, ``FOLDER/model.safetensors``
#    * - an exported file
#      - ``model.onnx``, ``model.pt2``; ``'model.onnx?mean=[0.5,0.5,0.5]&std=[0.5,0.5,0.5]'`` if it expects normalised
#        images
#    * - your own code
#      - ``my_package.my_net`` for ``my_package/my_net.py`` with a function ``build(*, classes, channels)``;
#        ``?weights=FILE``
#    * - a run of pdeplus
#      - its folder
#
# Several models can be compared on the same pictures, resized for each model as it needs:
#
# .. code-block:: bash
#
#     pdeplus evaluate 'timm:test_resnet?weights=mine.safetensors' my_net.pt2 --data my_pictures --report both.html
#
# **Which pictures.** Those in ``test/`` (or ``val/``) if the folder has one, otherwise all of them. For a folder that a
# run was trained on, the pictures that the run held out. ``--data my_pictures size=128`` sets the image size.
#
# **How many.** If pictures are larger than 128 pixels, the test is a quick one: at most 300 of them, at severities 1, 3
# and 5, and every mean says so. ``--full`` tests all pictures at all five severities; ``--limit``, ``--severity`` and
# ``--corruption`` select a part:
#
# .. code-block:: bash
#
#     pdeplus evaluate my_net.pt2 --data my_pictures --corruption fog my_corruptions.rain --severity 3
#
# ``my_corruptions.rain`` is your own function in ``my_corruptions.py``. It takes a float image C×H×W in [0, 1], the
# severity and a seeded generator, and returns such an image.
#
# ``--adapt`` tests a network with BatchNorm a second time, with the statistics of each test batch in place of those
# from training. That often helps, but needs many test images at once; its row is marked "uses test images".
#
# *What was tested.* A test runs the commands above that use files, with small networks. Downloading from the hubs was
# not tested.
