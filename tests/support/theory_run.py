"""Surfaces that tests share: enough training to tell the classes apart, no more."""

from functools import cache

from pdeplus.theory.surfaces import Surfaces, surfaces


@cache
def made_surfaces() -> Surfaces:
    """Solved once for all tests; do not change them."""
    return surfaces(seed=0, points=100, iterations=200)
