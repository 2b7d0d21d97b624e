"""The book that a page and its files are printed from: for each group of series a chapter of tables and figures."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import final

from .._lib.files import make_folder, write_file
from .charts import figures_of, menus_of, training_figures
from .content import tables_of
from .figures import TITLE, Figure, Menu, resolve, write_figure
from .inputs import Group, Material, groups_of
from .tables import Table


@final
@dataclass(frozen=True)
class Chapter:
    """A group of series, its tables and its figures, by their short names."""

    prefix: str
    """Begins the names of its menus and figures, and of its files."""
    group: Group
    tables: Mapping[str, Table]
    menus: Sequence[Menu]
    figures: Mapping[str, Figure]


@final
@dataclass(frozen=True)
class Book:
    """A chapter for each group, and what the runs tell of their training."""

    material: Material
    chapters: Sequence[Chapter]
    training_menus: Sequence[Menu]
    training_figures: Sequence[Figure]

    @property
    def menus(self) -> list[Menu]:
        """The menus of all figures."""
        return [*(menu for chapter in self.chapters for menu in chapter.menus), *self.training_menus]

    @property
    def figures(self) -> list[Figure]:
        """The figures of all chapters, and of training."""
        return [*(figure for chapter in self.chapters for figure in chapter.figures.values()), *self.training_figures]


def compose(material: Material, baseline: str) -> Book:
    """Tables and figures of everything that was given."""
    groups = groups_of(material.records, baseline)
    chapters = [_chapter(group, f"g{i}") for i, group in enumerate(groups, 1)]
    order = list(dict.fromkeys(line.series.label for group in groups for line in group.lines))
    return Book(material, chapters, *training_figures(material.folders, order))


def write_files(book: Book, folder: Path) -> None:
    """Every table as Markdown, CSV and LaTeX, every figure as PNG, SVG and PDF, with what the page shows at first."""
    make_folder(folder)
    for chapter in book.chapters:
        for name, table in chapter.tables.items():
            texts = {"md": table.to_markdown(), "csv": table.to_csv(), "tex": table.to_latex()}
            for ending, text in texts.items():
                write_file(folder / f"{chapter.prefix}-{name}.{ending}", text.encode())
    menus = book.menus
    first = {menu.name: menu.first for menu in menus}
    for figure in book.figures:
        shown = [first[menu][0] for part in (figure.one, figure.minus) for menu in part.values()]
        title = {"text": figure.caption, "subtitle": " − ".join(shown)}
        write_figure(resolve(figure, menus) | {"title": title | TITLE}, folder, figure.name)


def _chapter(group: Group, prefix: str) -> Chapter:
    def menus_under(part: Mapping[str, str]) -> dict[str, str]:
        return {field: f"{prefix}-{menu}" for field, menu in part.items()}

    figures = {
        figure.name: replace(
            figure,
            name=f"{prefix}-{figure.name}",
            rows_of=figure.rows_of and f"{prefix}-{figure.rows_of}",
            one=menus_under(figure.one),
            several=menus_under(figure.several),
            minus=menus_under(figure.minus),
        )
        for figure in figures_of(group)
    }
    menus = [replace(menu, name=f"{prefix}-{menu.name}") for menu in menus_of(group)]
    return Chapter(prefix, group, tables_of(group), menus, figures)
