"""From intervals to metrics, against figures worked out by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from experiments.paper.collect import METRICS, measure_results, read_results
from experiments.paper.methods import MAIN_VARIANT, VARIANTS
from experiments.paper.result_store import Result, failure_of, write_result
from experiments.paper.runs import BenchRun
from lvd._validation import InputError

Y = np.arange(10.0)


def result(method: str, radius: list[float], *, protocol: str = "sound", y_pred: float = 0.25) -> Result:
    """Ten rows with y = 0..9, one level, and intervals of these radii around ``y + y_pred``."""
    run = BenchRun(protocol, "yacht", method, 0, (0.9,))
    centre = Y + y_pred
    intervals = np.stack([centre - radius, centre + radius], axis=1)[:, :, None]
    return Result(run, np.arange(10), Y, centre[:, None], intervals, 2.0)


def test_metrics_by_hand():
    # The error is 0.25 everywhere: rows 0 and 5 are missed, row 9 is infinite. The tails are rows 0 and 9.
    radius = [0.2, 1.0, 1.0, 1.0, 1.0, 0.2, 1.0, 1.0, 1.0, math.inf]
    (row,) = measure_results([result("split", radius)])
    assert (row.MCR, row.TCR) == (80.0, 50.0)
    assert row.MAD == 0.25
    assert row.finite_count == 9
    assert row.finite_tail == 50.0
    assert row.width == pytest.approx(2 * (2 * 0.2 + 7 * 1.0) / 9)
    assert math.isnan(row.width_lvd)
    assert math.isnan(row.width_variants)
    assert (row.n_test, row.seconds, row.error) == (10, 2.0, "")


def test_restricted_widths_are_over_the_rows_where_others_are_finite():
    radii = {name: [1.0] * 10 for name in VARIANTS}
    radii[MAIN_VARIANT] = [1.0] * 8 + [math.inf] * 2
    radii["LVD-KR-smooth-base"] = [math.inf] + [1.0] * 9
    radii["split"] = list(range(1, 11))
    rows = {
        row.method: row for row in measure_results([result(name, radius) for name, radius in radii.items()])
    }
    assert rows["split"].width == pytest.approx(2 * np.mean(range(1, 11)))
    assert rows["split"].width_lvd == pytest.approx(2 * np.mean(range(1, 9)))
    assert rows["split"].width_variants == pytest.approx(2 * np.mean(range(2, 9)))
    assert rows[MAIN_VARIANT].width_lvd == 2.0


def test_a_y_exactly_at_the_end_is_missed_under_the_paper_protocol_only():
    at_the_end = [0.5] * 10
    (open_ends,) = measure_results([result("split", at_the_end, protocol="paper", y_pred=0.5)])
    (closed_ends,) = measure_results([result("split", at_the_end, protocol="sound", y_pred=0.5)])
    assert (open_ends.MCR, closed_ends.MCR) == (0.0, 100.0)
    (no_width,) = measure_results([result("split", [0.0] * 10, protocol="paper", y_pred=0.0)])
    assert no_width.MCR == 0.0


def test_a_failure_has_no_figures_and_hides_no_other():
    failed = failure_of(BenchRun("sound", "yacht", MAIN_VARIANT, 0, (0.9,)), "InputError: no", 0.5)
    rows = measure_results([failed, result("split", [1.0] * 10)])
    assert math.isnan(rows[0].MCR)
    assert (rows[0].error, rows[0].n_test) == ("InputError: no", 0)
    assert math.isnan(rows[1].width_lvd)
    assert rows[1].MCR == 100.0


def test_the_compact_table_is_read_back(tmp_path):
    rows = measure_results(
        [result("split", [1.0] * 10), failure_of(BenchRun("paper", "bike", "DJ", 1), "a, b\nc", 0.5)]
    )
    path = tmp_path / "small.csv"
    METRICS.write(rows, path)
    back = METRICS.read_file(path)
    assert [row.dataset for row in back] == ["bike", "bike", "yacht"]
    expected = sorted(rows, key=lambda row: (row.protocol, row.confidence_level))
    for ours, theirs in zip(back, expected, strict=True):
        assert repr(replace(ours, width=0.0)) == repr(replace(theirs, width=0.0))
    assert read_results(path)[-1].width == pytest.approx(2.0)


def test_a_folder_of_results_is_read_like_its_table(tmp_path):
    write_result(tmp_path, result("split", [1.0] * 10))
    assert read_results(tmp_path)[0].MCR == 100.0


def test_a_folder_of_tables_is_read_as_one(tmp_path):
    METRICS.write(measure_results([result("split", [1.0] * 10)]), tmp_path / "a.csv")
    METRICS.write(measure_results([result("CQR", [1.0] * 10)]), tmp_path / "b.csv")
    (tmp_path / "other.csv").write_bytes(b"\xff\xfe,rows\n")
    assert [row.method for row in read_results(tmp_path)] == ["split", "CQR"]
    METRICS.write(measure_results([result("CQR", [2.0] * 10)]), tmp_path / "c.csv")
    with pytest.raises(InputError, match=r"every run must be in the tables of .* once, but .*'CQR', 0, 0\.9"):
        read_results(tmp_path)


@pytest.mark.parametrize("text", ["colour\nred\n", "protocol,dataset\npaper,yacht\n"])
def test_another_table_is_refused(tmp_path, text):
    path = tmp_path / "other.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=r"is not a table of results .*with: python -m experiments collect"):
        METRICS.read_file(path)
    with pytest.raises(InputError, match="is not a table of results"):
        METRICS.read_file(tmp_path / "missing.csv")
