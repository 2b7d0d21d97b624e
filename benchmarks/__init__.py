"""Speed as ratios measured in one process, how cost grows, and what the paper's Table 1 would cost."""
