"""Which columns make a row's interval wide: against values known by hand, and known noise."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression

import lvd
from lvd.methods.attribution import ColumnShare, mix, shapley_values, told
from lvd.methods.lvd import LVDRegressor


def of_pool(pool, function):
    """The function of mixed rows of this pool, whose first row is the one that is explained."""
    return lambda mixtures: function(pool[mixtures, np.arange(pool.shape[1])])[:, None]


class TestShapleyValues:
    POOL = np.random.default_rng(0).normal(size=(11, 3))

    def test_of_a_sum_they_are_the_differences_to_the_mean(self):
        weights = np.array([1.0, -2.0, 0.0])
        found = shapley_values(of_pool(self.POOL, lambda rows: rows @ weights), 3, 10, n_orders=20)[:, 0]
        np.testing.assert_allclose(found, weights * (self.POOL[0] - self.POOL[1:].mean(axis=0)))

    def test_columns_that_act_together_share_alike(self):
        pool = np.zeros((2, 3))
        pool[0] = 1.0
        found = shapley_values(of_pool(pool, lambda rows: 6.0 * rows[:, 0] * rows[:, 1]), 3, 1)[:, 0]
        np.testing.assert_allclose(found, [3.0, 3.0, 0.0])

    def test_they_add_up(self):
        value = of_pool(self.POOL, lambda rows: np.exp(rows).prod(axis=1) + rows[:, 0] ** 2)
        found, every = shapley_values(value, 3, 10, n_orders=10), np.arange(11)[:, None] * np.ones(3, int)
        np.testing.assert_allclose(found.sum(), value(every)[0, 0] - value(every)[1:].mean())


def test_a_mixed_frame_keeps_its_types():
    frame = pd.DataFrame(
        {"a": [1, 2, 3], "b": pd.Categorical(["x", None, "y"]), "c": pd.to_datetime(["2024-01-01"] * 3)}
    )
    mixed = mix(frame[:1], frame[1:], [("a", [0]), ("b", [1]), ("c", [2])], np.array([[0, 2, 1], [1, 0, 0]]))
    assert mixed["a"].tolist() == [1, 2]
    assert mixed["b"].tolist() == ["y", "x"]
    assert mixed.dtypes.tolist() == frame.dtypes.tolist()


def test_the_sentence():
    shares = [
        ColumnShare("town", 3.0),
        ColumnShare("age", 0.5),
        ColumnShare("area", 1.2),
        ColumnShare("id", 1.05),
    ]
    wider, narrower = (
        "wider because of town (3 times) and area (1.2 times)",
        "narrower because of age (0.5 times)",
    )
    assert told(shares) == f"Compared with other rows it is {wider}, and {narrower}."
    assert told(shares[-1:]) is None


def noisy_towns(n, seed):
    """The mean depends on `a` alone, the size of the errors on `town`: 1 in the north, else 0.1."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {"a": rng.uniform(-3, 3, n), "town": rng.choice(["north", "south"], n), "z": rng.normal(size=n)}
    )
    return frame, (
        3.0 * frame["a"] + np.where(frame["town"] == "north", 1.0, 0.1) * rng.normal(size=n)
    ).rename("y")


@pytest.fixture(scope="module")
def fitted():
    frame, y = noisy_towns(800, 0)
    reg = lvd.LVDRegressor("trees", device="cpu", random_state=0).fit(frame, y)
    return reg, frame, y


def shares_of(reg, frame):
    north = frame[frame["town"] == "north"][:1]
    (one,) = reg.explain(north, background=frame[:200])
    return one, {share.column: share.times for share in one.shares}


class TestKnownNoise:
    def test_the_town_makes_it_wide(self, fitted):
        one, times = shares_of(*fitted[:2])
        assert one.shares[0].column == "town"
        assert max(abs(np.log(times["a"])), abs(np.log(times["z"]))) < 0.5 * np.log(times["town"])
        assert "wider because of town" in one.sentence

    def test_what_moves_the_prediction_would_name_another(self, fitted, monkeypatch):
        monkeypatch.setattr(LVDRegressor, "_log_widths", lambda self, X, level: self.predict(X)[:, None])
        one, _ = shares_of(*fitted[:2])
        assert one.shares[0].column == "a"

    def test_of_arrays_and_without_rows_to_compare_with(self, fitted):
        reg, frame, y = fitted
        X = np.column_stack([frame["a"], frame["town"] == "north"]).astype(float)
        of_array = lvd.LVDRegressor(LinearRegression(), device="cpu", random_state=0).fit(X, y)
        (one,) = of_array.explain([[0.0, 1.0]], background=X[:100])
        assert one.shares[0].column == "x2"
        # Half of the others are from the south, where errors are a tenth: the root of 10.
        assert 2.2 < one.shares[0].times < 4.5
        assert 0.75 < one.shares[1].times < 1.33
        assert reg.explain(frame[:1])[0].shares == ()
        assert reg.explain(frame[:1], background=frame[:9])[0].shares == ()

    def test_one_width_for_all_has_no_columns(self, fitted):
        _, frame, y = fitted
        same = lvd.LVDRegressor("trees", conformity_score="absolute", random_state=0).fit(frame[["a"]], y)
        assert same.explain(frame[["a"]][:1], background=frame[["a"]])[0].shares == ()
