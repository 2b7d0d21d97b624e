"""Write src/pdeplus/data/clothes.npz, the excerpt of Fashion-MNIST that pdeplus ships: python tools/clothes.py

Needs the whole data set: pdeplus data get fashion_mnist.
"""

from pathlib import Path

import numpy as np
import torch

from pdeplus.data.base import Images
from pdeplus.data.fashion_mnist import FashionMnist

FILE = Path(__file__).parent.parent / "src" / "pdeplus" / "data" / "clothes.npz"
EACH = {"train": 700, "test": 100}


def excerpt(images: Images, each: int) -> Images:
    """The first so many images of every class, in their order."""
    places = [torch.where(images.labels == label)[0][:each] for label in range(10)]
    return images.take(torch.cat(places).sort().values)


def main() -> None:
    whole = FashionMnist(channels=1)
    arrays = dict[str, np.ndarray]()
    for part, images in (("train", whole.train()), ("test", whole.test()["clean"])):
        kept = excerpt(images, EACH[part])
        arrays[f"{part}_images"] = kept.images[:, 0].numpy()
        arrays[f"{part}_labels"] = kept.labels.to(torch.uint8).numpy()
    np.savez_compressed(FILE, **arrays)  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
