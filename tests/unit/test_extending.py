"""Kernels, scores and support rules of strangers pass the checks, work, are saved and are explained."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import lvd
from lvd.methods import ALL_METHODS
from lvd.methods.conformal import SCORES, as_score
from tests.extensions import forest_support, leaf_kernel, relative_score
from tests.extensions.forest_support import ForestSupport
from tests.extensions.leaf_kernel import LeafKernel
from tests.extensions.relative_score import RelativeResidual

NET = lvd.NetRegressor(hidden_sizes=(8,), n_batches=20, device="cpu", random_state=0)
QUICK = {
    lvd.JackknifePlusRegressor: {"estimator": NET, "cv": 3},
    lvd.DeepEnsembleRegressor: {"hidden_sizes": (8,), "epochs": 5, "n_members": 2},
    lvd.MCDropoutRegressor: {"hidden_sizes": (8,), "epochs": 5, "n_passes": 20},
    lvd.PBPRegressor: {"hidden_sizes": (8,), "epochs": 2},
}


@pytest.mark.parametrize("module", [leaf_kernel, relative_score, forest_support])
def test_is_short(module):
    assert len(inspect.getsource(module).splitlines()) <= 40


@pytest.mark.parametrize("kernel", [lvd.MahalanobisKernel(2, max_iter=20, random_state=0), LeafKernel()])
def test_kernels(kernel):
    lvd.testing.check_kernel(kernel)


@pytest.mark.parametrize("score", [*SCORES, RelativeResidual()], ids=str)
def test_scores(score):
    lvd.testing.check_score(as_score(score))


@pytest.mark.parametrize("rule", [lvd.support.TrainingSupport(), ForestSupport()])
def test_support_rules(rule):
    lvd.testing.check_support(rule)


@pytest.mark.parametrize("method", ALL_METHODS)
def test_methods(method):
    lvd.testing.check_method(method(**({"random_state": 0} | QUICK.get(method, {"estimator": NET}))))


class TestBroken:
    def test_a_kernel_whose_coordinates_depend_on_the_other_rows(self):
        class Centred(LeafKernel):
            def coordinates(self, embeddings):
                points = super().coordinates(embeddings)
                return points - points.mean(axis=0)

        with pytest.raises(AssertionError, match="must not depend on the other rows"):
            lvd.testing.check_kernel(Centred())

    def test_a_score_whose_interval_is_too_narrow(self):
        class Bound(relative_score.BoundRelative):
            def intervals(self, radius, levels):
                return super().intervals(0.9 * radius, levels)

        class Narrow(RelativeResidual):
            def bind(self, rows):
                whole = super().bind(rows)
                return Bound(whole.y_pred, whole.unit)

        with pytest.raises(AssertionError, match="must contain its target"):
            lvd.testing.check_score(Narrow())

    def test_a_rule_that_gives_no_reason(self):
        class Silent(ForestSupport):
            def check(self, rows):
                return lvd.support.Support(super().check(rows).known, {})

        with pytest.raises(AssertionError, match="must have a reason"):
            lvd.testing.check_support(Silent())

    def test_a_constructor_that_learns(self):
        class Early(ForestSupport):
            def __init__(self, contamination=0.01):
                self.contamination = contamination
                self.forest_ = None

        with pytest.raises(AssertionError, match="the constructor must not learn anything"):
            lvd.testing.check_support(Early())


class TestTogether:
    @pytest.fixture(scope="class")
    @classmethod
    def fitted(cls):
        rng = np.random.default_rng(0)
        X = rng.uniform(-1, 1, size=(300, 3))
        y = 2.0 + X[:, 0] + 0.3 * rng.normal(size=300)
        parts = {"kernel": LeafKernel(), "support": ForestSupport(), "conformity_score": RelativeResidual()}
        return X, lvd.LVDRegressor(NET, random_state=0, **parts).fit(X, y)

    def test_all_three_decide(self, fitted):
        X, reg = fitted
        _, intervals = reg.predict_interval(np.concatenate([X[:20], [[50.0, 50.0, 50.0]]]))
        assert np.isinf(intervals[-1]).all()
        assert np.isfinite(intervals[:20]).mean() > 0.8
        (explained,) = reg.explain([[50.0, 50.0, 50.0]])
        assert "an isolation forest takes this row for an outlier" in explained.sentence

    def test_is_loaded_only_by_who_trusts_it(self, fitted, tmp_path):
        X, reg = fitted
        reg.save(tmp_path / "model")
        with pytest.raises(
            lvd.InputError, match=r"its user's own, whose code would run; if you trust it, give trusted="
        ):
            lvd.load(tmp_path / "model")
        loaded = lvd.load(tmp_path / "model", trusted=[LeafKernel, ForestSupport, RelativeResidual])
        np.testing.assert_array_equal(loaded.predict_interval(X)[1], reg.predict_interval(X)[1])
