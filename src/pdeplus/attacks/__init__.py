"""Adversarial images: the worst that a bounded change of each image does to a network."""

from .gradient_attacks import APGD as APGD
from .gradient_attacks import FGSM as FGSM
from .gradient_attacks import PGD as PGD
from .gradient_attacks import Attack as Attack
from .gradient_attacks import build_attack as build_attack
from .gradient_attacks import single_step as single_step
from .steps import pgd as pgd
