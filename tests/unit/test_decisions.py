"""What people do with a distribution: one-sided bounds, thresholds, selections and decisions."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from sklearn.linear_model import Ridge

import lvd

KERNEL = lvd.MahalanobisKernel(2, max_iter=20, random_state=0)


def town(seed, n_rows):
    """Errors are lognormal: small below the prediction, large above."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n_rows, 2))
    return X, X[:, 0] + np.exp(0.8 * rng.normal(size=n_rows)) - np.exp(0.32)


def regressor(method=lvd.LVDRegressor, **settings):
    chosen = {"conformity_score": "absolute", "random_state": 0, "confidence_level": [0.5, 0.9]} | settings
    if method is lvd.LVDRegressor:
        chosen = {"kernel": KERNEL, "when_unknown": "widen"} | chosen
    return method(**({"estimator": Ridge()} | chosen))


@pytest.fixture(scope="module")
def fitted():
    X, y = town(0, 600)
    return regressor(when_unknown=None).fit(X, y)


def short_of(level, shares):
    """By how many standard errors the mean of trials, each with calibration rows of its own, is below the level."""
    return (level - np.mean(shares)) / max(1e-9, np.std(shares) / np.sqrt(len(shares)))


@pytest.fixture(scope="module", params=["split", "lvd"])
def learned(request):
    """Learned once, calibrated in each trial."""
    method = lvd.SplitConformalRegressor if request.param == "split" else lvd.LVDRegressor
    return regressor(method).fit(*town(1, 300))


class TestOneSided:
    def test_shapes_and_order(self, learned):
        X, y = town(0, 600)
        reg = learned.conformalize(X, y)
        y_pred, upper = reg.predict_interval(X[:9], side="upper")
        _, lower = reg.predict_interval(X[:9], side="lower")
        assert upper.shape == lower.shape == (9, 2, 2)
        assert np.isneginf(upper[:, 0]).all()
        assert np.isposinf(lower[:, 1]).all()
        assert (upper[:, 1] >= y_pred[:, None]).all()
        assert (lower[:, 0] <= y_pred[:, None]).all()
        assert (upper[:, 1, 1] >= upper[:, 1, 0]).all()

    @pytest.mark.parametrize("side", ["lower", "upper"])
    def test_all_misses_are_on_that_side(self, learned, side):
        """The errors are alike at every row, so that the local promise is one on average too.

        The broken version takes the end of a two-sided interval, which suits symmetric errors.
        """
        kept, broken = [], []
        for trial in range(40):
            learned.conformalize(*town(10_000 + trial, 199))
            X, y = town(90_000 + trial, 100)
            one_sided = learned.predict_interval(X, 0.95, side=side)[1][..., 0]
            two_sided = learned.predict_interval(X, 0.9)[1][..., 0]
            for shares, (lower, upper) in ((kept, one_sided.T), (broken, two_sided.T)):
                shares.append(np.mean(y <= upper if side == "upper" else y >= lower))
        assert short_of(0.95, kept) < 5.0
        # Below, these errors are small: there the broken version is only too wide.
        assert (short_of(0.95, broken) > 5.0) == (side == "upper")

    def test_local_and_unknown(self, fitted):
        far = fitted.predict_interval([[50.0, 50.0]], side="upper")[1]
        assert np.isinf(far).all()

    def test_refusals(self, fitted):
        X, y = town(0, 60)
        with pytest.raises(lvd.InputError, match="side must be one of 'lower', 'upper', got 'left'"):
            fitted.predict_interval(X, side="left")
        with pytest.raises(lvd.InputError, match="'transductive' has no one-sided intervals"):
            fitted.predict_interval(X, side="upper", guarantee="transductive")
        plus = lvd.JackknifePlusRegressor(Ridge(), cv=3, random_state=0).fit(X, y)
        with pytest.raises(lvd.InputError, match="takes no side="):
            plus.predict_interval(X, side="upper")


