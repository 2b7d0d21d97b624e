"""All that a report holds, before it becomes a page or files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

from . import charts
from .content import several_passes, tables_of
from .groups import Group, groups_of
from .inputs import Material
from .specs import Figure, Menu
from .tables import Table
from .training import training_figures


@final
@dataclass(frozen=True)
class Chapter:
    """A group of series, its tables and its figures."""

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
        """Of all figures."""
        return [*(menu for chapter in self.chapters for menu in chapter.menus), *self.training_menus]

    @property
    def figures(self) -> list[Figure]:
        """All."""
        return [*(figure for chapter in self.chapters for figure in chapter.figures.values()), *self.training_figures]


def compose(material: Material, baseline: str) -> Book:
    """Tables and figures of everything that was given."""
    groups = groups_of(material.records, baseline)
    chapters = [_chapter(group, f"g{i}") for i, group in enumerate(groups, 1)]
    order = list(dict.fromkeys(line.series.label for group in groups for line in group.lines))
    return Book(material, chapters, *training_figures(material.folders, order))


def _chapter(group: Group, prefix: str) -> Chapter:
    return Chapter(prefix, group, tables_of(group), charts.menus_of(group, prefix), _figures(group, prefix))


def _figures(group: Group, prefix: str) -> dict[str, Figure]:
    """Those that have something to show."""
    made = dict[str, Figure]()
    if group.suite == "corruptions":
        made |= {"heat": charts.heat_map(group, prefix), "severity": charts.severity_lines(group, prefix)}
        if len(group.lines) > 1:
            made["difference"] = charts.difference_map(group, prefix)
    if group.suite == "domains":
        made["domains"] = charts.domain_dots(group, prefix)
    if group.suite == "adversarial":
        made["epsilon"] = charts.epsilon_lines(group, prefix)
    made |= {"reliability": charts.reliability(group, prefix), "cost": charts.cost_scatter(group, prefix)}
    if several_passes(group):
        made |= {score: charts.passes(group, prefix, score) for score in (group.main_score, "ece")}
    return {name: figure for name, figure in made.items() if figure.rows}
