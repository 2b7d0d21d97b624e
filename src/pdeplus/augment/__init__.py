"""Batched augmentations, one file a name; every sample draws its own parameters from a generator."""
