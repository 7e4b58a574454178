"""Depths in the distribution of an error, and the score that learns this distribution at each row."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import lvd
from lvd.engine.quantiles import pinball
from lvd.models import Evaluation, Model
from lvd.models.trees import QuantileTrees
from lvd.scores import distributional, quantile_trees
from lvd.scores.distributional import (
    COARSE,
    GRID,
    MIDDLE,
    BoundDistribution,
    ErrorShape,
    depth_of,
    error_at,
    kept_apart,
)
from lvd.scores.quantile_trees import boosted_quantiles
from lvd.scores.score import BoundResidual

UNIFORM = (100.0 * GRID)[None]
"""Quantiles of errors that are uniform on 0 to 100."""
LEVELS = np.array([0.5, 0.9])


def column(*numbers):
    return np.array(numbers, dtype=float)[:, None]


def bound_to(quantiles, y_pred=10.0, below=2.0, above=2.0):
    """One row and target, its error in these units and with these quantiles."""
    units = column(below), column(above)
    residual = BoundResidual(column(y_pred), (units[0] + units[1]) / 2.0, *units)
    return BoundDistribution(residual.y_pred, residual.unit, residual, (quantiles,))


class TestDepth:
    @pytest.mark.parametrize(
        ("z", "depth"),
        [
            (50.0, 0.0),
            (25.0, -1.0),
            (75.0, 1.0),
            (12.5, -2.0),
            (87.5, 2.0),
            (1.0, np.log2(0.02)),
            # The tail is a fifth for each 4: as from the quantile of 5% to that of 1%.
            (-3.0, np.log2(0.004)),
            (103.0, -np.log2(0.004)),
        ],
    )
    def test_by_hand(self, z, depth):
        assert depth_of(np.array([z]), UNIFORM)[0] == pytest.approx(depth)
        assert error_at(np.array([[depth]]), UNIFORM)[0, 0] == pytest.approx(z)

    def test_what_is_not_known_or_infinite(self):
        assert np.isnan(depth_of(np.array([np.nan]), UNIFORM)[0])
        np.testing.assert_array_equal(error_at(np.array([[-np.inf, np.inf]]), UNIFORM), [[-np.inf, np.inf]])

    @given(
        arrays(float, (1, len(GRID)), elements=st.floats(-5, 5)),
        st.lists(st.floats(-30, 30), min_size=2, max_size=8, unique=True),
    )
    def test_there_and_back_whatever_the_quantiles(self, quantiles, depths):
        """Also where quantiles are equal or in no order."""
        apart = kept_apart(quantiles, 1e-3)
        assert (np.diff(apart) > 0.0).all()
        t = np.sort(depths)
        z = error_at(t[None], apart)[0]
        found = depth_of(z, np.repeat(apart, len(z), axis=0))
        np.testing.assert_allclose(found, t, atol=1e-7)
        assert (np.diff(z) >= 0.0).all()
        far = np.diff(t) > 1e-6
        assert (np.diff(z)[far] > 0.0).all()

    def test_quantiles_far_enough_apart_stay(self):
        np.testing.assert_allclose(kept_apart(UNIFORM, 1.0), UNIFORM)
        tied = kept_apart(np.zeros((1, len(GRID))), 0.5)
        np.testing.assert_allclose(tied, 0.5 * (np.arange(len(GRID)) - MIDDLE)[None])


class TestBound:
    def test_by_hand(self):
        """Quantiles -50 to 50, in units of 2: an error of 50 is at 75%."""
        bound = bound_to(UNIFORM - 50.0)
        assert bound(column(60.0)).item() == pytest.approx(1.0)
        assert bound.signed(column(-40.0)).item() == pytest.approx(-1.0)
        assert bound.targets_at(np.array([[[-1.0], [1.0]]])).ravel() == pytest.approx([-40.0, 60.0])
        assert bound.intervals(np.full((1, 1, 1, 1), 1.0), LEVELS[:1]).ravel() == pytest.approx([-40.0, 60.0])

    def test_units_of_their_own_below_and_above(self):
        bound = bound_to(UNIFORM - 50.0, below=1.0, above=3.0)
        assert bound.targets_at(np.array([[[-1.0], [1.0]]])).ravel() == pytest.approx([-15.0, 85.0])
        assert bound.signed(column(85.0)).item() == pytest.approx(1.0)

    def test_intervals_hold_the_prediction_and_an_empty_set_shrinks_to_it(self):
        biased = bound_to(UNIFORM)
        radius = np.array([-np.inf, -1.0, 0.0, 1.0, np.inf]).reshape(1, 1, -1, 1)
        ends = biased.intervals(radius, np.linspace(0.1, 0.9, 5))[0, :, :, 0]
        np.testing.assert_allclose(ends[0], [10.0, 10.0, 10.0, 10.0, -np.inf])
        np.testing.assert_allclose(ends[1], [10.0, 10.0, 110.0, 160.0, np.inf])

    @given(
        arrays(float, (1, len(GRID)), elements=st.floats(-5, 5)),
        st.floats(-20, 20),
        st.lists(st.floats(0, 20), min_size=2, max_size=5).map(sorted),
    )
    def test_nested_and_just_what_scores_at_most_the_radius(self, quantiles, y, radii):
        bound = bound_to(kept_apart(quantiles, 1e-3), 0.0, 1.0, 1.0)
        lower, upper = bound.intervals(np.array(radii).reshape(1, 1, -1, 1), np.zeros(len(radii)))[0, ..., 0]
        assert (np.diff(lower) <= 0.0).all()
        assert (np.diff(upper) >= 0.0).all()
        assert (lower <= 0.0).all()
        assert (upper >= 0.0).all()
        score = bound(column(y)).item()
        for radius, low, high in zip(radii, lower, upper, strict=True):
            if score < radius - 1e-6:
                assert low <= y <= high
            if low <= y <= high:  # or it is between them and the prediction
                ends = bound.targets_at(np.array([[[-radius], [radius]]])).ravel()
                assert score <= radius + 1e-6 or not ends[0] <= y <= ends[1]

    @pytest.mark.parametrize(
        ("quantiles", "remark"),
        [
            (UNIFORM - 50.0, None),
            (UNIFORM, "The model predicts about 100 too low here."),
            (UNIFORM / 50.0 - 3.0, "The model predicts about 4 too high here."),
            (UNIFORM - 35.0, "Errors above the prediction are about twice as large as below."),
            (UNIFORM - 60.0, "Errors below the prediction are about 1.6 times as large as above."),
        ],
    )
    def test_remarks(self, quantiles, remark):
        assert bound_to(quantiles).remark(0, 0) == remark


def skewed(n, seed=0):
    """Errors with a long tail: above the prediction where the first input is positive, below it elsewhere."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n, 2))
    noise = rng.exponential(size=n) - 0.7
    return X, X[:, 1] + 0.5 * np.where(X[:, 0] > 0.0, noise, -noise)


