"""Report: records become tables, figures and one page that needs nothing else."""

from .page import report as report
