"""The report page in a real browser: headless Chromium, offline."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from headless import chromium, needs_chromium

sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright to drive a browser")
pytestmark = [pytest.mark.apart, needs_chromium]
EVIL = "<script>alert(1)</script>"
HOSTILE = '"><img src=x onerror=alert(2)>'


@pytest.fixture(scope="module")
def report(lvd_here, homes, tmp_path_factory) -> Path:
    """A page with a column named like a script, and cells that try to be elements."""
    folder = tmp_path_factory.mktemp("browser")
    with homes.new.open(newline="") as file:
        header, *rows = csv.reader(file)
    with (folder / "new.csv").open("w", newline="") as file:
        csv.writer(file).writerows([[*header, EVIL], *([*row, HOSTILE] for row in rows)])
    options = ("--by", EVIL, "--by", "district", "--compare", "split", "--fitted-on", homes.table)
    outcome = lvd_here(
        *("report", homes.model, folder / "new.csv", "--target", "price", *options),
        *("--out", folder / "report.html"),
    )
    assert outcome.code == 0, outcome.err
    return folder / "report.html"


@pytest.fixture(scope="module")
def browser():
    with chromium(sync_api) as launched:
        yield launched


@pytest.fixture
def open_page(browser, report):
    """Open the page under conditions; whatever it complains of or asks for fails the test."""
    contexts, trouble = [], []

    def open_it(**conditions):
        context = browser.new_context(**({"viewport": {"width": 1280, "height": 900}} | conditions))
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: trouble.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: trouble.append(str(error)))
        page.on("dialog", lambda dialog: trouble.append(f"dialog: {dialog.message}"))
        page.on("request", lambda request: trouble.append(request.url) if request.url != url else None)
        page.goto(url)
        return page

    url = report.as_uri()
    yield open_it
    for context in contexts:
        context.close()
    assert trouble == []


def column(page, number):
    return page.locator(f"#table tr.row > :nth-child({number})").all_inner_texts()


def numbers(texts):
    return [float(text.replace(",", "").replace("\N{MINUS SIGN}", "-").replace("∞", "inf")) for text in texts]


def test_it_opens_without_errors_and_requests(open_page):
    page = open_page()
    assert page.title() == "Prediction intervals for price"
    assert page.locator("h1").inner_text() == "Prediction intervals for price"
    assert page.locator("#table tr.row").count() == 25
    assert page.locator("#count").inner_text() == "25 of 120 rows listed."
    assert page.locator("body").inner_text().count(EVIL) >= 1


def test_rows_are_sorted(open_page):
    page = open_page()
    errors = numbers(column(page, 7))
    assert errors == sorted(errors, reverse=True)
    heading = page.locator("th[data-key=width]")
    heading.get_by_role("button").click()
    assert heading.get_attribute("aria-sort") == "descending"
    assert page.locator("#table th[aria-sort]").count() == 1
    widths = numbers(column(page, 6))
    assert widths == sorted(widths, reverse=True)
    heading.get_by_role("button").press("Enter")
    assert heading.get_attribute("aria-sort") == "ascending"
    assert numbers(column(page, 6)) == sorted(numbers(column(page, 6)))


def test_more_rows_are_shown_on_demand(open_page):
    page = open_page()
    for _ in range(4):
        page.locator("#more").click()
    assert page.locator("#table tr.row").count() == 120
    assert page.locator("#more").is_hidden()


def test_rows_are_filtered(open_page):
    page = open_page()
    page.locator("#query").fill("district = old, town")
    n_old = page.locator("#count").inner_text()
    page.locator("#query").fill("OLD, town")
    assert page.locator("#count").inner_text() == n_old
    assert n_old.endswith("rows listed.")
    page.locator("#query").fill("error > 20")
    assert all(error > 20 for error in numbers(column(page, 7)))
    page.locator("#query").fill("")
    for status in ("missed", "infinite", "covered"):
        page.locator("#status").select_option(status)
        assert set(column(page, 10)) <= {status}
    page.locator("#status").select_option("")
    for known in ("yes", "no"):
        page.locator("#query").fill(f"known = {known}")
        assert set(column(page, 9)) <= {known}
    page.locator("#query").fill("no such text anywhere")
    assert page.locator("#count").inner_text() == "No row matches the filter."
    assert page.locator("#table tr.row").count() == 0


def test_a_click_opens_a_row_and_its_neighbours(open_page):
    page = open_page()
    row = page.locator("#table tr.row").nth(2)
    number = row.get_attribute("data-row")
    row.locator("td").nth(1).click()
    panel = page.locator("#panel")
    assert panel.locator("h3").inner_text() == f"Row {number}"
    assert "calibration row" in panel.locator("p.why").inner_text()
    assert panel.locator("tbody tr").count() == 8
    assert panel.get_by_role("img").get_attribute("aria-label").startswith("Interval from")
    assert panel.locator("dt", has_text=EVIL).count() == 1
    assert panel.locator("dd", has_text=HOSTILE).count() == 1
    assert page.locator("img").count() == 0
    row.locator("td").nth(1).click()
    assert panel.count() == 0


def test_molecules_are_drawn(lvd_here, homes, browser, tmp_path):
    pytest.importorskip("rdkit", reason="drawing molecules needs RDKit")
    header, *rows = homes.new.read_text().splitlines()
    (tmp_path / "new.csv").write_text("\n".join([f"{header},smiles", *(f"{row},CCO" for row in rows), ""]))
    outcome = lvd_here(
        *("report", homes.model, tmp_path / "new.csv", "--target", "price", "--smiles", "smiles"),
        *("--out", tmp_path / "report.html"),
    )
    assert outcome.code == 0, outcome.err
    page = browser.new_page()
    page.goto((tmp_path / "report.html").as_uri())
    page.locator("#table tr.row").first.click()
    image = page.locator("#panel img")
    assert image.get_attribute("alt").startswith("row ")
    assert image.evaluate("image => image.decode().then(() => image.naturalWidth)") == 180
    page.close()


def test_the_keyboard_opens_and_closes_a_row(open_page):
    page = open_page()
    button = page.locator("#table tr.row button").first
    button.focus()
    page.keyboard.press("Enter")
    button = page.locator("#table tr.row button").first
    assert button.get_attribute("aria-expanded") == "true"
    assert page.evaluate("document.activeElement.className") == "open"
    assert page.locator("#panel").is_visible()
    page.keyboard.press("Escape")
    assert page.locator("#panel").count() == 0
    page.keyboard.press("Tab")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"


def test_the_first_tab_skips_to_the_content(open_page):
    page = open_page()
    page.keyboard.press("Tab")
    assert page.locator(".skip").evaluate("link => link.getBoundingClientRect().left") >= 0
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"


def paper(page):
    return page.evaluate("getComputedStyle(document.body).backgroundColor")


def test_light_and_dark(open_page):
    light, dark = open_page(color_scheme="light"), open_page(color_scheme="dark")
    assert paper(light) != paper(dark)
    toggle = light.get_by_role("button", name="Dark mode")
    assert toggle.get_attribute("aria-pressed") == "false"
    toggle.click()
    assert toggle.get_attribute("aria-pressed") == "true"
    assert paper(light) == paper(dark)
    dark.get_by_role("button", name="Dark mode").click()
    assert paper(dark) != paper(light)


@pytest.mark.parametrize("width", [390, 320])
def test_a_phone_is_wide_enough(open_page, width):
    page = open_page(viewport={"width": width, "height": 844}, has_touch=True)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    page.locator("#table tr.row").first.tap()
    panel = page.locator("#panel .panel").bounding_box()
    assert panel["x"] >= 0
    assert panel["x"] + panel["width"] <= width
    assert page.evaluate("document.documentElement.scrollWidth") == width


def test_intervals_along_the_feature_that_is_chosen(open_page):
    page = open_page()
    shown = page.locator("[data-along]:visible svg")
    before = shown.get_attribute("aria-label")
    page.locator("#along").select_option(index=1)
    assert shown.count() == 1
    assert shown.get_attribute("aria-label") != before


def test_no_tile_is_alone_in_its_line(open_page):
    for width in (1280, 800, 390):
        page = open_page(viewport={"width": width, "height": 900})
        boxes = [one.bounding_box() for one in page.locator(".figures div").all()]
        tops = [round(box["y"]) for box in boxes]
        alone = [box for box in boxes if tops.count(round(box["y"])) == 1]
        whole = page.locator(".figures").bounding_box()["width"]
        assert all(box["width"] > 0.9 * whole for box in alone)


def test_static_parts_need_no_script(open_page):
    page = open_page(java_script_enabled=False)
    assert page.locator("#table tbody tr").count() == 20
    assert page.locator("svg.chart:visible").count() == 6
    assert page.locator("#filter").is_hidden()
    assert page.locator("#theme").is_hidden()
    assert page.locator(".verdict .sentence").inner_text().endswith(".")
    page.locator("summary").first.click()
    assert page.locator("details[open]").count() == 1
