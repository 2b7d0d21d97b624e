"""The theory page in a real browser: it opens, draws, follows its sliders and loads nothing."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.theory_run import made_surfaces

from pdeplus.theory.run import page_text

CHROMIUM = shutil.which("chromium")
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium")


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "theory.html"
    figures = dict.fromkeys(("surfaces", "agreement", "orders", "smoothness", "corollary"), b"\x89PNG")
    path.write_text(page_text(made_surfaces(), [], figures), "utf-8")
    return path


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def opened(chromium: Any, file: Path) -> Iterator[tuple[Any, list[str], list[str]]]:
    context = chromium.new_context(viewport={"width": 1280, "height": 900}, color_scheme="light")
    page, troubles, requests = context.new_page(), [], []
    page.on("console", lambda message: troubles.append(message.text))
    page.on("pageerror", lambda error: troubles.append(str(error)))
    context.on("request", lambda request: requests.append(request.url))
    page.goto(file.as_uri())
    page.wait_for_function("Number(document.documentElement.dataset.drawn || 0) >= 1")
    yield page, troubles, requests
    context.close()


def picture(page: Any, name: str) -> str:
    return page.evaluate(f"document.getElementById('{name}').toDataURL()")


def test_opens_without_trouble_and_fetches_nothing(opened, file):
    page, troubles, requests = opened
    assert troubles == []
    assert [url for url in requests if not url.startswith("data:")] == [file.as_uri()]
    assert page.locator("section h2").first.text_content() == "One velocity field, four diffusions"
    assert page.locator("section img[src='data:image/png;base64,iVBORw==']").count() == 5


def test_keys_move_the_sliders_and_the_pictures_follow(opened):
    page, troubles, _ = opened
    for slider, changed in (("sigma", ("map", "relief")), ("time", ("map", "relief")), ("turn", ("relief",))):
        before, shown = {name: picture(page, name) for name in changed}, page.locator(f"#{slider}-value").text_content()
        page.locator(f"#{slider}").focus()
        page.keyboard.press("ArrowRight")
        assert page.locator(f"#{slider}-value").text_content() != shown
        assert all(picture(page, name) != before[name] for name in changed)
    assert troubles == []


def test_adaptive_diffusion_is_a_switch(opened):
    page, _, _ = opened
    before, told = picture(page, "map"), page.locator("#told").text_content()
    page.get_by_label("Adaptive diffusion").focus()
    page.keyboard.press("Space")
    assert page.locator("#sigma").is_disabled()
    assert page.locator("#sigma-value").text_content() == "σ(x)"
    assert "Learnt σ(x)" in page.locator("#told").text_content()
    assert picture(page, "map") != before
    page.keyboard.press("Space")
    assert (picture(page, "map"), page.locator("#told").text_content()) == (before, told)


def test_at_the_end_the_map_is_the_output_function(opened):
    """u(x, 1) = sigmoid(4x₁): blue on the left, orange on the right, whatever σ."""
    page, _, _ = opened
    page.locator("#time").focus()
    page.keyboard.press("End")
    code = "(x) => [...document.getElementById('map').getContext('2d').getImageData(x, 5, 1, 1).data].slice(0, 3)"
    assert page.evaluate(code, 20) == pytest.approx([0, 114, 178], abs=3)
    assert page.evaluate(code, 540) == pytest.approx([213, 94, 0], abs=3)


@pytest.mark.parametrize("width", [360, 768])
def test_a_phone_need_not_scroll_sideways(chromium, file, width):
    context = chromium.new_context(viewport={"width": width, "height": 800}, color_scheme="dark")
    page = context.new_page()
    page.goto(file.as_uri())
    assert page.evaluate("document.documentElement.scrollWidth - window.innerWidth") == 0
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 24, 29)"
    context.close()
