"""The built-in trees: categories in one-hot columns and in frames, and missing numbers."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor

import lvd
from lvd.models.coding import MOST_CODES, one_hot_blocks, undo_one_hot
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
