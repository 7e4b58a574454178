"""The ways in which people come to lvd, each from its first step to its last."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from torch import nn

import lvd
from messy import write_messy

N, N_TRAIN, N_CALIB = 300, 120, 110
RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, size=(N, 4))
Y = 2.0 * X[:, 0] + np.where(X[:, 1] > 0, 0.5, 0.1) * RNG.normal(size=N)
TRAIN, CALIB, TEST = slice(N_TRAIN), slice(N_TRAIN, N_TRAIN + N_CALIB), slice(N_TRAIN + N_CALIB, N)


def trained(module, *inputs):
    """The module after a few steps on the training rows."""
    torch.manual_seed(0)
    for layer in module.modules():
        if hasattr(layer, "reset_parameters"):
            layer.reset_parameters()
    optimizer, targets = torch.optim.Adam(module.parameters(), lr=0.02), torch.tensor(Y[TRAIN, None]).float()
    rows = [torch.tensor(one[TRAIN]).float() for one in inputs]
    for _ in range(60):
        optimizer.zero_grad()
        nn.functional.mse_loss(module(*rows), targets).backward()
        optimizer.step()
    return module.eval()


class Joined(nn.Module):
    """Two inputs."""

    def __init__(self):
        super().__init__()
        self.inner, self.head = nn.Linear(4, 16), nn.Linear(16, 1)

    def forward(self, left, right):
        return self.head(torch.relu(self.inner(torch.cat([left, right], dim=1))))


class Sequences(nn.Module):
    """An LSTM over the numbers of a row."""

    def __init__(self):
        super().__init__()
        self.lstm, self.head = nn.LSTM(1, 8, batch_first=True), nn.Linear(8, 1)

    def forward(self, steps):
        return self.head(self.lstm(steps)[0][:, -1])


def two_inputs():
    return trained(Joined(), X[:, :2], X[:, 2:]), (X[:, :2], X[:, 2:])


def pipeline():
    frame = pd.DataFrame(X, columns=list("abcd")).assign(town=np.where(X[:, 1] > 0, "north", "south"))
    frame.loc[::9, "c"] = np.nan
    coding = make_column_transformer(
        (OneHotEncoder(), ["town"]), (SimpleImputer(), ["c"]), remainder="passthrough"
    )
    return make_pipeline(coding, HistGradientBoostingRegressor(max_iter=20)).fit(
        frame[TRAIN], Y[TRAIN]
    ), frame


def lightgbm():
    library = pytest.importorskip("lightgbm", reason="needs lightgbm, from the test extra")
    return library.LGBMRegressor(n_estimators=30, verbosity=-1, n_jobs=1).fit(X[TRAIN], Y[TRAIN]), X


def function():
    return (lambda rows: 2.0 * rows[:, 0]), X


def skorch():
    library = pytest.importorskip("skorch", reason="needs skorch, from the test extra")
    net = library.NeuralNetRegressor(
        nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1)), max_epochs=20, lr=0.1, verbose=0
    )
    return net.fit(X[TRAIN].astype(np.float32), Y[TRAIN, None].astype(np.float32)), X


def embeddings_and_a_head():
    embeddings = np.tanh(X @ np.random.default_rng(1).normal(size=(4, 16)))  # of some large network
    head = Ridge(alpha=0.01).fit(embeddings[TRAIN], Y[TRAIN])
    return (head.predict, lambda rows: rows), embeddings


def onnx():
    for name in ("onnx", "onnxruntime"):
        pytest.importorskip(name, reason=f"needs {name}, from the onnx extra")
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper

    ridge = Ridge().fit(X[TRAIN], Y[TRAIN])
    arrays = {"w": ridge.coef_[:, None].astype(np.float32), "b": np.float32([ridge.intercept_])}
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["xw"]), helper.make_node("Add", ["xw", "b"], ["y"])],
        "ridge",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, 1])],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return (lambda rows: session.run(None, {"x": rows.astype(np.float32)})[0][:, 0]), X


def cnn():
    images = X.reshape(N, 1, 2, 2)
    layers = (nn.Conv2d(1, 8, 2), nn.Flatten(), nn.ReLU(), nn.Linear(8, 1))
    return trained(nn.Sequential(*layers), images), images


def lstm():
    return trained(Sequences(), X[:, :, None]), X[:, :, None]


BROUGHT = (two_inputs, pipeline, lightgbm, function, skorch, embeddings_and_a_head, onnx, cnn, lstm)


def some(rows, part):
    return tuple(one[part] for one in rows) if isinstance(rows, tuple) else rows[part]


@pytest.mark.filterwarnings("ignore::lvd.methods.conformal.InterpolationWarning")
@pytest.mark.parametrize("make", BROUGHT, ids=lambda make: make.__name__)
def test_a_model_of_ones_own(make):
    """Given as it is, it gets intervals that hold and a sentence for each row."""
    model, rows = make()
    kernel = lvd.MahalanobisKernel(2, max_iter=5, device="cpu")
    reg = lvd.LVDRegressor(model, prefit=True, kernel=kernel, device="cpu", random_state=0)
    reg.fit(some(rows, TRAIN), Y[TRAIN]).conformalize(some(rows, CALIB), Y[CALIB])
    new = some(rows, TEST)
    y_pred, intervals = reg.predict_interval(new, [0.5, 0.9])
    assert intervals.shape == (len(Y[TEST]), 2, 2)
    coverage = lvd.metrics.marginal_coverage_rate(Y[TEST], intervals[:, :, 1])
    assert 0.75 < coverage <= 1.0
    assert lvd.metrics.mean_absolute_deviation(Y[TEST], y_pred) < 0.8
    assert reg.explain(some(rows, slice(-1, None)))[0].sentence.endswith(".")


class TestQuickTour:
    def test_of_the_command_line(self, lvd_here, homes, tmp_path):
        for words, said in (
            (("predict", homes.model, homes.new, "--out", tmp_path / "out.csv"), "rows"),
            (("evaluate", homes.model, homes.new, "--by", "district"), "coverage by district"),
            (("explain", homes.model, homes.new, "--row", 3), "similar calibration rows"),
        ):
            outcome = lvd_here(*words)
            assert outcome.code == 0, outcome.err
            assert said in outcome.out

    def test_and_of_python_with_the_same_model(self, homes, tmp_path):
        frame = pd.read_csv(homes.new)
        reg = lvd.load(homes.model)
        y_pred, intervals = reg.predict_interval(frame)
        assert len(y_pred) == len(intervals) == len(frame)
        verdict = reg.report(frame, frame["price"], tmp_path / "page.html", by=["district"])
        assert verdict.sentence in (tmp_path / "page.html").read_text()


@pytest.mark.filterwarnings("ignore::lvd.CalibrationWarning")
def test_a_messy_table(lvd_here, tmp_path):
    """Holes, dates, an identifier and copies: one command reads it, the same verbs work on what it writes."""
    write_messy(tmp_path / "sales.csv", 250, n_cities=8)
    fit = lvd_here(
        *("fit", tmp_path / "sales.csv", "--target", "price", "--drop", "fee", "--impute", "median"),
        *(
            "--preset",
            "paper",
            "--epochs",
            2,
            "--test-out",
            tmp_path / "test.csv",
            "--out",
            tmp_path / "model",
        ),
    )
    assert fit.code == 0, fit.err
    predict = lvd_here("predict", tmp_path / "model", tmp_path / "test.csv", "--out", tmp_path / "out.csv")
    assert predict.code == 0, predict.err
    written = pd.read_csv(tmp_path / "out.csv")
    y_pred = lvd.load(tmp_path / "model").predict(pd.read_csv(tmp_path / "test.csv"))
    np.testing.assert_allclose(written["y_pred"], y_pred)


def test_small_data():
    """Sixty rows: every one trains and calibrates, and few ordinary rows are unknown."""
    reg = lvd.LVDRegressor(Ridge(), calibration="cross", device="cpu", random_state=0).fit(X[:60], Y[:60])
    assert reg.n_calib_ == 60
    assert "cross-validated" in reg.promise
    found = reg.predict_with_evidence(X[60:])
    assert found.known.mean() > 0.97
    assert lvd.metrics.marginal_coverage_rate(Y[60:], found.intervals) > 0.82


def test_production(homes, tmp_path):
    """A saved model answers single rows, watches labelled ones, learns from them and is saved again."""
    frame = pd.read_csv(homes.new)
    served = lvd.load(homes.model)
    row = frame.drop(columns="price").to_dict("records")[0]
    np.testing.assert_array_equal(served.predict([row]), served.predict(frame[:1]))
    watch = served.monitor(random_state=0).take(frame[:60], frame["price"][:60])
    assert not watch.alarm
    before = served.n_calib_
    served.update(frame[:60], frame["price"][:60]).save(tmp_path / "next")
    again = lvd.load(tmp_path / "next")
    assert again.n_calib_ == before + 60
    np.testing.assert_array_equal(again.predict_interval(frame)[1], served.predict_interval(frame)[1])


def test_comparison_with_others(tmp_path):
    """MAPIE's and crepes' intervals are judged on the same page as ours."""
    mapie = pytest.importorskip("mapie.regression", reason="needs MAPIE, from the test extra")
    crepes = pytest.importorskip("crepes", reason="needs crepes, from the test extra")
    levels, ridge = [0.9, 0.5], Ridge().fit(X[TRAIN], Y[TRAIN])
    theirs = mapie.SplitConformalRegressor(ridge, confidence_level=levels, prefit=True).conformalize(
        X[CALIB], Y[CALIB]
    )
    wrapped = crepes.WrapRegressor(ridge)
    wrapped.calibrate(X[CALIB], Y[CALIB])
    ours = (
        lvd.SplitConformalRegressor(ridge, prefit=True)
        .fit(X[TRAIN], Y[TRAIN])
        .conformalize(X[CALIB], Y[CALIB])
    )
    y_pred, intervals = theirs.predict_interval(X[TEST])
    judged = [
        lvd.report(
            Y[TEST], y_pred, intervals, X=X[TEST], path=tmp_path / "mapie.html", confidence_level=levels
        ),
        lvd.report(
            Y[TEST], y_pred, wrapped.predict_int(X[TEST], confidence=0.9), path=tmp_path / "crepes.html"
        ),
        ours.report(X[TEST], Y[TEST], tmp_path / "ours.html"),
    ]
    assert judged[0].coverage == judged[1].coverage == judged[2].coverage
    assert len({round(one.interval_score, 6) for one in judged[:2]}) == 1
