"""Corrupt your own pictures: python examples/corrupt_a_folder.py [FOLDER]

This writes two corruptions of each PNG file into a new folder. `pdeplus corrupt FOLDER --out corrupted` applies every
corruption and can be resumed.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

import pdeplus as pp


def some_pictures() -> Path:
    """Two pictures to try it on."""
    folder = Path(tempfile.mkdtemp())
    waves = np.sin(np.mgrid[:96, :128].sum(0) / 9)
    for name, colour in (("red.png", (255, 80, 60)), ("blue.png", (40, 90, 255))):
        Image.fromarray((np.multiply.outer(0.5 + 0.5 * waves, colour)).astype(np.uint8)).save(folder / name)
    return folder


folder = Path(sys.argv[1]) if len(sys.argv) > 1 else some_pictures()
out = Path(tempfile.mkdtemp(prefix="corrupted-"))
for place, path in enumerate(sorted(folder.glob("*.png"))):
    pixels = np.asarray(Image.open(path).convert("RGB"))
    for name in ("fog", "motion_blur"):
        corrupted = pp.corrupt(pixels[None], name, severity=3, constants="tiny", seed=0, indices=[place])[0]
        Image.fromarray(corrupted).save(out / f"{path.stem}.{name}.png")
        print(f"{path.name} {name}: mean change {np.abs(corrupted.astype(float) - pixels).mean():.1f} grey levels")
print(f"the corrupted pictures are in {out}")
