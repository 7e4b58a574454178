"""A level that no training row has makes a row unknown, whoever brings the frame."""

from __future__ import annotations

import datetime

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import lvd
from lvd.support.rule import levels_of, new_levels

N = 200
RNG = np.random.default_rng(0)
FRAME = pd.DataFrame({"a": RNG.normal(size=N), "city": pd.Categorical(RNG.choice(["u", "v", "w"], N))})
Y = FRAME["a"].to_numpy() + 0.1 * RNG.normal(size=N)
NEW = pd.DataFrame({"a": np.zeros(4), "city": pd.Categorical(["u", "new", None, "w"])})


def lightgbm():
    return pytest.importorskip("lightgbm").LGBMRegressor(n_estimators=5, n_jobs=1, verbose=-1)


def xgboost():
    settings = {"n_estimators": 5, "n_jobs": 1, "enable_categorical": True}
    return pytest.importorskip("xgboost").XGBRegressor(**settings)


def histograms():
    return HistGradientBoostingRegressor(max_iter=5)


def trees():
    return lvd.TreesRegressor(max_iter=5)


def pipeline():
    one_hot = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), ["city"]), remainder="passthrough"
    )
    return make_pipeline(one_hot, Ridge())


def fitted(estimator, when_unknown="infinite"):
    kernel = lvd.MahalanobisKernel(2, max_iter=5, device="cpu")
    settings = {"preset": "paper", "kernel": kernel, "device": "cpu", "random_state": 0}
    return lvd.LVDRegressor(estimator, when_unknown=when_unknown, **settings).fit(FRAME, Y)


@pytest.mark.parametrize("estimator", [lightgbm, xgboost, histograms, trees, pipeline])
def test_a_new_level_is_unknown(estimator):
    evidence = fitted(estimator()).predict_with_evidence(NEW)
    assert evidence.known.tolist() == [True, False, False, True]
    assert np.isinf(evidence.intervals[[1, 2]]).all()
    assert np.isfinite(evidence.intervals[[0, 3]]).all()


def test_catboost():
    library = pytest.importorskip("catboost")
    settings = {"verbose": 0, "allow_writing_files": False, "thread_count": 1}
    reg = fitted(library.CatBoostRegressor(iterations=5, cat_features=["city"], **settings))
    assert reg.predict_with_evidence(NEW.iloc[[0, 1, 3]]).known.tolist() == [True, False, True]


def test_it_may_be_widened_and_is_saved(tmp_path):
    reg = fitted(trees(), "widen")
    evidence = reg.predict_with_evidence(NEW)
    assert evidence.known.tolist() == [True, False, False, True]
    assert np.isfinite(evidence.intervals[1]).all()
    known, unknown, *_ = reg.explain(NEW)
    assert known.reason is None
    assert unknown.sentence.startswith("Unknown: no training row has ")
    reg.save(tmp_path / "model")
    assert lvd.load(tmp_path / "model").predict_with_evidence(NEW).known.tolist() == [
        True,
        False,
        False,
        True,
    ]


def test_rows_can_be_called_unknown():
    reg = lvd.LVDRegressor(
        Ridge(), preset="paper", when_unknown="infinite", y_range=(None, 9.0), device="cpu"
    )
    reg.fit(FRAME[["a"]].to_numpy(), Y)
    told = [False, True, False]
    evidence = reg.predict_with_evidence(np.zeros((3, 1)), unknown=told)
    assert evidence.known.tolist() == [True, False, True]
    assert evidence.intervals[1, :, 0].tolist() == [-np.inf, 9.0]
    assert [one.known for one in reg.explain(np.zeros((3, 1)), unknown=told)] == [True, False, True]
    with pytest.raises(lvd.InputError, match="X has 3, unknown has 2"):
        reg.predict_with_evidence(np.zeros((3, 1)), unknown=told[:2])


class TestLevels:
    def test_of_categories_and_texts_alone(self):
        day = datetime.datetime(2024, 3, 31, tzinfo=datetime.UTC)
        frame = pd.DataFrame({
            "category": pd.Categorical([1, 2] * 20),
            "text": ["x", None] * 20,
            "number": np.arange(40.0),
            "boolean": [True, False] * 20,
            "date": pd.date_range("2024-01-01", periods=40),
            "moment": [day + datetime.timedelta(days=row % 5) for row in range(40)],
            "nothing": [None] * 40,
            "name": [f"name {row}" for row in range(40)],
        })  # fmt: skip
        assert levels_of(frame) == (("1", "2"), ("", "x"), (), (), (), (), (), ())
        asked = frame.iloc[:2].assign(category=pd.Categorical([2, 3]), name="another", number=-9.0)
        assert new_levels(levels_of(frame), asked).known.tolist() == [True, False]

    def test_a_matrix_has_none(self):
        assert levels_of(np.zeros((3, 2))) == ()
