"""Of more calibration rows than `max_calibration_rows` a uniform draw calibrates."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binomtest
from sklearn.linear_model import Ridge

import lvd
from lvd import InputError
from lvd.calibration.calibration_rows import drawn_rows
from lvd.engine import conformal_quantile
from lvd.scores.score import EvaluatedRows
from lvd.tables.inputs import Prepared
from lvd.wrap import as_model

LEVEL, SURE = 0.9, 1e-6
KERNEL = lvd.MahalanobisKernel(2, max_iter=20, random_state=0)


def rows_of(seed, n_rows=400):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n_rows, 3))
    return X, X[:, 0] + (0.2 + (X[:, 1] > 0)) * rng.normal(size=n_rows)


def fitted(most=None, score="absolute", **settings):
    """Not calibrated yet."""
    given = {"kernel": KERNEL, "conformity_score": score, "random_state": 0, "calib_size": None}
    return lvd.LVDRegressor(Ridge(), max_calibration_rows=most, **(given | settings)).fit(*rows_of(0))


class TestWhichRowsAreDrawn:
    def test_all_where_there_are_no_more(self):
        assert drawn_rows(10, None, 0) is None
        assert drawn_rows(10, 10, 0) is None
        assert drawn_rows(10, 9, 0).tolist() == sorted(set(drawn_rows(10, 9, 0).tolist()))
        assert len(drawn_rows(10, 9, 0)) == 9

    def test_each_row_as_often_as_any_other(self):
        counts = np.zeros(20)
        for seed in range(2000):
            counts[drawn_rows(20, 5, seed)] += 1
        assert all(binomtest(int(count), 2000, 0.25).pvalue > SURE for count in counts)

    def test_of_each_group_as_many_and_small_ones_whole(self):
        groups = np.random.default_rng(0).permutation(np.repeat(["large", "small", "middle"], [80, 3, 20]))
        some = drawn_rows(103, 10, 0, groups)
        names, counts = np.unique(groups[some], return_counts=True)
        assert dict(zip(names.tolist(), counts.tolist(), strict=True)) == {
            "large": 10,
            "middle": 10,
            "small": 3,
        }
        assert (np.diff(some) > 0).all()
        assert drawn_rows(103, 80, 0, groups) is None, "no group has more"

    def test_of_a_group_each_row_as_often_as_any_other(self):
        groups, counts = np.repeat([1, 2], [12, 30]), np.zeros(42)
        for seed in range(2000):
            counts[drawn_rows(42, 6, seed, groups)] += 1
        assert all(binomtest(int(count), 2000, 0.5).pvalue > SURE for count in counts[:12])
        assert all(binomtest(int(count), 2000, 0.2).pvalue > SURE for count in counts[12:])

    def test_groups_are_checked_first(self):
        with pytest.raises(InputError, match="groups must be all text or all numbers"):
            drawn_rows(3, 1, 0, ["a", None, "b"])


class TestTheLevelIsKept:
    """A table is often sorted, so that its first rows are not like the others. Each trial has one new row."""

    N_TRIALS, N_ROWS, MOST = 4000, 150, 39

    def covered(self, draw):
        hits = 0
        for trial in range(self.N_TRIALS):
            scores = np.random.default_rng([7, trial]).exponential(size=self.N_ROWS + 1)
            known = np.sort(scores[:-1])
            radius = conformal_quantile(known[draw(trial, known)], np.array([LEVEL]))[0]
            hits += int(scores[-1] <= radius)
        return hits

    def test_by_rows_that_are_drawn(self):
        hits = self.covered(lambda trial, known: drawn_rows(len(known), self.MOST, trial))
        assert binomtest(hits, self.N_TRIALS, LEVEL).pvalue > SURE  # 40 * 0.9 is whole: the level is exact

    @pytest.mark.parametrize("broken", [slice(39), slice(20, 59)])
    def test_and_not_by_rows_that_come_first_or_in_the_middle(self, broken):
        hits = self.covered(lambda trial, known: np.arange(len(known))[broken])
        assert binomtest(hits, self.N_TRIALS, LEVEL, alternative="less").pvalue < SURE


class TestARegressor:
    def test_none_calibrates_by_all_rows_as_before(self):
        X, y = rows_of(1)
        every, bounded = (fitted(most).conformalize(X, y) for most in (None, 400))
        assert every.n_calib_ == bounded.n_calib_ == 400
        np.testing.assert_array_equal(every.predict_interval(X)[1], bounded.predict_interval(X)[1])

    def test_the_rows_that_are_drawn_alone_calibrate(self):
        X, y = rows_of(1)
        some, new = drawn_rows(400, 90, 0), rows_of(2)[0]
        bounded, given = fitted(90).conformalize(X, y), fitted().conformalize(X[some], y[some])
        assert bounded.n_calib_ == 90
        np.testing.assert_array_equal(bounded.y_calib_, given.y_calib_)
        np.testing.assert_array_equal(bounded.predict_interval(new)[1], given.predict_interval(new)[1])

    def test_another_seed_draws_others(self):
        X, y = rows_of(1)
        first, same, other = (fitted(90, random_state=seed).conformalize(X, y) for seed in (0, 0, 1))
        np.testing.assert_array_equal(first.y_calib_, same.y_calib_)
        assert set(first.y_calib_[:, 0]) != set(other.y_calib_[:, 0])

    def test_the_rows_set_aside_by_fit(self):
        X, _ = rows_of(1)
        reg = fitted(30, calib_size=0.5)
        assert (reg.n_calib_, len(reg.train_digests_)) == (30, 200)
        whole = fitted(calib_size=0.5)
        assert set(reg.y_calib_[:, 0]) < set(whole.y_calib_[:, 0])
        assert np.isfinite(reg.predict_interval(X)[1]).all(axis=(1, 2)).mean() > 0.5

    def test_groups_and_weights_go_with_their_rows(self):
        X, y = rows_of(1)
        groups = np.where(X[:, 2] > 0.9, "rare", "usual")
        reg = fitted(50).conformalize(X, y, groups=groups, weights=2.0 + X[:, 2], max_weight=3.0)
        known = reg.calibrators_[0].calibration_.rows
        assert known.groups.tolist().count("usual") == 50
        assert known.groups.tolist().count("rare") == (groups == "rare").sum() < 50
        some = drawn_rows(400, 50, 0, groups)
        np.testing.assert_array_equal(known.weights.numpy(), 2.0 + X[some, 2])

    def test_cross_validated_errors(self):
        X, _ = rows_of(0)
        settings = {"calibration": "cross", "calib_size": "auto"}
        scaled = lvd.scores.ScaledResidual(("boosted",))
        whole, drawn = (fitted(most, scaled, **settings) for most in (None, 90))
        assert (whole.n_calib_, drawn.n_calib_, len(drawn.train_digests_)) == (400, 90, 400)
        some = drawn_rows(400, 90, 0)
        for name in ("y_calib_", "residuals_calib_", "units_calib_", "signed_calib_", "digests_calib_"):
            np.testing.assert_array_equal(getattr(drawn, name), getattr(whole, name)[some])
        rest = whole.calibrators_[0].calibration_.scores[some]
        np.testing.assert_array_equal(drawn.calibrators_[0].calibration_.scores, rest)
        assert drawn.predict_interval(X[:5])[1].shape == (5, 2, 1)

    def test_rows_that_come_later_all_count(self):
        X, y = rows_of(1)
        more = rows_of(3, 120)
        reg = fitted(90).conformalize(X, y)
        first = reg.y_calib_.copy()
        reg.update(*more)
        assert reg.n_calib_ == 210
        np.testing.assert_array_equal(reg.y_calib_[:, 0], np.append(first[:, 0], more[1]))
        some, new = drawn_rows(400, 90, 0), rows_of(2)[0]
        given = fitted(bandwidth=1.0).conformalize(X[some], y[some]).update(*more)
        both = fitted(90, bandwidth=1.0).conformalize(X, y).update(*more)
        np.testing.assert_array_equal(both.predict_interval(new)[1], given.predict_interval(new)[1])
        reg.forget(100)
        np.testing.assert_array_equal(reg.y_calib_[:, 0], more[1][-100:])
        assert reg.conformalize(X, y).n_calib_ == 90, "a new calibration draws again"

    def test_a_saved_model_keeps_it(self, tmp_path):
        X, y = rows_of(1)
        reg = fitted(90).conformalize(X, y)
        reg.save(tmp_path / "model")
        loaded = lvd.load(tmp_path / "model")
        assert (loaded.max_calibration_rows, loaded.n_calib_) == (90, 90)
        np.testing.assert_array_equal(loaded.predict_interval(X)[1], reg.predict_interval(X)[1])
        assert loaded.conformalize(X, y).n_calib_ == 90

    @pytest.mark.parametrize("most", [0, -3, 2.5, "all"])
    def test_what_is_no_number_of_rows_is_refused(self, most, unchecked_types):
        with pytest.raises(InputError, match="max_calibration_rows must be a positive integer"):
            fitted(most)


def test_rows_of_molecules_go_with_their_cells(unchecked_types):
    cells, y, parts = np.array(list("abcdef")), np.arange(6.0), ([0, 1], [2, 4, 5], [3])
    rows = Prepared(None, y, y, tuple(map(np.array, parts)), np.arange(11, 17), cells=cells)
    drawn, calib, labels = rows.calibrated_by(np.array([0, 2]), np.array(["x", "y", "z"]))
    assert (calib.tolist(), labels.tolist(), drawn.n_spared) == ([2, 5], ["x", "z"], 1)
    assert [part.tolist() for part in drawn.parts] == [[0, 1], [2, 5], [3]]
    assert (drawn.kept.calibration.tolist(), drawn.kept.test.tolist()) == ([13, 16], [14])
    assert drawn.kept.cells == ("c", "f")
    same, calib, labels = rows.calibrated_by(None, None)
    assert same is rows
    assert (calib.tolist(), labels) == ([2, 4, 5], None)


def test_some_of_evaluated_rows():
    X, y = rows_of(0)
    model = as_model(Ridge(), random_state=0)
    model.fit(X, y[:, None])
    rows = EvaluatedRows(X, model.evaluate(X), unknown=X[:, 0] > 0)
    some = rows[np.array([3, 8])]
    for part, whole in ((some.y_pred, rows.y_pred), (some.inputs, X), (some.unknown, rows.unknown)):
        np.testing.assert_array_equal(part, whole[[3, 8]])
    assert rows[np.array([3])].evaluation.quantiles is None
