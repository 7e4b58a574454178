"""The built-in trees: categories in one-hot columns and in frames, and missing numbers."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import TargetEncoder

import lvd
from lvd.models.coding import MOST_CODES, one_hot_blocks, undo_one_hot
from lvd.models.level_coding import TargetCoding
from lvd.models.trees import TreeEnsemble

N = 400
RNG = np.random.default_rng(0)
LEVELS = RNG.integers(0, 6, N)
NUMBERS = RNG.normal(size=(N, 2))
Y = np.array([3.0, -2.0, 0.0, 5.0, -4.0, 1.0])[LEVELS] + NUMBERS[:, 0] + 0.1 * RNG.normal(size=N)
ONE_HOT = np.column_stack([NUMBERS[:, 0], np.eye(6)[LEVELS], NUMBERS[:, 1]])
FRAME = pd.DataFrame(
    {"a": NUMBERS[:, 0], "level": pd.Categorical([f"level {n}" for n in LEVELS]), "b": NUMBERS[:, 1]}
)


def trees(**settings):
    return lvd.TreesRegressor(max_iter=10, random_state=0, **settings)


def many_levels(rng, effects, n):
    city, x = rng.integers(0, len(effects), n), rng.normal(size=(n, 2))
    names = np.array([f"city {number}" for number in range(len(effects))])
    frame = pd.DataFrame({"a": x[:, 0], "city": pd.Categorical(names[city], categories=names), "b": x[:, 1]})
    return frame, effects[city] + x[:, 0] + 0.5 * x[:, 0] * x[:, 1] + 0.3 * rng.normal(size=n)


class TestBlocks:
    def test_side_by_side(self):
        first, second = np.eye(3)[RNG.integers(0, 3, 50)], np.eye(4)[RNG.integers(0, 4, 50)]
        X = np.column_stack([RNG.normal(size=50), first, second, RNG.integers(0, 2, 50)])
        assert one_hot_blocks(X) == [(1, 4), (4, 8)]
        codes = undo_one_hot(X, [(1, 4), (4, 8)])
        np.testing.assert_array_equal(codes[:, :2], np.stack([first.argmax(1), second.argmax(1)], axis=1))
        np.testing.assert_array_equal(codes[:, 2:], X[:, [0, 8]])

    def test_a_row_of_no_level(self):
        codes = undo_one_hot(np.array([[0.0, 0.0, 0.0], [0.0, 0.0, 1.0]]), [(0, 3)])
        np.testing.assert_array_equal(codes, [[np.nan], [2.0]])

    @pytest.mark.parametrize(
        "X",
        [
            np.eye(2)[RNG.integers(0, 2, 30)],  # a threshold cuts two levels as well
            np.eye(MOST_CODES + 1),
            (RNG.random((200, 3)) < 0.05).astype(float),
            np.eye(3)[RNG.integers(0, 3, 30)] * 2.0,
            np.full((5, 3), np.nan),
        ],
    )
    def test_no_blocks(self, X):
        assert one_hot_blocks(X) == []
        assert undo_one_hot(X, []) is X


class TestTreesOfCategories:
    def test_the_same_bits_as_scikit_learn(self):
        code = RNG.integers(0, 40, N).astype(float)
        code[code == 7.0] = 8.0  # a level that no row has
        code[::17] = np.nan
        X = np.column_stack([code, LEVELS, NUMBERS])
        X[::5, 3] = np.nan
        model = HistGradientBoostingRegressor(max_iter=20, min_samples_leaf=5, categorical_features=[0, 1])
        model.fit(X, Y + np.nan_to_num(code) % 3)
        new = X.copy()
        new[:3, 0] = [7.0, 60.0, np.nan]
        np.testing.assert_array_equal(TreeEnsemble.of(model).predict(new), model.predict(new))

    def test_one_hot_columns_are_cut_by_sets(self):
        net = trees().fit(ONE_HOT, Y)
        assert net.blocks_ == [(1, 7)]
        own = np.column_stack([LEVELS, NUMBERS]).astype(float)
        expected = HistGradientBoostingRegressor(max_iter=10, categorical_features=[0], random_state=0)
        np.testing.assert_array_equal(net.predict(ONE_HOT), expected.fit(own, Y).predict(own))
        np.testing.assert_array_equal(net.embed(ONE_HOT)[:, :-1], ONE_HOT)

    def test_frames_say_the_same(self):
        net = trees().fit(FRAME, Y)
        np.testing.assert_array_equal(net.predict(FRAME), trees().fit(ONE_HOT, Y).predict(ONE_HOT))
        new = FRAME[:1].assign(level="never seen")
        assert np.isfinite(net.predict(new)).all()
        with pytest.raises(lvd.InputError, match="X has 2 columns, but had 3 in fit"):
            net.predict(FRAME[["a", "level"]])

    def test_frames_of_numbers_are_matrices(self):
        numbers = FRAME[["a", "b"]]
        assert isinstance(trees().check(numbers), np.ndarray)
        np.testing.assert_array_equal(
            trees().fit(numbers, Y).predict(numbers), trees().fit(NUMBERS, Y).predict(NUMBERS)
        )

    def test_missing_numbers(self):
        X = NUMBERS.copy()
        X[::4, 0] = np.nan
        net = trees().fit(X, Y)
        expected = HistGradientBoostingRegressor(max_iter=10, random_state=0)
        flagged = np.column_stack([X[:, 0], np.isnan(X[:, 0]), X[:, 1]])
        np.testing.assert_array_equal(net.predict(X), expected.fit(flagged, Y).predict(flagged))
        assert net.embed(X).shape == (N, 4)
        with pytest.raises(lvd.InputError, match="infinity"):
            net.predict(np.full((1, 2), np.inf))

    @pytest.mark.parametrize("n_levels", [30, 40, 200, 1000])
    def test_as_good_as_scikit_learn(self, n_levels):
        """With native categories, and beyond 255, which it refuses, with its own mean targets."""
        rng = np.random.default_rng(n_levels)
        frame, y = many_levels(rng, rng.normal(size=n_levels) * 2.0, 4000)
        train, test = slice(0, 2000), slice(2000, None)
        own = (
            lvd.TreesRegressor(max_iter=100, random_state=0).fit(frame[train], y[train]).predict(frame[test])
        )
        best = HistGradientBoostingRegressor(categorical_features="from_dtype", random_state=0)
        if n_levels > 255:
            encoder = make_column_transformer((TargetEncoder(), ["city"]), remainder="passthrough")
            best = make_pipeline(encoder, best)
        theirs = best.fit(frame[train], y[train]).predict(frame[test])
        assert np.abs(own - y[test]).mean() < 1.05 * np.abs(theirs - y[test]).mean()

    def test_mean_targets_are_learned_without_the_row_itself(self):
        rng = np.random.default_rng(0)
        frame, _ = many_levels(rng, np.zeros(1000), 2000)
        y = rng.normal(size=2000)  # which nothing tells
        net = trees().fit(frame, y)
        fresh, _ = many_levels(rng, np.zeros(1000), 2000)
        assert np.var(net.predict(fresh)) < 0.1
        coding, own = TargetCoding.fit(net.means_.codes, frame, y[:, None], 0)
        assert abs(np.corrcoef(own[:, 0], y)[0, 1]) < 0.1
        assert np.corrcoef(coding(frame)[:, 0], y)[0, 1] > 0.3  # what learning with the row itself would give

    def test_several_targets_some_missing(self, tmp_path):
        rng = np.random.default_rng(0)
        frame, y = many_levels(rng, rng.normal(size=60), 400)
        both = np.column_stack([y, -y])
        both[::3, 1] = np.nan
        net = trees().fit(frame, both)
        y_pred = net.predict(frame)
        assert y_pred.shape == (400, 2)
        assert np.corrcoef(y_pred[:, 1], -y)[0, 1] > 0.6
        assert np.isfinite(net.predict(frame.assign(city="never seen"))).all()

    @pytest.mark.parametrize("kind", ["frame", "array"])
    def test_intervals(self, kind, tmp_path):
        X = FRAME.copy()
        X.loc[::4, "a"] = np.nan
        rows = X if kind == "frame" else X[["a", "b"]].to_numpy()
        reg = lvd.LVDRegressor(
            trees(), kernel=lvd.MahalanobisKernel(2, max_iter=5), device="cpu", random_state=0
        ).fit(rows[:300], Y[:300])
        y_pred, intervals = reg.predict_interval(rows[300:])
        assert not np.isnan(intervals).any()
        reg.save(tmp_path / "model")
        for found, expected in zip(
            lvd.load(tmp_path / "model").predict_interval(rows[300:]), (y_pred, intervals), strict=True
        ):
            np.testing.assert_array_equal(found, expected)


class TestDefault:
    """`LVDRegressor()` on a frame as it is."""

    @pytest.fixture(scope="class")
    @classmethod
    def fitted(cls):
        rng = np.random.default_rng(1)
        frame, y = many_levels(rng, rng.normal(size=8) * 3.0, 300)
        frame.loc[::9, "a"] = np.nan
        return frame, y, lvd.LVDRegressor(device="cpu", random_state=0).fit(frame, y)

    def test_it_chooses_between_both_models(self, fitted):
        frame, _, reg = fitted
        assert set(reg.choice_) == {"net", "trees"}
        assert max(reg.choice_.values()) < 0.9
        assert np.isfinite(reg.predict_interval(frame)[1]).mean() > 0.9

    def test_new_levels_and_values_out_of_range_are_unknown(self, fitted):
        frame, _, reg = fitted
        new = pd.concat([frame[:3].assign(city="city 99"), frame[1:4].assign(b=50.0), frame[4:7]])
        found = reg.predict_with_evidence(new)
        np.testing.assert_array_equal(found.known[:6], False)
        assert np.isinf(found.intervals[:6]).all()
        assert "no training row has 'city 99'" in reg.explain(new[:1])[0].sentence

    @pytest.mark.parametrize("estimator", ["net", "trees"])
    def test_either_is_saved(self, fitted, tmp_path, estimator):
        frame, y, _ = fitted
        reg = lvd.LVDRegressor(estimator, device="cpu", random_state=0).fit(frame, y)
        reg.save(tmp_path / "model")
        loaded = lvd.load(tmp_path / "model")
        np.testing.assert_array_equal(loaded.predict_interval(frame)[1], reg.predict_interval(frame)[1])
