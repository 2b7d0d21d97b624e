"""Analysis: what finished runs show of the theory, as rows and figures."""

from .boundary import boundary_distances as boundary_distances
from .boundary import boundary_figure as boundary_figure
from .boundary import boundary_rows as boundary_rows
from .boundary import rank_correlations as rank_correlations
from .coverage import coverage_figure as coverage_figure
from .coverage import coverage_over_training as coverage_over_training
from .coverage import coverage_ratio as coverage_ratio
from .figures import as_spec as as_spec
from .figures import save_figure as save_figure
from .figures import save_rows as save_rows
from .smoothness import smoothness_figure as smoothness_figure
from .smoothness import smoothness_rows as smoothness_rows
from .summary import analyse as analyse
from .trends import curve_rows as curve_rows
from .trends import curves_figure as curves_figure
from .trends import scale_figure as scale_figure
from .trends import scale_rows as scale_rows
from .trends import severity_figure as severity_figure
from .trends import severity_rows as severity_rows
