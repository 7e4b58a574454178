"""A real browser for the tests of pages: headless Chromium."""

from __future__ import annotations

import shutil
from contextlib import contextmanager

import pytest

CHROMIUM = shutil.which("chromium")
FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"),
    *("--disable-sync", "--no-first-run"),
)
needs_chromium = pytest.mark.skipif(
    CHROMIUM is None, reason="needs the browser chromium, from the system's packages"
)


@contextmanager
def chromium(sync_api):
    """The browser, closed at the end."""
    with sync_api.sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield launched
        launched.close()
