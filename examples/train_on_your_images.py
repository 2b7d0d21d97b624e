"""Train on your own images: python examples/train_on_your_images.py [FOLDER]

FOLDER has one subfolder per class; a fifth of each class is held out for testing. The same on the command line:
pdeplus train demo data.name=image_folder data.root=FOLDER data.size=32 --out runs/mine
"""

import sys
import tempfile
from pathlib import Path

import torch
from PIL import Image

import pdeplus as pp
from pdeplus.data.digits import Digits


def some_pictures() -> str:
    """Handwritten digits as PNG files in class folders."""
    source, root = Digits(), Path(tempfile.mkdtemp())
    digits = source.train()
    for place, label in enumerate(digits.labels[:800].tolist()):
        folder = root / source.classes[label]
        folder.mkdir(exist_ok=True)
        Image.fromarray(digits.images[place].permute(1, 2, 0).numpy()).save(folder / f"{place}.png")
    return str(root)


root = sys.argv[1] if len(sys.argv) > 1 else some_pictures()
settings = ["data.name=image_folder", f"data.root={root}", "data.size=32", "model.width=8", "train.epochs=5"]
run = pp.train(pp.load_config("demo", settings), out=Path(tempfile.mkdtemp()) / "run")
print(f"validation accuracy {run.metrics[-1]['validation/accuracy']:.2f}")
picture = torch.rand(1, 3, 32, 32)
print("probabilities of one picture:", [round(p, 2) for p in pp.predict(run.model, picture, samples=5)[0].tolist()])
