"""Every model that can be exported predicts in the graph what it predicts in Python, missing numbers included."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from lightgbm import LGBMRegressor
from sklearn.compose import make_column_transformer
from sklearn.ensemble import (
    ExtraTreesRegressor,
    GradientBoostingRegressor,
    HistGradientBoostingRegressor,
    RandomForestRegressor,
)
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    MaxAbsScaler,
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    RobustScaler,
    StandardScaler,
)
from sklearn.tree import DecisionTreeRegressor
from test_onnx import check_same, run_graph
from torch import nn

import lvd
from lvd._validation import InputError
from lvd.onnx.predictors import undo_hot_columns

onnxruntime = pytest.importorskip("onnxruntime")
GAPS = (
    "trees",
    "net",
    HistGradientBoostingRegressor(max_iter=10),
    LGBMRegressor(n_estimators=10, n_jobs=1, verbose=-1),
)
MODELS = {
    "linear": LinearRegression(),
    "pipeline": make_pipeline(StandardScaler(), Ridge()),
    "min max": make_pipeline(MinMaxScaler(), "passthrough", MaxAbsScaler(), Ridge()),
    "imputed": make_pipeline(SimpleImputer(strategy="median"), RobustScaler(), Ridge()),
    "mlp": make_pipeline(
        StandardScaler(), MLPRegressor(hidden_layer_sizes=(8, 6), activation="tanh", max_iter=20)
    ),
    "mlp of counts": MLPRegressor("poisson", hidden_layer_sizes=(8,), activation="logistic", max_iter=20),
    "tree": DecisionTreeRegressor(max_depth=4),
    "forest": RandomForestRegressor(10),
    "extra trees": ExtraTreesRegressor(10),
    "boosting": GradientBoostingRegressor(n_estimators=10),
    "histograms": HistGradientBoostingRegressor(max_iter=10),
    "histograms of counts": HistGradientBoostingRegressor(max_iter=10, loss="poisson"),
    "lightgbm": LGBMRegressor(n_estimators=10, n_jobs=1, verbose=-1),
    "lightgbm of counts": LGBMRegressor(n_estimators=10, objective="tweedie", n_jobs=1, verbose=-1),
    "lightgbm's forest": LGBMRegressor(
        n_estimators=10, boosting_type="rf", bagging_freq=1, bagging_fraction=0.5, n_jobs=1, verbose=-1
    ),
    "lightgbm's constant": LGBMRegressor(n_estimators=2, min_child_samples=300, n_jobs=1, verbose=-1),
    "lightgbm with categories": LGBMRegressor(
        n_estimators=10,
        categorical_feature=[3],
        min_data_per_group=5,
        max_cat_to_onehot=1,
        n_jobs=1,
        verbose=-1,
    ),
    "torch": nn.Sequential(
        *(
            nn.Linear(4, 12),
            nn.BatchNorm1d(12),
            nn.SiLU(),
            nn.Dropout(0.2),
            nn.Linear(12, 8),
            nn.LayerNorm(8),
        ),
        nn.Sequential(nn.GELU("tanh"), nn.Linear(8, 8), nn.ELU(), nn.Linear(8, 8), nn.LeakyReLU(0.1)),
        *(
            nn.Linear(8, 6),
            nn.Softplus(),
            nn.Linear(6, 6),
            nn.Sigmoid(),
            nn.Linear(6, 5),
            nn.Tanh(),
            nn.Linear(5, 1),
        ),
    ),
    "trees of categories": "trees",
}


@pytest.fixture(scope="module")
def data():
    """A column of whole numbers is the last one."""
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=(500, 3)), rng.integers(0, 9, size=500)])
    y = np.exp(0.3 * X[:, 0]) + 0.1 * rng.exponential(size=500) + np.sin(7.0 * X[:, 3])
    return X, np.maximum(y, 0.01)


def fitted_split(estimator, X, y):
    return lvd.SplitConformalRegressor(estimator, random_state=0).fit(X, y)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore:.*categorical_feature")
@pytest.mark.parametrize("name", MODELS)
def test_models_predict_in_the_graph_what_they_predict_in_python(name, data, tmp_path):
    X, y = data
    if name == "trees of categories":  # which finds out which columns belong together
        X = np.column_stack([X[:, 0], np.eye(9)[X[:, 3].astype(int)], X[:, 1:3]])
    reg = fitted_split(MODELS[name], X[:400], y[:400])
    again = X[400:].copy()
    if name == "trees of categories":
        assert reg.model_.blocks_ == [(1, 10)]
        again[::7, 1:10], again[::11, 2:4] = 0.0, 1.0  # none of them, and two
    check_same(reg, again, run_graph(reg, again, tmp_path / "model.onnx"))


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
@pytest.mark.parametrize(
    "estimator", GAPS, ids=lambda one: one if isinstance(one, str) else type(one).__name__
)
@pytest.mark.parametrize("seen", [True, False], ids=["gaps in training", "later ones"])
def test_missing_numbers(estimator, seen, data, tmp_path):
    X, y = data
    gaps = X.copy()
    gaps[::5, 0], gaps[::7, 2] = np.nan, np.nan
    reg = lvd.LVDRegressor(
        lvd.NetRegressor(hidden_sizes=(8,), n_batches=40) if estimator == "net" and not seen else estimator,
        conformity_score="absolute",
        random_state=0,
    ).fit((gaps if seen else X)[:400], y[:400])
    again = X[400:] if estimator == "net" and not seen else gaps[400:]
    check_same(reg, again, run_graph(reg, again, tmp_path / "model.onnx"))


def test_frames_of_numbers(data, tmp_path):
    """Of a frame the embedding, not the inputs, is what scales and support see, and so it is in the graph."""
    X, y = data
    frame = pd.DataFrame(X, columns=list("abcd"))
    for estimator in ("trees", make_pipeline(StandardScaler(), Ridge())):
        reg = lvd.LVDRegressor(estimator, conformity_score="scaled", random_state=0)
        reg.fit(frame[:400], y[:400])
        found = run_graph(reg, X[400:], tmp_path / "model.onnx")
        check_same(reg, frame[400:], found)


def test_several_targets(data, tmp_path):
    X, y = data
    both = np.column_stack([y, X[:, 0] - y])
    reg = lvd.LVDRegressor(RandomForestRegressor(5), conformity_score="scaled", random_state=0)
    reg.fit(X[:400], both[:400])
    found = run_graph(reg, X[400:], tmp_path / "model.onnx")
    expected = reg.predict_interval(X[400:], [0.5, 0.9], as_frame=True)
    assert set(expected.columns) | {"n_effective_0", "n_effective_1"} == set(found)
    for name in expected.columns:
        np.testing.assert_allclose(found[name], expected[name].to_numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("estimator", "message"),
    [
        (
            nn.Sequential(nn.Linear(4, 4), nn.Softsign(), nn.Linear(4, 1)),
            "a network with a Softsign cannot be exported",
        ),
        (
            make_pipeline(PolynomialFeatures(2), Ridge()),
            "a Pipeline with a PolynomialFeatures cannot be exported",
        ),
        (GradientBoostingRegressor(n_estimators=2, init=Ridge()), r"with init= a model of its own"),
        (
            LGBMRegressor(n_estimators=2, linear_tree=True, n_jobs=1, verbose=-1),
            "with linear_tree or zero_as_missing",
        ),
        (
            LGBMRegressor(n_estimators=2, reg_sqrt=True, n_jobs=1, verbose=-1),
            "with objective 'regression sqrt'",
        ),
    ],
    ids=["layer", "step", "start", "linear trees", "objective"],
)
def test_what_cannot_be_exported_says_so(estimator, message, data, tmp_path):
    reg = fitted_split(estimator, *data)
    with pytest.raises(InputError, match=message):
        reg.to_onnx(tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


def test_a_class_of_ones_own_is_refused(data, tmp_path):
    class Mine(lvd.NetRegressor):
        pass

    with pytest.raises(InputError, match=r"a Mine cannot be exported to ONNX; what can: lvd's networks"):
        fitted_split(Mine(n_batches=5), *data).to_onnx(tmp_path / "model.onnx")


def frame_of(X, rng):
    """Categories of a few levels and of many, true and false, and missing cells."""
    frame = pd.DataFrame(X[:, :2], columns=["a", "b"])
    frame["kind"] = pd.Categorical(X[:, 3].astype(int).astype(str))
    frame["flag"] = X[:, 2] > 0.0
    frame["street"] = [f"street {int(one)}" for one in rng.exponential(20.0, size=len(X))]
    frame.loc[::9, "b"] = np.nan
    frame.loc[::13, "kind"] = None
    return frame


def coded_frame(frame, levels):
    """Texts by their places among the levels."""
    texts = frame.astype(object).where(frame.notna(), "")
    return np.column_stack(
        [
            [levels[number].index(one) if one in levels[number] else -1.0 for one in texts[name]]
            if number in levels
            else frame[name].to_numpy(float)
            for number, name in enumerate(frame.columns)
        ]
    ).astype(float)


CODERS = {
    "one-hot": OneHotEncoder(handle_unknown="ignore"),
    "filled": make_pipeline(
        SimpleImputer(strategy="most_frequent"), OneHotEncoder(handle_unknown="ignore", drop="first")
    ),
}


@pytest.mark.filterwarnings("ignore:Found unknown categories")
@pytest.mark.parametrize("coder", CODERS)
def test_pipelines_that_code_columns_of_text(coder, data, tmp_path):
    X, y = data
    frame = frame_of(X, np.random.default_rng(0)).astype({"kind": object})[
        ["street", "a", "kind", "b", "flag"]
    ]
    frame["digit"] = X[:, 3]
    frame.loc[400::7, "street"] = "nowhere"
    columns = make_column_transformer(
        (make_pipeline(SimpleImputer(), StandardScaler()), ["b", "a"]),
        (CODERS[coder], ["kind", "street"]),
        (OneHotEncoder(), ["digit"]),
        ("drop", ["flag"]),
    )
    reg = lvd.LVDRegressor(make_pipeline(columns, Ridge()), conformity_score="absolute", random_state=0)
    reg.fit(frame[:400], y[:400])
    levels = reg.to_onnx(tmp_path / "model.onnx").levels
    found = run_graph(reg, coded_frame(frame[400:], levels), tmp_path / "model.onnx")
    check_same(reg, frame[400:], found)
    assert not found["known"][::7].any()


@pytest.mark.parametrize(
    ("coder", "message"),
    [
        (OneHotEncoder(min_frequency=5), "a OneHotEncoder of infrequent categories"),
        (OrdinalEncoder(), "a Pipeline with a OrdinalEncoder of texts"),
    ],
    ids=["infrequent", "ordinal"],
)
def test_other_coders_of_text_are_refused(coder, message, data, tmp_path):
    X, y = data
    frame = pd.DataFrame({"a": X[:, 0], "town": np.where(X[:, 1] > 0.0, "north", "south")})
    columns = make_column_transformer((coder, ["town"]), remainder="passthrough")
    reg = fitted_split(make_pipeline(columns, Ridge()), frame, y)
    with pytest.raises(InputError, match=message):
        reg.to_onnx(tmp_path / "model.onnx")


@pytest.mark.parametrize("calibration", ["split", "ensemble"])
@pytest.mark.parametrize("estimator", ["net", "trees"])
def test_frames_with_categories(estimator, calibration, data, tmp_path):
    """Levels are numbers in the graph; rows with one that no training row has are unknown."""
    X, y = data
    frame = frame_of(X, np.random.default_rng(0))
    frame.loc[400::7, "street"] = "nowhere"
    reg = lvd.LVDRegressor(estimator, conformity_score="absolute", calibration=calibration, random_state=0)
    reg.fit(frame[:400], y[:400])
    levels = reg.to_onnx(tmp_path / "model.onnx").levels
    assert sorted(levels) == [2, 4]
    assert levels[2] == ("", *"012345678")
    coded = coded_frame(frame, levels)
    found = run_graph(reg, coded[400:], tmp_path / "model.onnx")
    check_same(reg, frame[400:], found)
    assert not found["known"][::7].any()
    assert found["known"].any()
    odd = coded[400:403]
    odd[:, 2] = [np.nan, 99.0, -7.0]
    assert not run_graph(reg, odd, tmp_path / "model.onnx")["known"].any()


def test_one_hot_columns_without_any_other():
    from lvd.onnx.graph import Graph

    graph = Graph()
    node = undo_hot_columns(graph.input("X"), [(0, 3)], 3)
    shape = {"X": (graph.input("X"), ["rows", 3])}
    model = graph.model(shape, {"codes": (node, ["rows", 1])}, text="", facts={})
    session = onnxruntime.InferenceSession(model.SerializeToString())
    rows = np.array([[0.0, 1.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, 1.0, 1.0]])
    np.testing.assert_array_equal(session.run(None, {"X": rows})[0], [[1.0], [np.nan], [2.0], [1.0]])
