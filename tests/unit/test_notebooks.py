"""Frames of intervals, plots, and what a notebook shows of a fitted regressor."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import lvd
from lvd.calibration import GlobalConformal
from lvd.calibration.own_coverage import own_coverage
from lvd.engine import Queries, SortedRows, local_quantile


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(500, 2))
    return X, X[:, 0] + rng.normal(size=500) * (0.1 + np.abs(X[:, 1]))


@pytest.fixture(scope="module")
def reg(rows):
    X, y = rows
    return lvd.LVDRegressor("trees", random_state=0, confidence_level=[0.5, 0.9]).fit(X[:400], y[:400])


class TestFrames:
    def test_columns_are_named_by_the_level_and_hold_what_the_arrays_hold(self, reg, rows):
        X = np.concatenate([rows[0][400:], [[0.0, 50.0]]])
        frame = reg.predict_interval(X, [0.9, 0.999], as_frame=True)
        assert list(frame) == ["y_pred", "lower_90", "upper_90", "lower_99.9", "upper_99.9", "known"]
        y_pred, intervals = reg.predict_interval(X, [0.9, 0.999])
        np.testing.assert_array_equal(frame["y_pred"], y_pred)
        np.testing.assert_array_equal(frame[["lower_90", "upper_90"]], intervals[..., 0])
        np.testing.assert_array_equal(frame["known"], reg.predict_with_evidence(X).known)
        assert not frame["known"].iloc[-1]

    def test_the_index_of_a_frame_is_kept_and_of_a_list_there_is_none(self, rows):
        X = pd.DataFrame(rows[0], columns=["a", "b"])
        reg = lvd.SplitConformalRegressor("trees", random_state=0).fit(X, rows[1])
        frame = reg.predict_interval(X.iloc[5:8], as_frame=True)
        assert frame.index.tolist() == [5, 6, 7]
        assert list(frame) == ["y_pred", "lower_90", "upper_90"]
        plain = lvd.SplitConformalRegressor("trees", random_state=0).fit(rows[0], rows[1])
        assert plain.predict_interval(rows[0][:2].tolist(), as_frame=True).index.tolist() == [0, 1]

    def test_several_targets_are_numbered(self, rows):
        X, y = rows
        reg = lvd.SplitConformalRegressor("trees", random_state=0).fit(X, np.stack([y, -y], 1))
        names = list(reg.predict_interval(X[:3], as_frame=True))
        assert names == ["y_pred_0", "lower_90_0", "upper_90_0", "y_pred_1", "lower_90_1", "upper_90_1"]

    def test_without_pandas_the_error_says_what_to_do(self, reg, rows, monkeypatch):
        monkeypatch.setitem(__import__("sys").modules, "pandas", None)
        with pytest.raises(lvd.InputError, match=r"pip install pandas, or leave as_frame out"):
            reg.predict_interval(rows[0][:2], as_frame=True)


class TestCalibrationCoverage:
    def test_split_scores_are_covered_as_their_ranks_say(self):
        conformal = GlobalConformal().conformalize(np.empty((0, 0)), np.arange(19.0))
        assert own_coverage(conformal, ((0,), 0.9)) == 18 / 19

    def test_it_is_that_of_calibrations_without_the_row(self, reg):
        local = reg.calibrators_[0]
        rows, scores = local.calibration_.rows, local.calibration_.scores
        covered = []
        for row in range(len(scores)):
            others = np.arange(len(scores)) != row
            known = SortedRows.of(rows.points[others], scores[others, 0])
            point = rows.points[row : row + 1]
            query = Queries(point, bandwidths=local.bandwidths_at(point))
            radius = local_quantile(query, known, np.array([0.9])).radius
            covered.append(float(scores[row, 0]) <= float(radius))
        assert own_coverage(local, ((0,), 0.9)) == np.mean(covered)

    def test_levels_give_an_array_and_targets_columns(self, reg, rows):
        found = reg.calibration_coverage()
        assert found.shape == (2,)
        assert found[0] < found[1]
        assert 0.8 < reg.calibration_coverage(0.9) <= 1.0
        y = np.stack([rows[1], -rows[1]], 1)
        several = lvd.SplitConformalRegressor("trees", random_state=0).fit(rows[0], y)
        assert several.calibration_coverage([0.5, 0.9]).shape == (2, 2)


class TestNotebook:
    def test_a_fitted_regressor_shows_promise_sizes_and_coverage(self, reg):
        html = reg._repr_mimebundle_()["text/html"]
        for text in (reg.promise, "400 rows", "at level 0.9", "leave-one-out"):
            assert text in html
        assert "LVDRegressor" in html

    def test_one_that_is_not_fitted_or_not_calibrated_says_so(self, rows):
        fresh = lvd.SplitConformalRegressor("trees", calib_size=None, random_state=0)
        assert "promise" not in fresh._repr_html_()
        assert "call conformalize" in fresh.fit(*rows)._repr_html_()

    def test_a_method_without_calibration_rows_shows_its_promise(self, rows):
        jackknife = lvd.JackknifePlusRegressor("trees", cv=2, random_state=0).fit(*rows)
        assert jackknife.promise in jackknife._repr_html_()


class TestPlots:
    def test_intervals_draw_a_bar_for_each_finite_row_and_count_what_is_outside(self, reg, rows):
        X, y = np.concatenate([rows[0][400:], [[0.0, 50.0]]]), np.append(rows[1][400:], 0.0)
        axes = lvd.plot.intervals(reg, X, y, feature=1)
        _, ends = reg.predict_interval(X)
        assert len(axes.collections[0].get_segments()) == np.isfinite(ends[:, 0, 1]).sum()
        texts = [text.get_text() for text in axes.get_legend().get_texts()]
        assert f"infinite ({np.isinf(ends[:, 0, 1]).sum()})" in texts
        inside = (ends[:, 0, 1] <= y) & (y <= ends[:, 1, 1])
        assert f"inside ({inside.sum()})" in texts
        assert axes.get_xlabel() == "feature 1"

    def test_a_frame_names_the_feature(self, rows):
        X = pd.DataFrame(rows[0], columns=["a", "b"])
        split = lvd.SplitConformalRegressor("trees", random_state=0).fit(X, rows[1])
        assert lvd.plot.intervals(split, X[:50], feature="b").get_xlabel() == "b"
        with pytest.raises(lvd.InputError, match=r"feature must be a column of X, 'a', 'b', got 'c'"):
            lvd.plot.intervals(split, X[:50], feature="c")

    def test_calibration_draws_the_shares_that_are_covered(self, reg, rows):
        X, y = rows[0][400:], rows[1][400:]
        axes = lvd.plot.calibration(reg, X, y, confidence_level=[0.5, 0.9])
        _, ends = reg.predict_interval(X, [0.5, 0.9])
        shares = ((ends[:, 0] <= y[:, None]) & (y[:, None] <= ends[:, 1])).mean(axis=0)
        np.testing.assert_allclose(axes.lines[1].get_ydata(), shares)

    def test_width_and_error_joins_the_means_of_tenths(self, reg, rows):
        axes = lvd.plot.width_and_error(reg, rows[0][400:], rows[1][400:], confidence_level=0.9)
        (line,) = axes.lines
        assert len(line.get_xdata()) == 10
        assert (np.diff(line.get_xdata()) >= 0).all()

    def test_a_distribution_has_mass_of_at_most_one(self, reg, rows):
        axes = lvd.plot.distribution(reg, rows[0][400], y=0.3)
        values, edges, _ = axes.patches[0].get_data()
        assert 0.5 < float(values @ np.diff(edges)) <= 1.0
        assert "known" not in axes.get_legend().get_texts()[0].get_text()

    def test_of_an_unknown_row_nothing_is_known(self, reg):
        axes = lvd.plot.distribution(reg, [[0.0, 50.0]])
        assert axes.texts[0].get_text() == "nothing is known here"
        assert any("infinite" in text.get_text() for text in axes.get_legend().get_texts())

    def test_given_axes_are_used_and_several_targets_refused(self, reg, rows):
        axes = lvd.plot.calibration(reg, rows[0][400:], rows[1][400:])
        assert lvd.plot.width_and_error(reg, rows[0][400:], rows[1][400:], ax=axes) is axes
        several = lvd.SplitConformalRegressor("trees", random_state=0).fit(
            rows[0], np.stack([rows[1]] * 2, 1)
        )
        with pytest.raises(lvd.InputError, match="plots are of one target, and this model has 2"):
            lvd.plot.intervals(several, rows[0][:5])
        with pytest.raises(lvd.InputError, match="row must be one row of X, got 2"):
            lvd.plot.distribution(reg, rows[0][:2])
