"""The documentation site builds without a warning, with all public names and commands."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import lvd

pytestmark = pytest.mark.apart
DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The built site; the pages' code is run by other tests."""
    if find_spec("sphinx") is None:
        pytest.skip("needs the extra docs")
    folder = tmp_path_factory.mktemp("site")
    command = [
        "-W",
        "--keep-going",
        "-E",
        "-q",
        "-b",
        "html",
        "-d",
        folder / "doctrees",
        "-D",
        "run_blocks=0",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", *command, DOCS, folder / "html"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder / "html"


def test_every_public_name_has_an_entry(site):
    from sphinx.util.inventory import InventoryFile

    inventory = InventoryFile.loads((site / "objects.inv").read_bytes(), uri="")
    described = {
        name for kind, entries in inventory.data.items() if kind.startswith("py:") for name in entries
    }
    modules = {"lvd": lvd} | {
        f"lvd.{name}": getattr(lvd, name) for name in ("calibration", "data", "metrics", "scores")
    }
    public = {(called, name) for called, module in modules.items() for name in module.__all__}
    missing = {
        f"{called}.{name}" for called, name in public if not {f"{called}.{name}", f"lvd.{name}"} & described
    } - {"lvd.__version__"}
    assert not missing


def test_every_command_has_a_section(site):
    page = (site / "cli.html").read_text(encoding="utf-8")
    for command in ("fit", "predict", "evaluate", "explain", "report", "demo", "data-export"):
        assert f'id="lvd-{command}"' in page


def test_generated_pages_are_part_of_the_site(site):
    for name in ("reproduction", "baselines", "speed", "growth"):
        assert (site / f"{name}.html").exists()


FROM_ELSEWHERE = re.compile(
    r"""<(?:script|img|iframe|source)[^>]+src=["'](?:https?:)?//|<link[^>]+rel=["'](?!canonical)[^>]+href=["'](?:https?:)?//"""
)


def test_pages_load_nothing_from_the_network(site):
    assert FROM_ELSEWHERE.search('<script async src="https://cdn.example/x.js">')
    assert FROM_ELSEWHERE.search('<link rel="stylesheet" href="//fonts.example/x.css">')
    pages = list(site.rglob("*.html"))
    assert len(pages) > 30
    assert not [page.name for page in pages if FROM_ELSEWHERE.search(page.read_text(encoding="utf-8"))]
    for style in site.rglob("*.css"):
        assert not re.search(r"url\(['\"]?(?:https?:)?//", style.read_text(encoding="utf-8")), style.name


def test_notebooks_are_there_to_take_away(site):
    pages = {page.stem for page in (DOCS / "notebooks").glob("*.md")} - {"index"}
    assert len(pages) == 6
    assert {file.stem for file in (site / "notebooks").glob("*.ipynb")} == pages
    for name in pages:
        assert f'<a href="{name}.ipynb" download>' in (site / "notebooks" / f"{name}.html").read_text()
