"""The documentation: its code runs, and so do the docstrings' examples."""

from __future__ import annotations

import ast
import doctest
import importlib
import re
import sys
from importlib.util import find_spec
from itertools import islice
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
SOURCE = ROOT / "src"
OPTIONAL = {"lvd/nets/molecules": "chemprop", "lvd/distributed.py": "ray"}
"""Which sources have examples that need an optional package."""

sys.path.append(str(DOCS / "_ext"))
from executed import BLOCK, execute, missing_package  # noqa: E402


def files_with(folder, pattern, found):
    """The files of which `found` is true, by their names inside the folder."""
    names = {path.relative_to(folder).as_posix(): path for path in folder.rglob(pattern)}
    return [name for name in sorted(names) if found(names[name].read_text(encoding="utf-8"))]


PAGES = files_with(DOCS, "*.md", BLOCK.search)
EXAMPLES = files_with(SOURCE, "*.py", lambda text: ">>> " in text)

quiet_ray = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:subprocess:ResourceWarning"),
]


def marked(names):
    return [
        # A cluster of their own takes the longest; tests/end_to_end/test_ray.py has the same calls in one.
        pytest.param(
            name, marks=[*quiet_ray, pytest.mark.slow] if "ray" in name or "distributed" in name else []
        )
        for name in names
    ]


@pytest.fixture
def short_training(monkeypatch):
    """Code runs as it is written, but networks and kernels are trained for a few batches only."""
    monkeypatch.setattr("lvd.nets.regressor.LEAST_BATCHES", 100)
    monkeypatch.setattr("lvd.kernels.mahalanobis.islice", lambda batches, n: islice(batches, min(n, 50)))
    monkeypatch.setattr("lvd.report.demo_fit.N_BATCHES", 30)  # tests/end_to_end/test_demo.py runs it whole


@pytest.mark.usefixtures("short_training")
@pytest.mark.parametrize("page", marked(PAGES))
def test_the_code_of_a_page_runs(page, tmp_path, monkeypatch):
    text = (DOCS / page).read_text(encoding="utf-8")
    if package := missing_package(text):
        pytest.skip(f"this page needs {package}")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    shown = execute(text, tmp_path)
    assert len(shown) > len(text)


def test_a_page_that_fails_says_where(tmp_path):
    with pytest.raises(ZeroDivisionError) as failure:
        execute("# Title\n\n```python\nx = 0\n1 / x\n```\n", tmp_path)
    assert failure.traceback[-1].lineno + 1 == 5
    with pytest.raises(RuntimeError, match=r"\$ lvd evaluate nothing here\.csv ended with 2"):
        execute("```console\n$ lvd evaluate nothing here.csv\n```\n", tmp_path)


@pytest.mark.usefixtures("short_training")
@pytest.mark.parametrize("name", marked(EXAMPLES))
def test_the_examples_of_the_docstrings_run(name):
    for folder, package in OPTIONAL.items():
        if name.startswith(folder) and find_spec(package) is None:
            pytest.skip(f"these examples need {package}")
    names = vars(
        importlib.import_module(name.removesuffix(".py").removesuffix("/__init__").replace("/", "."))
    )
    runner = doctest.DocTestRunner()
    for node in ast.walk(ast.parse((SOURCE / name).read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and (text := ast.get_docstring(node)):
            example = doctest.DocTestParser().get_doctest(text, dict(names), node.name, name, node.lineno)
            runner.run(example)
    assert runner.tries
    assert not runner.failures


def test_the_figures_of_the_readme_stand_on_the_pages_it_links_to():
    section = (
        (ROOT / "README.md").read_text(encoding="utf-8").split("## What was measured")[1].split("\n## ")[0]
    )
    claims = re.findall(r"((?:(?!\]\().)*)\]\((docs/\w+\.md)\)", section, re.DOTALL)
    assert len(claims) >= 3
    for said, page in claims:
        text = (ROOT / page).read_text(encoding="utf-8")
        for figure in re.findall(r"\*\*(.+?)\*\*", said):
            assert figure in text, f"the README says {figure}, {page} does not"
