"""
Test your own model
===================

Any function from images in [0, 1] to logits can be tested. Here a small network learns scikit-learn's handwritten
digits in a plain torch loop; then it is tested on clean images and under the fifteen corruptions at five severities.
"""

import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F

import pdeplus as pp

# %%
# The data: grey digits of 8×8 pixels, enlarged to 32×32 with three channels. The last 200 are the test images.

digits = load_digits()
images = F.interpolate(torch.tensor(digits.images)[:, None].float() / 16, size=32, mode="bilinear")
images, labels = images.expand(-1, 3, -1, -1).contiguous(), torch.tensor(digits.target)
x, y, x_test, y_test = images[:-200], labels[:-200], images[-200:], labels[-200:]

# %%
# The model and its training know nothing of pdeplus.

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
# One call tests it. A record holds what was measured on one test set; the clean images come first.

records = pp.evaluate(model, data=(x_test, y_test), name="my network")
clean, corrupted = records[0], records[1:]
print(f"{len(records)} test sets; clean accuracy {clean.correct / clean.n:.1%}")

# %%
# Where is it weak? The lightest squares are the corruptions with the lowest accuracy.

table = {(record.corruption, record.severity): 100 * record.correct / record.n for record in corrupted}
grid = [[table[name, severity] for name in pp.CORRUPTIONS] for severity in range(1, 6)]
figure, axis = plt.subplots(figsize=(9, 3.2), layout="constrained")
shown = axis.imshow(grid, vmin=0, vmax=100, cmap="viridis_r", aspect="auto")
axis.set_xticks(range(15), [name.replace("_", " ") for name in pp.CORRUPTIONS], rotation=40, ha="right")
axis.set_yticks(range(5), range(1, 6))
axis.set_ylabel("severity")
figure.colorbar(shown, label="accuracy, %")
plt.show()

# %%
# ``pp.report(records, out="report.html")`` makes one page of these records, with mCE, calibration and intervals.
