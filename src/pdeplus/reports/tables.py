"""A table of text, and what Markdown, CSV and LaTeX make of it."""

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from ..evaluation.metrics import Estimate

MISSING = "—"
"""A score that cannot be computed; a note says why."""
PLUS_MINUS = " ± "
_MARKDOWN = re.compile(r"([\\`*_\[\]|~$])")
_LATEX = {letter: f"\\{letter}" for letter in "{}&%$#_"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "…": r"\dots{}",
    "±": r"$\pm$",
    "×": r"$\times$",
    "·": r"$\cdot$",
    "σ": r"$\sigma$",
    "≤": r"$\leq$",
    "−": "$-$",
    "—": "---",
    "–": "--",
    '"': "''",
}


@final
@dataclass(frozen=True)
class Table:
    """Rows of text under columns; the first column names the row, the next answer the question.

    Whatever the text holds, every format shows it literally.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()
    first: int = 0
    """Columns that a page shows before more are asked for; 0: as many as fit."""

    def to_markdown(self) -> str:
        """Title, table and notes."""
        lines = [f"**{escape_markdown(self.title)}**", ""]
        lines += [_markdown_row(self.columns), "|---|" + "---:|" * (len(self.columns) - 1)]
        lines += [_markdown_row(row) for row in self.rows]
        lines += [""] * bool(self.notes) + [f"- {escape_markdown(note)}" for note in self.notes]
        return "\n".join(lines) + "\n"

    def to_csv(self) -> str:
        """The table for machines: a spread has its own column behind its mean's, what is missing is empty."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        spread = [any(PLUS_MINUS in row[i] for row in self.rows) for i in range(len(self.columns))]
        pairs = [[(name, f"{name} ±") for name in self.columns]]
        for row in self.rows:
            parts = [cell.partition(PLUS_MINUS) for cell in row]
            pairs.append([("" if mean == MISSING else mean, width) for mean, _, width in parts])
        for row in pairs:
            writer.writerow([escape_csv(t) for pair, wide in zip(row, spread, strict=True) for t in pair[: 1 + wide]])
        return out.getvalue()

    def to_latex(self) -> str:
        """A `table` for the package booktabs; the notes stand below it."""
        lines = [r"\begin{table}", r"\centering", rf"\caption{{{escape_latex(self.title)}}}"]
        lines += [rf"\begin{{tabular}}{{l{'r' * (len(self.columns) - 1)}}}", r"\toprule", _latex_row(self.columns)]
        lines += [r"\midrule", *(_latex_row(row) for row in self.rows), r"\bottomrule", r"\end{tabular}"]
        lines += [rf"\par\footnotesize {escape_latex(note)}" for note in self.notes]
        return "\n".join([*lines, r"\end{table}"]) + "\n"


def escape_markdown(text: str) -> str:
    """Text that Markdown, and the HTML in it, shows literally, on one line."""
    plain = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _MARKDOWN.sub(r"\\\1", plain)


def escape_latex(text: str) -> str:
    """Text that LaTeX shows literally, on one line."""
    escaped = "".join(_LATEX.get(letter, letter) for letter in " ".join(text.split()))
    return escaped.replace("C\u0304", r"$\bar{\mathrm{C}}$")  # a letter and a bar of its own, which LaTeX does not know


def escape_csv(text: str) -> str:
    """Text that a spreadsheet does not take for a formula."""
    number = re.fullmatch(r"[+-]?[\d.]+(e[+-]?\d+)?", text)
    return text if number or not text.startswith(("=", "+", "-", "@", "\t", "\r")) else "'" + text


def percent(value: Estimate | None, digits: int = 2) -> str:
    """A fraction in per cent with half the width of its interval, which one seed alone has not."""
    return number(value, digits, 100)


def number(value: Estimate | None, digits: int, factor: float = 1) -> str:
    """A mean with half the width of its interval."""
    if value is None:
        return MISSING
    mean = f"{factor * value.mean:.{digits}f}"
    return mean if value.half_width is None else f"{mean}{PLUS_MINUS}{factor * value.half_width:.{digits}f}"


def show_p(p: float) -> str:
    """A p-value as far as two thousand draws tell."""
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def spaced(name: str) -> str:
    """A name, or several, in words."""
    return name.replace("_", " ")


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(escape_markdown(cell) for cell in cells) + " |"


def _latex_row(cells: Sequence[str]) -> str:
    return " & ".join(escape_latex(cell) for cell in cells) + r" \\"
