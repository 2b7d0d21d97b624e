"""The transport equation behind PDE+: solved on grids and by paths, its theorems measured, its figure drawn."""

from .problems import Problem as Problem
from .run import run_theory as run_theory
from .smoothness import difference_bound as difference_bound
from .smoothness import measure_smoothness as measure_smoothness
from .surfaces import surfaces as surfaces
from .transport import Expectation as Expectation
from .transport import Grid as Grid
from .transport import Solution as Solution
from .transport import expectation as expectation
from .transport import solve as solve
