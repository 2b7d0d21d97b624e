"""What became of each trial, counted by what was tried."""

import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from pdeplus.errors import RunFailed, UserError

GOOD = ("unchanged", "read", "refused", "warned")
"""The same result as ever; contents that make sense; one line, exit code 2; a warning and the rest."""
BAD = ("traceback", "changed", "lost")
"""What no trial may end in."""


@dataclass
class Tally:
    """Counts by what was tried and what became of it, and some of the bad ones."""

    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    bad: list[str] = field(default_factory=list)

    def add(self, what: str, outcome: str, about: str = "") -> None:
        """Count one trial."""
        self.counts[what, outcome] += 1
        if outcome in BAD:
            self.bad.append(f"{what}: {outcome}: {about}"[:500])

    def table(self) -> str:
        """The counts in Markdown, a row for everything that was tried."""
        outcomes = [name for name in (*GOOD, *BAD) if any(outcome == name for _, outcome in self.counts)]
        outcomes += [name for name in BAD if name not in outcomes]
        rows = [["tried", "trials", *outcomes]]
        for what in sorted({what for what, _ in self.counts}):
            cells = [self.counts[what, outcome] for outcome in outcomes]
            rows.append([what, str(sum(cells)), *map(str, cells)])
        total = [sum(self.counts[what, outcome] for what, _, *_ in rows[1:]) for outcome in outcomes]
        rows.append(["all", str(sum(total)), *map(str, total)])
        lines = ["| " + " | ".join(row) + " |" for row in rows]
        return "\n".join([lines[0], "|---|" + "---:|" * (len(rows[0]) - 1), *lines[1:]])


def judge(call: Callable[[], object]) -> tuple[str, object]:
    """What became of a call, and what it returned or why it was refused; other errors are tracebacks to a user."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        try:
            answer = call()
        except (UserError, RunFailed, OSError) as error:  # which the command answers in a line
            words = str(error)
            return ("refused", words) if "\n" not in words else ("traceback", f"several lines: {words}")
        except Exception as error:
            return "traceback", f"{type(error).__name__}: {error}"
    return ("warned" if seen else "read"), answer
