"""WiSE-FT (Wortsman et al., 2022): weights between those that fine-tuning began from and those it came to.

The share of each is chosen by the validation score, which no test image enters.
"""

import copy
import json
from pathlib import Path

import torch
from torch import Tensor

from .._lib.files import encode_weights, read_weights, write_file
from .loop import validate
from .session import Session, score_of

TUNED = "tuned.safetensors"
"""The best weights of fine-tuning itself."""
START = "start.safetensors"
"""The weights when the backbone began to learn, with a head that had learnt on it."""
SHARES = tuple(i / 10 for i in range(11))
"""Shares of the fine-tuned weights that are tried."""


def mix_with_start(session: Session, folder: Path) -> None:
    """Replace the best weights of a run by the best mean of them and of its start; of equals the larger share wins.

    What each share scored is in wise_ft.json; the fine-tuned weights stay in a file of their own.
    """
    best_of_all, kept = folder / "best.safetensors", folder / TUNED

    def keep() -> None:  # once: a run that was killed below mixes the same weights when it is resumed
        if not kept.exists():
            write_file(kept, best_of_all.read_bytes())

    session.processes.on_main(keep)
    start, tuned = read_weights(folder / START), read_weights(kept)
    network, scores = copy.deepcopy(session.network), dict[float, float]()
    for share in SHARES:
        network.load_state_dict(between(start, tuned, share))
        scores[share] = score_of(validate(session, network))
    best = max(SHARES, key=lambda share: (scores[share], share))
    told = {"share": best, "scores": {f"{share:.1f}": score for share, score in scores.items()}}

    def write() -> None:
        write_file(best_of_all, encode_weights(between(start, tuned, best)))
        write_file(folder / "wise_ft.json", json.dumps(told, indent=1).encode())

    session.processes.on_main(write)


def between(start: dict[str, Tensor], tuned: dict[str, Tensor], share: float) -> dict[str, Tensor]:
    """(1 - share) · start + share · tuned; whole numbers, which only count, are the tuned ones."""
    mixed = dict[str, Tensor]()
    for name, end in tuned.items():
        mixed[name] = torch.lerp(start[name], end, share) if end.is_floating_point() else end
    return mixed
