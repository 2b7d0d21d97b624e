"""The page in a real browser: it opens, draws, answers and does no harm."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.records import HOSTILE, made_cells, made_domains, made_records, made_run

from pdeplus.reports.page import report

CHROMIUM = shutil.which("chromium")
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium")


def contrast(first: str, second: str) -> float:
    """As WCAG has it, of two colours like rgb(1, 2, 3)."""

    def light(colour: str) -> float:
        parts = [int(part) / 255 for part in colour.removeprefix("rgb(").removesuffix(")").split(",")]
        linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((light(first), light(second)))
    return (high + 0.05) / (low + 0.05)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


class Watched:
    """A page and all that went wrong in it."""

    def __init__(self, browser: Any, path: Path, **options: Any) -> None:
        self.context = browser.new_context(**options)
        self.page = self.context.new_page()
        self.troubles: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.troubles.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.troubles.append(str(error)))
        self.page.on("dialog", self._dialog)
        self.context.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.as_uri())
        self.wait(1)

    def _dialog(self, dialog: Any) -> None:
        self.troubles.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def wait(self, drawings: int) -> None:
        """Until the charts were drawn so often."""
        self.page.wait_for_function(f"Number(document.documentElement.dataset.drawn || 0) >= {drawings}")

    def cells(self, chart: str) -> list[str]:
        """The numbers printed in a heat map."""
        return self.page.locator(f"#{chart} svg g.mark-text.role-mark text").all_text_contents()

    def wide(self) -> int:
        """How far the page is wider than the window."""
        return self.page.evaluate("document.documentElement.scrollWidth - window.innerWidth")


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    records = made_records(seeds=2)
    runs = [
        made_run(folder / f"{name}-seed{seed}", [r for r in records if r.model == name and r.seed == seed])
        for name in ("ERM", "AugMix", "PDE+")
        for seed in range(2)
    ]
    noisy = made_cells("PDE+", 0.8, samples=10)
    return report([*runs, *noisy, *made_domains()], folder / "report.html")


@pytest.fixture
def watched(chromium: Any, file: Path) -> Iterator[Watched]:
    found = Watched(chromium, file, viewport={"width": 1280, "height": 900}, color_scheme="light")
    yield found
    found.context.close()


def test_opens_without_trouble_and_fetches_nothing(watched, file):
    assert watched.troubles == []
    assert [url for url in watched.requests if not url.startswith(("data:", "blob:"))] == [file.as_uri()]


def test_every_chart_is_drawn(watched):
    boxes = watched.page.locator(".chart")
    assert boxes.count() == 13
    for i in range(boxes.count()):
        assert boxes.nth(i).locator("svg.marks, canvas").count() == 1, boxes.nth(i).get_attribute("id")


def test_menus_change_heat_map_and_difference(watched):
    heat, difference = watched.cells("g1-heat"), watched.cells("g1-difference")
    assert len(heat) == len(difference) == 75
    watched.page.locator("[data-menu=g1-first]").select_option(label="AugMix")
    watched.wait(2)
    assert watched.cells("g1-heat") != heat
    after = watched.cells("g1-difference")
    assert after != difference
    watched.page.locator("[data-menu=g1-second]").select_option(label="AugMix")
    watched.wait(3)
    assert {float(text) for text in watched.cells("g1-difference")} == {0.0}
    assert watched.troubles == []


def test_numbers_in_cells_are_readable(watched):
    """Contrast of at least 4.5 between every number and its cell."""
    pairs = watched.page.evaluate(
        """["g1-heat", "g1-difference"].flatMap((name) => {
            const all = (kind) => [...document.querySelectorAll(`#${name} svg g.mark-${kind}.role-mark > *`)];
            const texts = all("text");
            return all("rect").map((cell, i) => [getComputedStyle(cell).fill, getComputedStyle(texts[i]).fill]);
        })"""
    )
    assert len(pairs) == 150
    for cell, text in pairs:
        assert contrast(cell, text) >= 4.5


def test_tick_boxes_choose_the_lines(watched):
    legend = watched.page.locator("#g1-severity svg g.role-legend-label text")
    assert set(legend.all_text_contents()) == {"PDE+ E=10", "PDE+", "AugMix", "ERM"}
    ticks = watched.page.locator("#severity [data-menu=g1-lines]")
    ticks.locator("summary").click()
    ticks.get_by_label("AugMix").uncheck()
    watched.wait(2)
    assert set(legend.all_text_contents()) == {"PDE+ E=10", "PDE+", "ERM"}
    other = watched.page.locator("#calibration [data-menu=g1-lines]")
    assert not other.get_by_label("AugMix").is_checked()  # the same choice wherever it stands
    assert "3 of 4" in (other.locator("summary").text_content() or "")


def test_theme_button_changes_page_and_charts(watched):
    def colours() -> tuple[str, str]:
        ground = watched.page.evaluate("getComputedStyle(document.body).backgroundColor")
        label = watched.page.locator("#g1-severity svg g.role-axis-label text").first
        return ground, label.get_attribute("fill")

    light = colours()
    watched.page.locator("#theme").click()
    watched.wait(2)
    dark = colours()
    assert light[0] != dark[0]
    assert light[1] != dark[1]


def test_dark_is_taken_from_the_system(chromium, file):
    found = Watched(chromium, file, color_scheme="dark")
    assert found.page.evaluate("document.documentElement.dataset.theme") == "dark"
    found.context.close()


def test_tables_are_sorted_by_click_and_by_key(watched):
    table = watched.page.locator("#g1-summary")
    names = table.locator("tbody th")
    header = table.locator("thead th").nth(2)
    before = names.all_text_contents()
    assert before == ["PDE+ E=10", "PDE+", "AugMix", "ERM"]
    header.locator("button").click()
    assert header.get_attribute("aria-sort") == "descending"
    assert names.all_text_contents() == before
    header.locator("button").focus()
    watched.page.keyboard.press("Enter")
    assert header.get_attribute("aria-sort") == "ascending"
    assert names.all_text_contents() == before[::-1]
    watched.page.keyboard.press("Space")
    assert names.all_text_contents() == before


@pytest.mark.parametrize("width", [360, 390, 768, 1366])
def test_neither_page_nor_table_scrolls_sideways(chromium, file, width):
    found = Watched(chromium, file, viewport={"width": width, "height": 768})
    assert found.wide() == 0
    boxes = "[...document.querySelectorAll('.scroll')]"
    assert found.page.evaluate(f"Math.max(...{boxes}.map((box) => box.scrollWidth - box.clientWidth))") == 0
    shown = found.page.locator("#g1-summary thead th:visible").all_text_contents()
    assert len(shown) >= 3  # the name, clean and corrupted
    found.page.locator("#severity [data-menu=g1-lines] summary").click()
    assert found.wide() == 0
    found.context.close()


def test_the_first_columns_answer_and_a_key_shows_the_rest(watched):
    shown = watched.page.locator("#g1-summary thead th:visible")
    titles = [text.replace("\u00a0", " ") for text in shown.all_text_contents()]
    assert titles == ["series", "clean", "corrupted (15 × 5)", "mCE", "severity 5: accuracy", "ECE, corrupted", "seeds"]
    button = watched.page.locator("[aria-controls=g1-summary]")
    assert (button.text_content(), button.get_attribute("aria-expanded")) == ("Show all 13 columns", "false")
    button.focus()
    watched.page.keyboard.press("Enter")
    assert (shown.count(), button.get_attribute("aria-expanded")) == (13, "true")
    watched.page.keyboard.press("Space")
    assert (shown.count(), button.get_attribute("aria-expanded")) == (7, "false")
    assert not watched.page.locator("[aria-controls=g1-families]").is_visible()  # nothing to unfold


def test_the_keyboard_reaches_all_that_can_be_used_and_shows_where_it_is(watched):
    page = watched.page
    usable = "a[href], main button:not([hidden]), #theme, select, summary, .ticks[open] input"
    wanted = page.evaluate(f"[...document.querySelectorAll({usable!r})].filter((e) => e.checkVisibility()).length")
    met = page.evaluate("window.met = new Set(), 0")
    for _ in range(wanted + 20):
        page.keyboard.press("Tab")
        state = page.evaluate(
            """(() => { const at = document.activeElement, style = getComputedStyle(at); window.met.add(at);
            return [at.tagName, style.outlineStyle, parseFloat(style.outlineWidth), window.met.size]; })()"""
        )
        if state[0] == "BODY":
            break
        assert state[1] != "none", state
        assert state[2] >= 1, state
        met = state[3]
    assert met >= wanted


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_paper_is_light_and_has_everything_unfolded(chromium, file, scheme):
    found = Watched(chromium, file, color_scheme=scheme)
    found.page.emulate_media(media="print", color_scheme=scheme)
    found.page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    found.wait(2 if scheme == "dark" else 1)
    assert found.page.locator("#g1-summary thead th:visible").count() == 13
    assert found.page.evaluate("document.querySelectorAll('main details:not(.vega-embed *, [open])').length") == 0
    repeated = "(name) => getComputedStyle(document.querySelector('thead th' + name))"  # a sheet repeats no other head
    assert found.page.evaluate(f"({repeated})('').position + ({repeated})(' button').display") == "staticcontents"
    assert not found.page.locator("nav, .fold, #theme").filter(visible=True).count()
    ground, text = found.page.evaluate(
        "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]"
    )
    assert contrast(ground, "rgb(255, 255, 255)") < 1.1
    label = found.page.locator("#g1-severity svg g.role-axis-label text").first.get_attribute("fill")
    assert contrast(f"rgb{tuple(bytes.fromhex(label[1:]))}", ground) > 4.5 < contrast(text, ground)
    found.page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert found.page.evaluate("document.documentElement.dataset.theme") == scheme
    assert found.page.locator("#samples details:not([open])").count() > 0
    found.context.close()


def test_hostile_names_are_shown_and_do_nothing(chromium, tmp_path):
    records = made_records(HOSTILE, seeds=1) + made_cells("ERM", 0.1, machine=HOSTILE[0], command=HOSTILE[2])
    folders = [
        made_run(tmp_path / f"run{i}", [r for r in records if r.model == name]) for i, name in enumerate(HOSTILE)
    ]
    more = made_domains(HOSTILE, data=HOSTILE[0], origin=HOSTILE[2])
    title = HOSTILE[2]
    out = report([*folders, *records, *more], tmp_path / "report.html", title=title)
    found = Watched(chromium, out)
    page = found.page
    assert page.title() == title
    assert page.locator("h1").text_content() == title
    assert page.locator("img[src=x]").count() == 0
    assert page.evaluate("document.scripts.length") == 3
    names = page.locator("#g1-summary tbody th").all_text_contents()
    assert set(names) == {*HOSTILE, "ERM"}
    for i, name in enumerate(HOSTILE):
        page.locator("[data-menu=g1-first]").select_option(label=name)
        found.wait(i + 2)
    legend = page.locator("#g1-severity svg g.role-legend-label text").all_text_contents()
    assert set(HOSTILE) <= set(legend)
    points = page.locator("#g1-cost svg g.mark-symbol.role-mark path")
    for i in range(points.count()):  # the tooltips, too
        points.nth(i).hover()
        page.wait_for_selector("#vg-tooltip-element.visible")
        assert page.locator("#vg-tooltip-element :is(img, script)").count() == 0
    assert found.troubles == []
    assert [url for url in found.requests if not url.startswith(("data:", "blob:"))] == [out.as_uri()]
    found.context.close()


def test_a_hundred_series_stay_usable(chromium, tmp_path):
    names = [f"method {i}" for i in range(99)]
    out = report(made_records([*names, "ERM"], seeds=1, n=100), tmp_path / "report.html")
    found = Watched(chromium, out, viewport={"width": 390, "height": 844})
    legend = found.page.locator("#g1-severity svg g.role-legend-label text").all_text_contents()
    assert len(legend) == 8
    assert "ERM" in legend
    assert found.wide() == 0
    assert found.troubles == []
    found.context.close()
