"""Analysis: what finished runs show of the theory, as rows, figures and one summary."""