class TestDistribution:
    def test_samples_and_mean_are_those_of_the_atoms(self, fitted):
        X, _ = town(3, 4)
        found = fitted.predict_distribution(X)
        places, masses = found.atoms()
        inner, share = places[:, 1:-1], masses[:, 1:-1] / masses[:, 1:-1].sum(axis=1, keepdims=True)
        np.testing.assert_allclose(found.mean(), (inner * share).sum(axis=1))
        drawn = found.sample(4000, random_state=0)
        assert drawn.shape == (4, 4000)
        assert np.isin(drawn[0], inner[0]).all()
        spread = np.sqrt((share * (inner - found.mean()[:, None]) ** 2).sum(axis=1))
        assert (np.abs(drawn.mean(axis=1) - found.mean()) < 6.0 * spread / np.sqrt(4000)).all()
        np.testing.assert_array_equal(drawn, found.sample(4000, random_state=0))

    def test_in_pieces_it_is_the_same(self, fitted, monkeypatch):
        X, y = town(3, 7)
        whole = fitted.predict_distribution(X)
        expected = [whole.mean(), whole.crps(y), *whole.atoms()]
        monkeypatch.setattr("lvd.methods.predictive.MOST_ATOMS", 400)
        for found, wanted in zip([whole.mean(), whole.crps(y), *whole.atoms()], expected, strict=True):
            np.testing.assert_array_equal(found, wanted)

    def test_in_parts_of_the_rows_it_is_the_same(self, fitted, monkeypatch):
        X, y = town(3, 7)
        X[4] = 50.0

        def answers(found):
            sampled = found.sample(5, random_state=0)
            return [
                found.quantile([0.2, 0.8]),
                found.cdf(y),
                found.pit(y),
                found.mean(),
                found.crps(y),
                sampled,
            ]

        marked = np.arange(7) == 2
        expected = answers(fitted.predict_distribution(X, unknown=marked))
        monkeypatch.setattr("lvd.methods.predictive.MOST_ROWS", 3)
        for found, wanted in zip(
            answers(fitted.predict_distribution(X, unknown=marked)), expected, strict=True
        ):
            np.testing.assert_allclose(found, wanted, rtol=1e-12)
            assert len(found) == 7
        with pytest.raises(lvd.InputError, match="inconsistent numbers of rows"):
            fitted.predict_distribution(X, unknown=marked[:5])

    @pytest.mark.parametrize(("most_rows", "holds"), [(500, True), (10**6, False)])
    def test_memory_is_that_of_a_part(self, monkeypatch, most_rows, holds):
        """Of a model with 400 columns of embeddings; beside it the version that asks for all rows together."""
        X, y = town(0, 300)
        model = (lambda rows: rows[:, 0], lambda rows: np.tile(rows, 200))
        reg = regressor(estimator=model, prefit=True).fit(X, y).conformalize(*town(5, 100))
        monkeypatch.setattr("lvd.methods.predictive.MOST_ROWS", most_rows)
        X, _ = town(6, 6000)
        tracemalloc.start()
        reg.predict_distribution(X).quantile([0.1, 0.9])
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert (peak < 6000 * 400 * 8) == holds

    def test_of_an_unknown_row_nothing_is_invented(self, fitted):
        found = fitted.predict_distribution([[50.0, 50.0]])
        assert found.quantile([0.1, 0.9]).tolist() == [[-np.inf, np.inf]]
        assert found.cdf([3.0]).tolist() == [0.5]
        assert np.isnan(found.sample(3, random_state=0)).all()
        assert np.isnan(found.mean()).all()
        assert np.isnan(found.crps([1.0])).all()
        exceedance = fitted.exceeds([[50.0, 50.0]], 0.0)
        assert np.isnan(exceedance.probability[0])
        assert exceedance.p_value[0] == 1.0
        decision = fitted.decide([[50.0, 50.0]], [1, 2], lambda action, y: action * y)
        assert decision.index.tolist() == [-1]
        assert np.isnan(decision.action).all()

    @pytest.mark.parametrize("y_range", [(0.0, 1.0), (None, 1.0), (0.0, None)])
    def test_it_stays_within_bounds(self, y_range):
        X, y = town(4, 600)
        low, high = (
            end if end is not None else other for end, other in zip(y_range, (-np.inf, np.inf), strict=True)
        )
        reg = regressor(y_range=y_range).fit(X, np.clip(y, low, high))
        X, y = town(5, 300)
        found, y = reg.predict_distribution(X), np.clip(y, low, high)
        quantiles, finite = found.quantile([0.05, 0.5, 0.95]), found.atoms()[0]
        finite = finite[np.isfinite(finite)]
        for values in (quantiles, finite, found.sample(20, random_state=0), found.mean()):
            assert low <= values.min() <= values.max() <= high
        for end, below in ((low, 0.0), (high, 1.0)):
            if np.isfinite(end):
                assert (found.cdf(np.full(300, end - 1e-9 if end == low else end)) == below).all()
                assert (
                    reg.exceeds(X, end + 1e-9 if end == high else end - 1e-9).probability == 1.0 - below
                ).all()
        # The values at an end are spread over the mass beyond it.
        same = reg.set_params(y_range=None).predict_distribution(X).pit(y)
        inside = (low < y) & (y < high)
        np.testing.assert_array_equal(found.pit(y)[inside], same[inside])
        assert (found.pit(y)[y == low] < same[y == low]).all()
        assert (found.pit(y)[y == high] > same[y == high]).all()