def learned(X, z, seed=0):
    found = ErrorShape.learned(X, z, np.ones(len(z)), seed)
    return None if found is None else found[0]


class TestLearning:
    def test_trees_find_what_differs_and_stop_where_nothing_does(self):
        X, y = skewed(2000)
        z, folds = y - X[:, 1], np.arange(2000) % 5
        trees, crossed = boosted_quantiles(X, z, np.ones(2000), folds, COARSE, seed=0)
        constant = np.tile(np.quantile(z, COARSE), (2000, 1))
        assert pinball(z, crossed, COARSE).mean() < 0.95 * pinball(z, constant, COARSE).mean()
        left, right = trees.predict(np.array([[-0.5, 0.0], [0.5, 0.0]]))
        assert right[-1] > 2.0 * left[-1]
        assert left[0] < 2.0 * right[0]
        none, crossed = boosted_quantiles(
            X, np.random.default_rng(0).normal(size=2000), np.ones(2000), folds, COARSE, seed=0
        )
        assert len(none.roots) < len(trees.roots) / 2

    def test_trees_of_no_use_are_none(self):
        """Every row of a fold is an exception to the others: whatever is learned is wrong."""
        X = np.tile([[0.0], [1.0]], (100, 1))
        folds = np.repeat([0, 1], 100)
        z = np.where(folds == 0, X[:, 0], -X[:, 0])
        trees, crossed = boosted_quantiles(X, z, np.ones(200), folds, COARSE, seed=0)
        assert len(trees.roots) == 0
        np.testing.assert_array_equal(crossed[folds == 0], np.tile(np.quantile(z[100:], COARSE), (100, 1)))
        assert trees.predict(X).shape == (200, len(COARSE))

    def test_lower_and_upper_quantiles_stop_apart(self):
        rng = np.random.default_rng(0)
        X = rng.uniform(size=(1500, 1))
        z = np.where(rng.random(1500) < 0.5, -rng.exponential(size=1500), 4.0 * X[:, 0] * rng.random(1500))
        trees, _ = boosted_quantiles(X, z, np.ones(1500), np.arange(1500) % 3, COARSE, seed=0)
        used = [np.abs(trees.values[:, number]).sum() > 0.0 for number in range(len(COARSE))]
        n_used = [int((np.abs(trees.values[:, k]) > 0.0).sum()) for k in (0, len(COARSE) - 1)]
        assert used[-1]
        assert n_used[0] < n_used[1]

    def test_a_shape_of_each_row(self, full_training):
        X, y = skewed(2000)
        shape = learned(X, y - X[:, 1])
        left, right = shape.predict(np.array([[-0.5, 0.0], [0.5, 0.0]]))
        assert -left[0] > 1.5 * left[-1]
        assert right[-1] > -1.5 * right[0]

    @pytest.mark.parametrize(
        "z",
        [
            np.random.default_rng(0).normal(size=99),
            np.zeros(500),
            np.random.default_rng(0).permutation(
                np.concatenate([np.arange(-250.0, 0.0), np.arange(1.0, 251.0)])
            ),
        ],
        ids=["few rows", "no errors", "symmetric"],
    )
    def test_nothing_to_learn(self, z):
        assert learned(np.random.default_rng(1).normal(size=(len(z), 2)), z) is None

    def test_most_errors_zero(self):
        """As of counts: quantiles that coincide are kept apart."""
        rng = np.random.default_rng(0)
        z = np.where(rng.random(600) < 0.8, 0.0, rng.exponential(size=600))
        shape = learned(rng.normal(size=(600, 2)), z)
        quantiles = shape.predict(rng.normal(size=(5, 2)))
        assert (np.diff(quantiles) > 0.0).all()
        assert np.isfinite(depth_of(np.array([0.0, 1e-9, -1.0, 5.0, 100.0]), quantiles)).all()

    def test_of_more_rows_some_are_drawn(self, monkeypatch):
        monkeypatch.setattr(distributional, "MOST_ROWS", 300)
        X, y = skewed(1000)
        shape = learned(X, y - X[:, 1])
        some = np.random.default_rng(0).permutation(1000)[:300]
        np.testing.assert_array_equal(shape.constant_, np.quantile((y - X[:, 1])[some], GRID))

    def test_trees_grow_on_some_rows_and_leave_out_each_fold(self, monkeypatch):
        """All rows get quantiles by trees that have not seen their fold, whether or not trees grow on them."""
        monkeypatch.setattr(quantile_trees, "MOST_TREES", 5)  # no fold wants fewer: none chooses their number
        monkeypatch.setattr(quantile_trees, "MOST_TREE_ROWS", 400)
        X, y = skewed(1200)
        z, folds, ones = y - X[:, 1], np.arange(1200) % 4, np.ones(1200)
        moved = np.where(folds == 1, 1.1 * z, z)
        _, before = boosted_quantiles(X, z, ones, folds, COARSE, seed=0)
        trees, after = boosted_quantiles(X, moved, ones, folds, COARSE, seed=0)
        assert before.shape == (1200, len(COARSE))
        np.testing.assert_array_equal(before[folds == 1], after[folds == 1])
        assert (before[folds != 1] != after[folds != 1]).any(axis=1).mean() > 0.9
        monkeypatch.setattr(quantile_trees, "MOST_TREE_ROWS", 1200)
        whole, _ = boosted_quantiles(X, moved, ones, folds, COARSE, seed=0)
        assert not np.array_equal(trees.predict(X), whole.predict(X))


