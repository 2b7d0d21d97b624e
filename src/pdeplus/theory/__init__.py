"""The transport equation behind PDE+: solved on grids and by paths, its theorems measured, its figure drawn."""

from .bounds import difference_bound as difference_bound
from .feynman_kac import Expectation as Expectation
from .feynman_kac import expectation as expectation
from .grid import Grid as Grid
from .grid import Solution as Solution
from .problems import Problem as Problem
from .run import run_theory as run_theory
from .smoothness import measure_smoothness as measure_smoothness
from .surfaces import surfaces as surfaces
from .transport import solve as solve
