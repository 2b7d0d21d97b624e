"""Random streams that depend on (seed, purpose, position) alone.

Nothing has to be saved to repeat or resume a stream: step 1000 of a run draws the same numbers whether
the steps before it ran in this process or not.
"""

import hashlib

import torch


def derive(seed: int, *parts: str | int) -> int:
    """A 63-bit seed for one purpose; different parts give unrelated seeds."""
    text = "/".join(str(part) for part in (seed, *parts))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def generator_for(seed: int, *parts: str | int, device: torch.device | str = "cpu") -> torch.Generator:
    """A fresh generator for one purpose."""
    return torch.Generator(device).manual_seed(derive(seed, *parts))
