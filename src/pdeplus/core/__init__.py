"""Adaptive diffusion in any torch model: the ADD block, its context, the surgery, prediction."""
