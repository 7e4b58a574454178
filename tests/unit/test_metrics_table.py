from __future__ import annotations

import numpy as np
import pytest

from lvd import InputError, metrics

INF = np.inf


@pytest.fixture
def case(rng):
    y, y_pred = rng.normal(size=50), rng.normal(size=50)
    narrow = np.stack([y_pred - 1, y_pred + 1], axis=1)
    wide = np.tile([-INF, INF], (50, 1))
    return y, y_pred, np.stack([narrow, wide], axis=2)


def test_a_row_per_level_holds_what_the_functions_give(case):
    y, y_pred, intervals = case
    table = metrics.summary(y, y_pred, intervals, [0.5, 0.9])
    narrow = intervals[:, :, 0]
    assert table.rows[0] == {
        "confidence_level": 0.5,
        "marginal_coverage_rate": metrics.marginal_coverage_rate(y, narrow),
        "tail_coverage_rate": metrics.tail_coverage_rate(y, narrow),
        "residual_auroc": metrics.residual_auroc(y, y_pred, narrow),
        "mean_absolute_deviation": metrics.mean_absolute_deviation(y, y_pred),
        "mean_finite_width": metrics.mean_finite_width(narrow),
        "finite_fraction": metrics.finite_fraction(narrow),
    }


def test_the_text_is_aligned_in_percent_with_a_dash_for_the_undefined(case):
    text = str(metrics.summary(*case, [0.5, 0.9])).splitlines()
    assert text[0].split() == ["level", "MCR", "TCR", "AUROC", "MAD", "width", "finite"]
    assert len({len(line) for line in text}) == 1
    assert text[2].split()[1:4] == ["100.0%", "100.0%", "50.0%"]
    assert text[2].split()[5:] == ["-", "0.0%"]


def test_the_rows_become_a_data_frame(case):
    pytest.importorskip("pandas")
    frame = metrics.summary(*case, [0.5, 0.9]).to_pandas()
    assert frame["finite_fraction"].tolist() == [1.0, 0.0]


def test_one_level_may_be_a_number(case):
    y, y_pred, intervals = case
    assert len(metrics.summary(y, y_pred, intervals[:, :, 0], 0.5).rows) == 1


def test_levels_must_match_the_intervals(case):
    with pytest.raises(InputError, match="must name every level of intervals, got 1 for 2"):
        metrics.summary(*case, [0.9])


def test_every_public_name_is_exported_and_documented():
    assert sorted(metrics.__all__) == metrics.__all__
    for name in metrics.__all__:
        assert getattr(metrics, name).__doc__, name
