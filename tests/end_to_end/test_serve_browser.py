"""The page of a served model in a real browser: headless Chromium."""

from __future__ import annotations

import pytest

from headless import chromium, needs_chromium
from serving import listening

sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright to drive a browser")

pytestmark = [pytest.mark.apart, needs_chromium]
EVIL = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def browser():
    with chromium(sync_api) as launched:
        yield launched


@pytest.fixture(scope="module")
def address(homes):
    with listening(homes.model, fitted_on=homes.table) as one:
        yield one


@pytest.fixture
def open_page(browser, address):
    """Open the page under conditions; whatever it complains of or asks of others fails the test."""
    contexts, trouble = [], []

    def open_it(url=address, **conditions):
        context = browser.new_context(**({"viewport": {"width": 1100, "height": 900}} | conditions))
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: trouble.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: trouble.append(str(error)))
        page.on("dialog", lambda dialog: trouble.append(f"dialog: {dialog.message}"))
        page.on("request", lambda one: None if one.url.startswith(url) else trouble.append(one.url))
        page.goto(url)
        return page

    yield open_it
    for context in contexts:
        context.close()
    refused = "Failed to load resource: the server responded with a status of 4"
    assert [one for one in trouble if refused not in one] == []


def ask(page):
    page.locator("#go").click()
    page.wait_for_selector(".answer")
    return page.locator(".answer")


def test_the_form_has_usual_values_and_gets_an_interval(open_page):
    page = open_page()
    page.get_by_label("area").wait_for()
    assert page.locator("h1").inner_text() == "Prediction intervals for price"
    assert 90 < float(page.get_by_label("area").input_value()) < 140
    assert page.get_by_label("district").locator("option").all_inner_texts()[1:] == [
        "north",
        "old, town",
        "south",
    ]
    answer = ask(page)
    assert answer.locator(".badge").inner_text() == "known"
    prediction, low, high = (float(text.replace(",", "")) for text in answer.locator("dd").all_inner_texts())
    assert low < prediction < high
    interval, distribution = answer.get_by_role("img").all()
    assert interval.get_attribute("aria-label").startswith(f"Interval from {low:g} to {high:g}")
    assert distribution.get_attribute("aria-label").startswith("Distribution from")
    assert "calibration rows" in answer.locator("p.why").inner_text()
    assert answer.locator("tbody tr").count() == 10
    assert answer.locator("thead th").all_inner_texts()[-4:] == ["area", "rooms", "district", "garden"]
    answer.locator("summary").click()
    assert "/predict?level=0.9" in answer.locator("pre").inner_text()


def test_levels_are_nested_and_unknown_rows_infinite(open_page):
    page = open_page()
    page.get_by_label("Level").select_option("0.5")
    widths = []
    for level in ("0.5", "0.9"):
        page.get_by_label("Level").select_option(level)
        _, low, high = ask(page).locator("dd").all_inner_texts()
        widths.append(float(high) - float(low))
        page.evaluate("document.querySelector('.answer').remove()")
    assert widths[0] < widths[1]
    page.get_by_label("area").fill("5000")
    answer = ask(page)
    assert answer.locator(".badge").inner_text() == "unknown"
    assert answer.locator("dd").all_inner_texts()[1:] == ["\N{MINUS SIGN}∞", "∞"]
    assert "area is outside the range" in answer.locator("p.why").inner_text()


def test_what_is_refused_is_said(open_page):
    page = open_page()
    page.get_by_label("area").fill(EVIL)
    page.locator("#go").click()
    refused = page.locator("#refused")
    refused.wait_for()
    assert refused.inner_text().startswith(
        "column 'area': must be a number, got '<img src=x onerror=alert(1)>'"
    )
    assert page.locator("img").count() == 0
    page.get_by_label("area").fill("100")
    ask(page)
    assert refused.is_hidden()


def paper(page):
    return page.evaluate("getComputedStyle(document.body).backgroundColor")


def test_dark_mode(open_page):
    light, dark = open_page(color_scheme="light"), open_page(color_scheme="dark")
    assert paper(light) != paper(dark)
    light.get_by_role("button", name="Dark mode").click()
    assert paper(light) == paper(dark)


@pytest.mark.parametrize("width", [390, 320])
def test_a_phone_is_wide_enough(open_page, width):
    page = open_page(viewport={"width": width, "height": 844}, has_touch=True)
    page.locator("#go").tap()
    page.wait_for_selector(".answer")
    assert page.evaluate("document.documentElement.scrollWidth") == width


def test_a_token_is_asked_for(open_page, homes):
    with listening(homes.model, token="right") as address:
        page = open_page(address)
        page.locator("#token").wait_for()
        assert page.locator("#ask").is_hidden()
        for token in ("wrong", "right"):
            page.locator("#token").fill(token)
            page.get_by_role("button", name="Use it").click()
        ask(page)
        assert page.locator("#locked").is_hidden()