def forged(**changes):
    nodes = {
        "roots": np.array([0]),
        "features": np.zeros(3, np.int64),
        "thresholds": np.zeros(3),
        "left": np.array([1, 1, 2]),
        "right": np.array([2, 1, 2]),
        "values": np.zeros((3, len(COARSE))),
    }
    return QuantileTrees(**({"baseline": np.zeros(len(COARSE))} | nodes | changes))


@pytest.fixture(scope="module")
def reg():
    return TestRegressor().fitted()


class TestRegressor:
    X, y = skewed(1600)
    NEW = skewed(300, seed=1)[0]

    @staticmethod
    def predict(X):
        return X[:, 1]

    def regressor(self, score="distributional", **changes):
        settings = {"kernel": lvd.MahalanobisKernel(max_iter=20), "calib_size": None, "random_state": 0}
        settings |= {"when_unknown": "widen"} | changes
        model = settings.pop("model", (self.predict, lambda X: X))
        return lvd.LVDRegressor(model, prefit=True, conformity_score=score, **settings)

    def fitted(self, y=None, score="distributional", **changes):
        targets = self.y if y is None else y
        reg = self.regressor(score, **changes).fit(self.X[:800], targets[:800])
        return reg.conformalize(self.X[800:], targets[800:])

    def test_both_ends_follow_the_row(self, reg):
        y_pred, ends = reg.predict_interval(self.NEW, LEVELS)
        below, above = y_pred - ends[:, 0, 1], ends[:, 1, 1] - y_pred
        right = self.NEW[:, 0] > 0.1
        assert np.median((above / below)[right]) > 1.5
        assert np.median((below / above)[self.NEW[:, 0] < -0.1]) > 1.5
        assert (ends[:, 0] <= y_pred[:, None]).all()
        assert (ends[:, 1] >= y_pred[:, None]).all()
        assert (ends[:, 0, 0] >= ends[:, 0, 1]).all()

    @pytest.mark.parametrize("guarantee", ["local", "randomized", "calibrated", "transductive"])
    def test_where_no_shape_is_learned_it_is_the_scaled_score_to_the_bit(self, guarantee, monkeypatch):
        monkeypatch.setattr(distributional, "GAIN", 1.0)
        found, scaled = (
            self.fitted(score=score).predict_interval(self.NEW, LEVELS, guarantee=guarantee)[1]
            for score in ("distributional", "scaled")
        )
        np.testing.assert_array_equal(found, scaled)

    def test_saved_and_loaded(self, reg, tmp_path):
        assert reg.score_.shapes_[0] is not None
        reg.save(tmp_path / "model")
        loaded = lvd.load(tmp_path / "model", estimator=reg.estimator)
        for each in (reg, loaded):
            each.update(self.X[:50], self.y[:50])
        np.testing.assert_array_equal(loaded.predict_interval(self.NEW)[1], reg.predict_interval(self.NEW)[1])
        np.testing.assert_array_equal(
            loaded.predict_quantiles(self.NEW, 0.3), reg.predict_quantiles(self.NEW, 0.3)
        )
        assert [one.sentence for one in loaded.explain(self.NEW[:3])] == [
            one.sentence for one in reg.explain(self.NEW[:3])
        ]

    @pytest.mark.parametrize("name", list(distributional.LEARNERS))
    def test_each_learner_saved_and_loaded(self, name, monkeypatch, tmp_path):
        monkeypatch.setattr(distributional, "MIXTURES", ({name: 1.0},))
        monkeypatch.setattr(distributional, "GAIN", -np.inf)
        reg = self.fitted()
        assert list(reg.score_.shapes_[0].learners_) == [name]
        reg.save(tmp_path / "model")
        loaded = lvd.load(tmp_path / "model", estimator=reg.estimator)
        np.testing.assert_array_equal(loaded.predict_interval(self.NEW)[1], reg.predict_interval(self.NEW)[1])

    @pytest.mark.parametrize(
        "changes",
        [
            {"left": np.array([0, 1, 2])},
            {"right": np.array([9, 1, 2])},
            {"roots": np.array([3])},
            {"features": np.array([-1, 0, 0])},
            {"roots": np.array([-1])},
        ],
    )
    def test_damaged_trees_are_refused(self, changes):
        forged()._check_parameters()
        with pytest.raises(
            lvd.InputError, match="the nodes of the trees of quantiles do not belong together"
        ):
            forged(**changes)._check_parameters()

    def test_trees_for_other_columns_are_refused(self):
        """Compiled loops read where they are told."""
        trees = forged()
        width = int(trees.features.max()) + 1
        assert trees.predict(np.zeros((2, width))).shape == (2, len(COARSE))
        with pytest.raises(lvd.InputError, match=f"ask for {width} columns, and there are {width - 1}"):
            trees.predict(np.zeros((2, width - 1)))

    def test_distributions(self):
        """Quantiles and distribution function are of one distribution, and PIT values look uniform."""
        reg = self.fitted()
        X, y = skewed(1500, seed=2)
        quantiles = reg.predict_quantiles(X, [0.1, 0.5, 0.9])
        assert (np.abs((y[:, None] <= quantiles).mean(0) - [0.1, 0.5, 0.9]) < 0.05).all()
        assert (reg.predict_distribution(X).cdf(quantiles[:, 1] + 1e-6) >= 0.5).all()
        assert (reg.predict_distribution(X).cdf(quantiles[:, 1] - 1e-6) <= 0.5).all()
        deciles = np.histogram(reg.predict_distribution(X).pit(y), np.linspace(0, 1, 11))[0] / 1500
        assert (np.abs(deciles - 0.1) < 0.04).all()
        places, masses = reg.predict_distribution(X[:20]).atoms()
        order = places.argsort(axis=1)
        reached = np.take_along_axis(masses, order, axis=1).cumsum(axis=1) >= 0.5 - 1e-12
        middle = np.take_along_axis(places, order, axis=1)[np.arange(20), reached.argmax(axis=1)]
        np.testing.assert_allclose(middle, quantiles[:20, 1])

    def test_updates_and_what_is_forgotten(self):
        once = (
            self.regressor().fit(self.X[:800], self.y[:800]).conformalize(self.X[800:1100], self.y[800:1100])
        )
        updated, whole = once.update(self.X[1100:], self.y[1100:]), self.fitted()
        for ask in (
            lambda reg: reg.predict_interval(self.NEW)[1],
            lambda reg: reg.predict_distribution(self.NEW).cdf(self.NEW[:, 1]),
        ):
            np.testing.assert_array_equal(ask(updated), ask(whole))
        newest = self.regressor().fit(self.X[:800], self.y[:800]).conformalize(self.X[-400:], self.y[-400:])
        np.testing.assert_allclose(
            updated.forget(400).predict_quantiles(self.NEW, 0.4), newest.predict_quantiles(self.NEW, 0.4)
        )

    def test_a_shape_for_each_target_of_those_that_have_it(self, tmp_path):
        rng = np.random.default_rng(5)
        # Symmetric errors to the bit, of which each size is there twice.
        even = np.repeat(rng.exponential(size=800), 2) * np.tile([-1.0, 1.0], 800)
        y = np.column_stack([self.y, self.X[:, 1] + even])
        y[1::7, 0] = np.nan
        reg = self.fitted(y, model=(lambda X: X[:, [1, 1]], lambda X: X))
        assert reg.score_.shapes_[0] is not None
        assert reg.score_.shapes_[1] is None
        scaled = self.fitted(y, "scaled", model=reg.estimator)
        np.testing.assert_array_equal(
            reg.predict_interval(self.NEW)[1][..., 1], scaled.predict_interval(self.NEW)[1][..., 1]
        )
        known = ~np.isnan(y[:, 0])
        lower, upper = reg.predict_interval(self.X[800:], 0.9)[1][..., 0, 0].T
        inside = (lower <= y[800:, 0]) & (y[800:, 0] <= upper)
        assert inside[known[800:]].mean() > 0.87
        reg.save(tmp_path / "model")
        loaded = lvd.load(tmp_path / "model", estimator=reg.estimator)
        np.testing.assert_array_equal(
            loaded.predict_quantiles(self.NEW, [0.2, 0.6]), reg.predict_quantiles(self.NEW, [0.2, 0.6])
        )
        assert len(reg.explain(self.NEW[:2])) == 4

    def test_explanations(self, reg):
        (one,) = reg.explain(np.array([[0.5, 0.0]]), 0.9)
        assert one.score_name == "depth"
        assert one.evidence.half_width == pytest.approx((one.upper - one.lower) / 2.0)
        rarity = f"{2.0**one.evidence.radius:.3g}"
        assert (
            f"90% of which had an error no rarer than 1 in {rarity} of the errors expected there."
            in one.sentence
        )
        assert "Errors above the prediction are about" in one.sentence
        assert "below the prediction are about" in reg.explain(np.array([[-0.5, 0.0]]), 0.9)[0].sentence

    def test_an_error_too_rare_for_a_number(self, reg):
        (one,) = reg.explain(self.NEW[:1], 0.9)
        deep = replace(one.evidence, radius=5000.0)
        assert "no rarer than 1 in 1.07e+301 of the errors" in deep.sentence

    def test_where_the_model_is_biased_it_says_so(self):
        rng = np.random.default_rng(0)
        y = self.X[:, 1] + 3.0 * (self.X[:, 0] > 0.0) + 0.3 * rng.normal(size=1600)
        reg = self.fitted(y)
        (one,) = reg.explain(np.array([[0.5, 0.0]]), 0.9)
        assert "too low here." in one.sentence
        assert one.lower <= one.y_pred == 0.0
        assert 2.5 < one.upper < 5.0

    def test_monitors_and_groups(self, reg):
        watch = reg.monitor(0.9)
        assert watch.take(self.NEW[:50], self.NEW[:50, 1] + 100.0).coverage == 0.0
        groups = np.where(self.X[:, 0] > 0.0, "right", "left")
        labelled = self.regressor().fit(self.X[:800], self.y[:800])
        labelled.conformalize(self.X[800:], self.y[800:], groups=groups[800:])
        assert np.isfinite(labelled.predict_interval(self.NEW, 0.8, groups=np.full(300, "left"))[1]).all()


