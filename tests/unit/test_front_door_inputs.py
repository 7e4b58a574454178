"""What people hand in first: several inputs, batches, classifiers, weights of rows and a number of jobs."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

import lvd

RNG = np.random.default_rng(0)
LEFT, RIGHT = RNG.normal(size=(120, 2)), RNG.normal(size=(120, 3))
X = np.column_stack([LEFT, RIGHT])
Y = LEFT[:, 0] + 0.1 * RNG.normal(size=120)


class Joined(nn.Module):
    """Two inputs, by their names."""

    def __init__(self):
        super().__init__()
        self.inner, self.head = nn.Linear(5, 8), nn.Linear(8, 1)

    def forward(self, left, right):
        return self.head(torch.relu(self.inner(torch.cat([left, right], 1))))


class Batched(Joined):
    """The same of a batch, as data loaders give them."""

    def forward(self, batch):
        return super().forward(batch["left"], batch["right"])


def calibrated(module, rows):
    return (
        lvd.LVDRegressor(module, prefit=True, device="cpu", random_state=0).fit(rows, Y).conformalize(rows, Y)
    )


@pytest.fixture(scope="module")
def modules():
    joined, batched = Joined(), Batched()
    batched.load_state_dict(joined.state_dict())
    return joined, batched


@pytest.mark.filterwarnings("ignore::lvd.SharedRowsWarning")
class TestSeveralInputs:
    ROWS = {"left": LEFT, "right": RIGHT}  # noqa: RUF012

    def test_a_tuple_a_dict_and_a_batch_are_the_same(self, modules):
        joined, batched = modules
        expected = calibrated(joined, self.ROWS).predict_interval(self.ROWS)[1]
        np.testing.assert_array_equal(
            calibrated(joined, (LEFT, RIGHT)).predict_interval((LEFT, RIGHT))[1], expected
        )
        np.testing.assert_array_equal(calibrated(batched, self.ROWS).predict_interval(self.ROWS)[1], expected)

    def test_a_tuple_needs_an_argument_for_each(self, modules):
        with pytest.raises(
            lvd.InputError, match=r"a tuple of 3 arrays, and the module takes 2 argument\(s\): left, right"
        ):
            calibrated(modules[0], (LEFT, RIGHT, RIGHT))
        with pytest.raises(lvd.InputError, match="the module takes any number of arguments; give a dict"):
            calibrated(Anything(), (LEFT, RIGHT))


class Anything(nn.Module):
    """Arguments without names."""

    def forward(self, *inputs):
        return inputs[0]


@pytest.mark.parametrize("prefit", [True, False])
@pytest.mark.parametrize(
    "make", [LogisticRegression, lambda: make_pipeline(StandardScaler(), RandomForestClassifier(2))]
)
def test_a_classifier_is_refused(make, prefit):
    classifier, classes = make(), (Y > 0).astype(int)
    classifier = classifier.fit(X, classes) if prefit else classifier
    with pytest.raises(
        lvd.InputError, match="is a classifier, whose classes have no intervals; give a regressor"
    ):
        lvd.LVDRegressor(classifier, prefit=prefit).fit(X, classes)


class TestWeightsOfRows:
    @pytest.mark.parametrize(
        "estimator",
        [
            "trees",
            LinearRegression(),
            make_pipeline(StandardScaler(), HistGradientBoostingRegressor(max_iter=5)),
        ],
        ids=["trees", "linear", "pipeline"],
    )
    @pytest.mark.parametrize("method", [lvd.LVDRegressor, lvd.SplitConformalRegressor])
    def test_rows_of_weight_0_teach_nothing(self, method, estimator):
        weight = (np.arange(120) % 2).astype(float)
        spoiled = np.where(weight > 0, Y, 50.0)
        plain, weighted = (
            method(estimator, random_state=0).fit(X, spoiled, sample_weight=given) for given in (None, weight)
        )
        assert weighted.predict(X).max() < 5.0 < plain.predict(X).mean()

    def test_held_out_errors_are_those_of_weighted_models(self):
        seen = []

        class Watched(LinearRegression):
            def fit(self, X, y, sample_weight=None):
                seen.append(sample_weight)
                return super().fit(X, y, sample_weight)

        lvd.LVDRegressor(Watched(), calibration="split", random_state=0).fit(
            X, Y, sample_weight=np.arange(1.0, 121.0)
        )
        whole, *folds = seen
        assert len(whole) == 90
        assert len(folds) > 1
        assert all(set(one) < set(whole) for one in folds)

    @pytest.mark.parametrize(
        ("estimator", "weight", "said"),
        [
            (None, np.ones(120), "sample_weight is for estimators that are trained here and take it"),
            ("trees", np.ones(3), "X has 120, sample_weight has 3"),
            ("trees", np.zeros(120), "must not be negative, nor 0 in every row"),
            ("trees", -np.ones(120), "must not be negative"),
        ],
    )
    def test_others_are_refused(self, estimator, weight, said):
        with pytest.raises(lvd.InputError, match=said):
            lvd.LVDRegressor(estimator).fit(X, Y, sample_weight=weight)


class Foreign:
    """A model of another library, with nothing but the two methods."""

    def fit(self, X, y):
        self.weights = np.linalg.lstsq(X, y, rcond=None)[0]
        return self

    def predict(self, X):
        return X @ self.weights


class TestModelsOfOtherLibraries:
    def test_a_trained_one_is_given_again(self, tmp_path):
        model = Foreign().fit(X[:60], Y[:60])
        reg = lvd.SplitConformalRegressor(model, prefit=True).fit(X[:60], Y[:60]).conformalize(X[60:], Y[60:])
        reg.save(tmp_path / "model")
        loaded = lvd.load(tmp_path / "model", estimator=model)
        np.testing.assert_array_equal(loaded.predict_interval(X)[1], reg.predict_interval(X)[1])
        with pytest.raises(
            lvd.InputError, match="made with Foreign as estimator=, which is not in the folder: give"
        ):
            lvd.load(tmp_path / "model")

    def test_one_that_lvd_has_trained_is_not_saved(self, tmp_path):
        reg = lvd.SplitConformalRegressor(Foreign()).fit(X, Y)
        with pytest.raises(lvd.InputError, match="train such a model first, and give it with prefit=True"):
            reg.save(tmp_path / "model")


def test_jobs_change_nothing_but_the_time():
    one, two = (
        lvd.LVDRegressor(lvd.TreesRegressor(max_iter=5), n_jobs=n, random_state=0)
        .fit(X, Y)
        .predict_interval(X)[1]
        for n in (None, 2)
    )
    np.testing.assert_array_equal(one, two)
    with pytest.raises(lvd.InputError, match="n_jobs must be"):
        lvd.LVDRegressor(n_jobs=0).fit(X, Y)
