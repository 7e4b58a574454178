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


def test_inputs_add_the_excess_risk(rng):
    X = rng.uniform(size=(800, 1))
    y = rng.normal(size=800) * np.where(X[:, 0] < 0.2, 3, 1)
    intervals = np.tile([[-2.0], [2.0]], (800, 1, 1))
    (row,) = metrics.summary(y, np.zeros(800), intervals, 0.9, X=X).rows
    expected = metrics.excess_risk_of_target_coverage(X, y, intervals, 0.9).total
    assert row["excess_risk_of_target_coverage"] == expected > 0.05
    assert "ERT" in str(metrics.summary(y, np.zeros(800), intervals, 0.9, X=X))
    assert "ERT" not in str(metrics.summary(y, np.zeros(800), intervals, 0.9))


def test_several_targets_have_a_row_each(rng):
    y = rng.normal(size=(50, 2))
    intervals = np.tile(np.array([[-1.0, -2.0], [1.0, 2.0]])[None, :, :, None], (50, 1, 1, 2))
    table = metrics.summary(y, np.zeros((50, 2)), intervals, [0.5, 0.9])
    assert [(row["target"], row["confidence_level"]) for row in table.rows] == [
        (0, 0.5),
        (0, 0.9),
        (1, 0.5),
        (1, 0.9),
    ]
    alone = metrics.summary(y[:, 1], np.zeros(50), intervals[..., 1], [0.5, 0.9])
    assert [dict(row) for row in table.rows[2:]] == [{"target": 1, **row} for row in alone.rows]
    assert list(table.to_pandas()["target"]) == [0, 0, 1, 1]


def test_shapes_of_several_targets_are_checked():
    with pytest.raises(InputError, match=r"y of shape \(4, 2\) needs y_pred of the same shape"):
        metrics.summary(np.zeros((4, 2)), np.zeros((4, 2)), np.zeros((4, 2, 1)), 0.9)


def test_with_distributions(case):
    """The figures are over the rows of which something is known."""
    y, y_pred, intervals = case

    class Known:
        def crps(self, y):
            return np.where(np.arange(len(y)) < 40, np.abs(y), np.nan)

        def pit(self, y):
            return np.where(np.arange(len(y)) < 40, np.linspace(0.01, 0.99, len(y)), 0.5)

    row, _ = metrics.summary(y, y_pred, intervals, [0.5, 0.9], distribution=Known()).rows
    assert row["crps"] == pytest.approx(np.abs(y[:40]).mean())
    assert row["pit_p_value"] == metrics.pit_histogram(np.linspace(0.01, 0.99, 50)[:40]).p_value
