"""Cross-validation, search and metadata routing of scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import lvd
from lvd.metrics import IntervalScorer
from lvd.metrics.interval_metrics import widened_range

N = 240
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 2))
Y = X[:, 0] + (0.1 + (X[:, 1] > 0)) * RNG.normal(size=N)
GROUPS = np.arange(N) % 2


def quick(**settings):
    settings = {"conformity_score": "absolute", "device": "cpu", "random_state": 0} | settings
    kernel = lvd.MahalanobisKernel(2, max_iter=5)
    return lvd.LVDRegressor(Ridge(), kernel=kernel, **settings)


class Infinite(lvd.SplitConformalRegressor):
    """A method that never knows."""

    def _radii(self, rows, levels, **choices):
        return np.full_like(super()._radii(rows, levels, **choices), np.inf)


class TestIntervalScorer:
    def test_it_is_the_negative_interval_score(self):
        reg = lvd.SplitConformalRegressor(Ridge(), random_state=0).fit(X[:150], Y[:150])
        intervals = reg.predict_interval(X[150:], 0.8)[1][:, :, 0]
        low, high = widened_range(Y[150:])
        expected = -lvd.metrics.winkler_score(Y[150:], np.clip(intervals, low, high), 0.8)
        assert IntervalScorer(0.8)(reg, X[150:], Y[150:]) == pytest.approx(expected)

    def test_infinity_counts_as_the_range(self):
        reg = Infinite(Ridge(), random_state=0).fit(X, Y)
        assert np.isinf(reg.predict_interval(X)[1]).all()
        assert IntervalScorer()(reg, X, Y) == pytest.approx(-1.2 * np.ptp(Y))
        several = Infinite(Ridge(), random_state=0).fit(X, np.stack([Y, 1e6 * Y], axis=1))
        assert IntervalScorer()(several, X, np.stack([Y, 1e6 * Y], axis=1)) == pytest.approx(-1.0)

    def test_a_search_with_infinite_intervals_has_a_winner(self):
        reg = lvd.SplitConformalRegressor(Ridge(), confidence_level=[0.8, 0.9], random_state=0)
        search = GridSearchCV(reg, {"estimator__alpha": [1e-3, 1e6]}, scoring=IntervalScorer(), cv=2)
        search.fit(X, Y)
        assert search.best_params_ == {"estimator__alpha": 1e-3}
        # Of 30 calibration rows none can promise 99%.
        many = lvd.SplitConformalRegressor(Ridge(), confidence_level=0.99, random_state=0)
        with pytest.warns(lvd.CalibrationWarning, match="every interval"):
            scores = cross_val_score(many, X[:80], Y[:80], scoring=IntervalScorer(), cv=2)
        assert np.isfinite(scores).all()

    def test_a_pipeline(self):
        pipeline = make_pipeline(StandardScaler(), lvd.SplitConformalRegressor(Ridge(), random_state=0))
        plain = lvd.SplitConformalRegressor(make_pipeline(StandardScaler(), Ridge()), random_state=0)
        first, second = (
            cross_val_score(each, X, Y, scoring=IntervalScorer(), cv=2) for each in (pipeline, plain)
        )
        np.testing.assert_allclose(first, second, rtol=0.1)

    def test_who_gives_no_intervals(self):
        with pytest.raises(lvd.InputError, match="Ridge has none"):
            IntervalScorer()(Ridge().fit(X, Y), X, Y)
        with pytest.raises(lvd.InputError, match="takes groups= and weights= only, got sample_weight="):
            IntervalScorer().set_score_request(sample_weight=True)

    def test_its_text(self):
        assert repr(IntervalScorer(0.9)) == "IntervalScorer(confidence_level=0.9)"
        assert repr(IntervalScorer()) == "IntervalScorer()"


class TestRouting:
    def test_groups_and_weights_reach_fit_and_the_scorer(self):
        with config_context(enable_metadata_routing=True):
            reg = quick().set_fit_request(groups=True)
            scorer = IntervalScorer().set_score_request(groups=True)
            found = cross_validate(
                reg, X, Y, params={"groups": GROUPS}, scoring=scorer, cv=2, return_estimator=True
            )
        assert np.isfinite(found["test_score"]).all()
        for fitted in found["estimator"]:
            with pytest.raises(lvd.InputError, match="groups"):
                fitted.predict_interval(X[:2])

    def test_weights(self):
        weights = np.exp(X[:, 0])
        with config_context(enable_metadata_routing=True):
            reg = quick().set_fit_request(weights=True)
            scorer = IntervalScorer().set_score_request(weights=True)
            scores = cross_val_score(reg, X, Y, params={"weights": weights}, scoring=scorer, cv=2)
            plain = cross_val_score(quick(), X, Y, scoring=IntervalScorer(), cv=2)
        assert np.isfinite(scores).all()
        assert not np.array_equal(scores, plain)

    def test_a_search_by_groups(self):
        with config_context(enable_metadata_routing=True):
            search = GridSearchCV(
                quick().set_fit_request(groups=True),
                {"bandwidth": [1.0, 2.0]},
                scoring=IntervalScorer().set_score_request(groups=True),
                cv=GroupKFold(2),
            )
            search.fit(X, Y, groups=np.repeat(np.arange(4), N // 4) // 2)
        assert search.best_params_["bandwidth"] in {1.0, 2.0}

    def test_what_nobody_asked_for_is_refused(self):
        with config_context(enable_metadata_routing=True), pytest.raises(ValueError, match="groups"):
            cross_validate(quick(), X, Y, params={"groups": GROUPS}, cv=2, error_score="raise")

    def test_requests_survive_cloning(self):
        with config_context(enable_metadata_routing=True):
            reg = clone(quick().set_fit_request(groups=True))
            assert reg.get_metadata_routing().fit.requests["groups"] is True
