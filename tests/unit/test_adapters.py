"""Models that are not torch: what they predict, and what their embedding is."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import (
    GradientBoostingRegressor,
    HistGradientBoostingRegressor,
    RandomForestRegressor,
)
from sklearn.linear_model import Ridge
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from torch import nn

import lvd
from lvd.models import NetRegressor
from lvd.wrap import as_model


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 4))
    return X, X[:, 0] + X[:, 1] ** 2


@pytest.fixture(scope="module")
def frame(data):
    X, _ = data
    table = pd.DataFrame(X, columns=["a", "b", "c", "d"])
    table["colour"] = np.array(["red", "green", "blue"])[np.arange(120) % 3]
    return table


def wrap(estimator, **changes):
    settings = {"prefit": False, "device": "cpu", "random_state": 0}
    return as_model(estimator, **settings | changes)


def evaluate(estimator, X, y, **changes):
    model = wrap(estimator, **changes)
    return model.fit(model.check(X), y[:, None]).evaluate(model.check(X))


class TestEmbeddings:
    @pytest.mark.parametrize(
        "trees",
        [
            RandomForestRegressor(5, random_state=0),
            GradientBoostingRegressor(n_estimators=5, random_state=0),
            HistGradientBoostingRegressor(max_iter=5, random_state=0),
        ],
    )
    def test_trees_embed_inputs_and_prediction(self, data, trees):
        X, y = data
        evaluation = evaluate(trees, X, y)
        np.testing.assert_array_equal(evaluation.embeddings, np.column_stack([X, evaluation.y_pred]))

    @pytest.mark.parametrize("activation", ["relu", "tanh", "logistic", "identity"])
    def test_last_hidden_layer_of_an_mlp(self, data, activation):
        X, y = data
        mlp = MLPRegressor(hidden_layer_sizes=(7, 5), activation=activation, solver="lbfgs", random_state=0)
        mlp.set_params(tol=1e-1, max_iter=5000).fit(X, y)
        evaluation = evaluate(mlp, X, y, prefit=True)
        assert evaluation.embeddings.shape == (120, 5)
        by_hand = evaluation.embeddings @ mlp.coefs_[-1] + mlp.intercepts_[-1]
        np.testing.assert_allclose(by_hand[:, 0], mlp.predict(X), rtol=1e-10)

    def test_linear_models_embed_their_inputs(self, data):
        X, y = data
        np.testing.assert_array_equal(evaluate(Ridge(), X, y).embeddings, X)
        transformed = evaluate(make_pipeline(StandardScaler(), Ridge()), X, y).embeddings
        np.testing.assert_allclose(transformed, StandardScaler().fit_transform(X))

    def test_an_embedding_of_your_own(self, data):
        X, y = data
        embeddings = evaluate((RandomForestRegressor(5), lambda rows: rows[:, :2] * 3.0), X, y).embeddings
        np.testing.assert_array_equal(embeddings, 3.0 * X[:, :2])


class TestFrames:
    @pytest.mark.parametrize(
        ("last", "sparse_threshold"),
        [
            (Ridge(), 0.0),
            (Ridge(), 1.0),
            (RandomForestRegressor(5), 0.0),
            (RandomForestRegressor(5), 1.0),
            (HistGradientBoostingRegressor(max_iter=5), 0.0),
        ],
    )
    def test_columns_are_transformed_inside(self, frame, data, last, sparse_threshold):
        encode = ColumnTransformer(
            [("numbers", StandardScaler(), ["a", "b"]), ("words", OneHotEncoder(), ["colour"])],
            sparse_threshold=sparse_threshold,
        )
        reg = lvd.LVDRegressor(
            Pipeline([("encode", encode), ("last", last)]),
            kernel=lvd.MahalanobisKernel(2, max_iter=5),
            device="cpu",
            random_state=0,
        )
        reg.fit(frame, pd.Series(data[1]))
        y_pred, intervals = reg.predict_interval(frame)
        assert (y_pred.shape, intervals.shape) == ((120,), (120, 2, 1))
        assert reg.feature_names_in_.tolist() == list(frame.columns)

    @pytest.mark.parametrize("model", [RandomForestRegressor(5), HistGradientBoostingRegressor(max_iter=5)])
    def test_trees_fitted_on_names_are_asked_by_name(self, frame, data, model):
        numbers = frame[["a", "b", "c"]]
        assert len(evaluate(model, numbers, data[1]).embeddings) == 120

    def test_shared_rows_are_found_among_words(self, frame, data):
        reg = lvd.LVDRegressor(
            make_pipeline(ColumnTransformer([("numbers", "passthrough", ["a", "b"])]), Ridge()),
            kernel=lvd.MahalanobisKernel(2, max_iter=5),
            calib_size=None,
            device="cpu",
            random_state=0,
        ).fit(frame[:60], data[1][:60])
        with pytest.warns(lvd.CalibrationWarning, match="7 of 30 calibration rows equal a training row"):
            reg.conformalize(frame[53:83], data[1][53:83])


class TestFunctionPairs:
    def test_predict_and_embed(self, data):
        X, y = data
        evaluation = evaluate((lambda rows: rows[:, 0], lambda rows: rows[:, 1:]), X, y)
        np.testing.assert_array_equal(evaluation.y_pred[:, 0], X[:, 0])
        np.testing.assert_array_equal(evaluation.embeddings, X[:, 1:])

    def test_rows_may_be_anything_countable(self):
        words = [f"{'x' * (i % 17)}{i}" for i in range(80)]
        lengths = np.array([float(len(word)) for word in words])
        pair = (
            lambda rows: np.array([float(len(word)) for word in rows]),
            lambda rows: np.array([[len(word), word.count("x")] for word in rows], dtype=float),
        )
        reg = lvd.LVDRegressor(
            pair,
            preset="paper",
            kernel=lvd.MahalanobisKernel(2, max_iter=5),
            calib_size=None,
            device="cpu",
            random_state=0,
        )
        reg.fit(words[:30], lengths[:30]).conformalize(words[30:60], lengths[30:60])
        y_pred, intervals = reg.predict_interval(words[60:])
        np.testing.assert_array_equal(y_pred, lengths[60:])
        assert intervals.shape == (20, 2, 1)
        with pytest.warns(lvd.CalibrationWarning, match="10 of 30 calibration rows equal"):
            reg.conformalize(words[20:50], lengths[20:50])

    def test_tensors_reach_the_functions_as_tensors(self, data):
        X, y = (torch.tensor(array) for array in data)
        network = nn.Linear(4, 1).double()
        pair = (lambda rows: network(rows)[:, 0], lambda rows: rows.relu())
        reg = lvd.LVDRegressor(
            pair, kernel=lvd.MahalanobisKernel(2, max_iter=5), device="cpu", random_state=0
        )
        reg.fit(X[:60], y[:60]).conformalize(X[60:], y[60:])
        assert isinstance(reg.predict_interval(X)[1], torch.Tensor)

    def test_a_wrong_number_of_rows(self, data):
        X, y = data
        with pytest.raises(
            lvd.InputError, match=r"one row per row of X and 1 target\(s\); got \(119, 1\) and"
        ):
            evaluate((lambda rows: rows[1:, 0], lambda rows: rows), X, y)

    def test_nan_in_the_embedding(self, data):
        X, y = data
        with pytest.raises(lvd.InputError, match="the output of embed contains 480 NaN"):
            evaluate((lambda rows: rows[:, 0], lambda rows: rows * np.nan), X, y)

    def test_rows_that_cannot_be_counted(self):
        with pytest.raises(lvd.InputError, match="X must have rows that can be counted"):
            wrap((len, len)).check(3)


class TestTrainingAndSeeds:
    def test_an_estimator_is_cloned(self, data):
        X, y = data
        given = Ridge()
        evaluate(given, X, y)
        assert not hasattr(given, "coef_")

    def test_open_seeds_are_set_and_given_ones_kept(self, data):
        X, y = data
        forest = make_pipeline(StandardScaler(), RandomForestRegressor(5))
        first, second = (evaluate(forest, X, y).y_pred for _ in range(2))
        np.testing.assert_array_equal(first, second)
        assert wrap(NetRegressor(), random_state=7).random_state == 7
        assert wrap(NetRegressor(random_state=3), random_state=7).random_state == 3

    def test_a_prefit_estimator_is_used_as_it_is(self, data):
        X, y = data
        ridge = Ridge().fit(X, y)
        before = ridge.coef_.copy()
        np.testing.assert_array_equal(evaluate(ridge, X, -y, prefit=True).y_pred[:, 0], ridge.predict(X))
        np.testing.assert_array_equal(ridge.coef_, before)

    def test_a_prefit_network_is_used_as_it_is(self, data):
        X, y = data
        network = NetRegressor(n_batches=20, device="cpu", random_state=0).fit(X, y)
        expected = network.predict(X)
        np.testing.assert_array_equal(evaluate(network, X, -y, prefit=True).y_pred[:, 0], expected)
        np.testing.assert_array_equal(network.predict(X), expected)

    def test_a_prefit_network_of_another_number_of_targets(self, data):
        X, y = data
        network = NetRegressor(n_batches=2, device="cpu").fit(X, np.stack([y, y], axis=1))
        with pytest.raises(lvd.InputError, match=r"predicts 2 column\(s\), but y has 1"):
            evaluate(network, X, y, prefit=True)


class TestRefusals:
    @pytest.mark.parametrize(
        ("estimator", "changes", "message"),
        [
            ("ridge", {}, "estimator must be one of 'net', 'trees', 'paper', got 'ridge'"),
            (None, {"prefit": True}, "prefit=True needs a trained estimator; pass it as the first argument"),
            ((Ridge(), "0"), {}, "the embedding '0' names a layer, which only torch modules have; give a"),
            ((NetRegressor(), len), {}, "a NetRegressor has its own embedding; pass it alone"),
            (
                (nn.Linear(2, 1), len),
                {},
                "must be the name of the layer whose input it is, got builtin_function",
            ),
            (("auto", len), {}, "estimator must be one of 'net', 'trees', 'paper', got 'auto'"),
            ((Ridge(), 3), {}, "or a pair of one of these and its embedding, got a pair with int"),
            ([len], {}, "or a pair of one of these and its embedding, got list"),
        ],
    )
    def test_combinations(self, estimator, changes, message):
        with pytest.raises(lvd.InputError, match=message):
            wrap(estimator, **changes)

    def test_another_number_of_columns(self, data):
        X, y = data
        model = wrap(Ridge())
        model.fit(model.check(X), y[:, None])
        with pytest.raises(lvd.InputError, match="X has 2 features, but lvd is expecting 4"):
            model.check(X[:, :2])

    def test_predictions_of_another_width(self, data):
        X, y = data
        ridge = Ridge().fit(X, np.stack([y, y], axis=1))
        with pytest.raises(lvd.InputError, match=r"the estimator predicts 2 column\(s\), but y has 1"):
            evaluate(ridge, X, y, prefit=True)
