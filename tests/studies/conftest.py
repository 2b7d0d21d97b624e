"""Cells in this process, for tests of what they end in; tests/studies/test_jobs.py has them in processes."""

import warnings
from collections.abc import Iterator

import pytest

from pdeplus.studies import reproduction
from pdeplus.studies.cells import attempt_alone


@pytest.fixture(scope="module")
def cells_here() -> Iterator[None]:
    """`reproduce` starts no process, which would import torch anew."""

    def run(cells, runs, jobs):
        for index, cell in enumerate(cells):
            with warnings.catch_warnings(action="ignore"):  # a process prints them
                result = attempt_alone(cell, runs, lambda: pytest.fail("nobody else trains it"))
            yield index, result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reproduction, "run_here", run)
        yield
