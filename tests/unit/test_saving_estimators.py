"""Every regressor and transformer of scikit-learn's can be saved in a Pipeline; those that cannot are listed."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor, make_column_transformer
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler, TargetEncoder
from sklearn.utils import all_estimators

import lvd
from lvd.store.estimators import dump_estimator, load_estimator

pytest.importorskip("skops")
RNG = np.random.default_rng(0)
X = np.abs(RNG.normal(size=(60, 4)))
Y = X[:, 0] + X[:, 1] + 0.1
SETTINGS = {
    "ColumnTransformer": {"transformers": [("same", "passthrough", [0])]},
    "FeatureUnion": {"transformer_list": [("scaled", StandardScaler())]},
    "GaussianRandomProjection": {"n_components": 2},
    "MultiOutputRegressor": {"estimator": Ridge()},
    "PLSRegression": {"n_components": 1},
    "PLSCanonical": {"n_components": 1},
    "CCA": {"n_components": 1},
    "RFE": {"estimator": Ridge()},
    "RFECV": {"estimator": Ridge()},
    "RegressorChain": {"estimator": Ridge()},
    "SelectFromModel": {"estimator": Ridge()},
    "SequentialFeatureSelector": {"estimator": Ridge()},
    "SparseCoder": {"dictionary": np.eye(4)},
    "SparseRandomProjection": {"n_components": 2},
    "StackingRegressor": {"estimators": [("ridge", Ridge())]},
    "TransformedTargetRegressor": {"func": np.log1p, "inverse_func": np.expm1},
    "VotingRegressor": {"estimators": [("ridge", Ridge())]},
}
SEVERAL = {"MultiOutputRegressor", "RegressorChain"}
REFUSED = {"Birch"}
"""skops, whose format it is, has no way to store these."""


def fitted(name, cls, kind):
    """The estimator, transformers before a ridge regression; None where it does not fit such rows."""
    several = name in SEVERAL or name.startswith("MultiTask")
    try:
        estimator = cls(**SETTINGS.get(name, {}))
        whole = make_pipeline(estimator, Ridge()) if kind == "transformer" else estimator
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return whole.fit(X, np.column_stack([Y, Y]) if several else Y)
    except (TypeError, ValueError, AttributeError):
        return None


@pytest.mark.filterwarnings("ignore")  # of what scikit-learn deprecates
@pytest.mark.parametrize(("kind", "fewest"), [("regressor", 45), ("transformer", 45)])
def test_all_of_them(kind, fewest):
    refused, n_saved = set(), 0
    for name, cls in all_estimators(kind):
        whole = fitted(name, cls, kind)
        if whole is None:
            continue
        try:
            loaded = load_estimator(dump_estimator(whole, "estimator"), "estimator-0.skops")
        except lvd.InputError:
            refused.add(name)
            continue
        np.testing.assert_allclose(loaded.predict(X), whole.predict(X), rtol=1e-9, atol=1e-12, err_msg=name)
        n_saved += 1
    assert refused <= REFUSED
    assert n_saved >= fewest


@pytest.mark.parametrize(
    "estimator",
    [
        make_pipeline(SimpleImputer(strategy="median"), StandardScaler(), Ridge()),
        TransformedTargetRegressor(
            make_pipeline(SimpleImputer(), Ridge()), func=np.log1p, inverse_func=np.expm1
        ),
        make_pipeline(FunctionTransformer(np.log1p), HistGradientBoostingRegressor(max_iter=5)),
    ],
    ids=["imputer", "target", "function"],
)
def test_in_a_method(estimator, tmp_path):
    rows = X.copy()
    if "imputer" in str(estimator).lower():
        rows[::5, 1] = np.nan
    reg = lvd.SplitConformalRegressor(estimator, random_state=0).fit(rows, Y)
    reg.save(tmp_path / "model")
    loaded = lvd.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict_interval(rows)[1], reg.predict_interval(rows)[1])


def test_a_frame_with_everything(tmp_path):
    frame = pd.DataFrame(X, columns=list("abcd")).assign(city=np.where(X[:, 0] > 1, "here", "there"))
    frame.loc[::7, "a"] = np.nan
    columns = make_column_transformer(
        (make_pipeline(SimpleImputer(add_indicator=True), StandardScaler()), ["a", "b"]),
        (OneHotEncoder(handle_unknown="ignore"), ["city"]),
        (TargetEncoder(target_type="continuous"), ["city"]),
    )
    reg = lvd.SplitConformalRegressor(make_pipeline(columns, clone(Ridge())), random_state=0).fit(frame, Y)
    reg.save(tmp_path / "model")
    loaded = lvd.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict_interval(frame)[1], reg.predict_interval(frame)[1])