def low_or_noisy(seed, n_rows):
    """Two thirds of the rows are low, as predicted; the others scatter around 3, or around a little more or less
    than 0."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n_rows, 2))
    return X, mean_of(X) + np.where(X[:, 1] > 1 / 3, 1.0, 0.01) * rng.normal(size=n_rows)


def mean_of(X):
    return np.where(X[:, 1] < 1 / 3, -3.0, np.where(X[:, 0] > 0.8, 3.0, 0.6 * X[:, 0]))


class TestThresholds:
    def test_wrong_claims_are_as_rare_as_promised(self, learned):
        """A claim at p <= 0.2 is wrong with probability 0.2 at most; the broken version looks at the other side."""
        if not learned.has_local_weights:
            pytest.skip("has no p-values")
        right, broken = [], []
        for trial in range(40):
            learned.conformalize(*town(20_000 + trial, 49))
            X, y = town(80_000 + trial, 100)
            # At the threshold y itself the claim "above" is wrong whenever it is made.
            p_value = learned.exceeds(X, y, guarantee="marginal").p_value
            right.append(np.mean(p_value > 0.2))
            broken.append(np.mean(1.0 - p_value > 0.3))
        assert short_of(0.8, right) < 5.0 < short_of(0.8, broken)

    def test_selected_rows_are_mostly_right(self):
        """The share of wrong claims among those made; the broken rule claims wherever p is small enough alone."""

        model = (mean_of, lambda rows: rows)
        reg = regressor(estimator=model, prefit=True).fit(*low_or_noisy(0, 200))
        kept, broken, counts = [], [], []
        for trial in range(40):
            reg.conformalize(*low_or_noisy(30_000 + trial, 399))
            X, y = low_or_noisy(60_000 + trial, 300)
            p_value = reg.exceeds(X, 0.0, guarantee="marginal").p_value
            chosen = lvd.select(p_value, 0.2)
            counts.append(chosen.sum())
            for shares, claims in ((kept, chosen), (broken, p_value <= 0.2)):
                shares.append(1.0 - (y[claims] <= 0.0).sum() / max(1, claims.sum()))
        assert np.mean(counts) > 5.0
        assert short_of(0.8, kept) < 5.0 < short_of(0.8, broken)

    def test_nothing_is_selected_where_nothing_is_sure(self):
        assert not lvd.select([0.5, 0.9, 1.0], 0.1).any()
        with pytest.raises(lvd.InputError, match=r"p_values must lie in \[0, 1\], got 0.5 to 2"):
            lvd.select([0.5, 2.0])


class TestDecide:
    def test_an_order_is_a_quantile(self, fitted):
        X, _ = town(4, 20)
        actions = np.linspace(-3.0, 8.0, 2201)

        def cost(order, demand):
            return np.where(demand > order, 9.0 * (demand - order), order - demand)

        found = fitted.decide(X, actions, cost)
        places, masses = fitted.predict_distribution(X).atoms()
        order = np.argsort(places[:, 1:-1], axis=1)
        reached = np.cumsum(np.take_along_axis(masses[:, 1:-1], order, axis=1), axis=1)
        at = (reached < 0.9 * reached[:, -1:]).sum(axis=1)
        best = np.take_along_axis(np.take_along_axis(places[:, 1:-1], order, axis=1), at[:, None], axis=1)[
            :, 0
        ]
        np.testing.assert_allclose(found.action, best, atol=0.006)

    def test_costs_are_checked(self, fitted):
        X, _ = town(4, 2)
        with pytest.raises(lvd.InputError, match="must give a number for each y"):
            fitted.decide(X, [1.0], lambda action, y: 3.0)
        with pytest.raises(lvd.InputError, match="actions must be a list of at least one action"):
            fitted.decide(X, [], lambda action, y: y)
