"""Speed: ratios measured in one process, how cost grows, and what the paper's Table 1 would cost."""

from ._timing import take_turns as take_turns
from .run import run_bench as run_bench