class WithSpread(Model):
    """A model that tells which errors to expect, and which rows it has not seen."""

    def __init__(self, held_out=700):
        self.held_out = held_out

    def check(self, X):
        return np.asarray(X, dtype=float)

    def fit(self, X, y):
        self.n_rows = len(X)
        return self

    @property
    def rows_held_out(self):
        return np.arange(self.n_rows - self.held_out, self.n_rows)

    def evaluate(self, X):
        y_pred = X[:, 1:]
        spread = np.stack([np.full_like(y_pred, 0.2), np.full_like(y_pred, 0.6)], axis=1)
        return Evaluation(y_pred, X, spread=spread)


@pytest.mark.parametrize("held_out", [0, 700])
def test_a_model_with_a_spread_of_its_own(held_out):
    """A shape is learned from the rows that it has not seen, where there are enough."""
    X, y = skewed(1800)
    rows = lvd.scores.EvaluatedRows(X, WithSpread().evaluate(X))
    model = WithSpread(held_out).fit(X[:900], y)
    score = lvd.scores.DistributionalResidual()
    some = lvd.scores.EvaluatedRows(X[:900], model.evaluate(X[:900]))
    score.fit(lvd.scores.TrainingRows(some, y[:900, None], model, "cpu", 0))
    bound, scaled = score.bind(rows), lvd.scores.ScaledResidual()
    scaled.fit(lvd.scores.TrainingRows(some, y[:900, None], model, "cpu", 0))
    if held_out:
        assert isinstance(bound, BoundDistribution)
        medians = bound.targets_at(np.zeros((1800, 1, 1)))[:, 0, 0]
        assert 0.4 < (y <= medians).mean() < 0.6
    else:
        assert score.shapes_ == [None]
        np.testing.assert_array_equal(bound(y[:, None]), scaled.bind(rows)(y[:, None]))


def test_parameters():
    with pytest.raises(lvd.InputError, match="scales must be one of"):
        lvd.LVDRegressor(conformity_score=lvd.scores.DistributionalResidual(("forest",))).fit(
            [[0.0]] * 9, range(9)
        )
