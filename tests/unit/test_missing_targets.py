"""Several targets of which some are not known: each is learned and calibrated by the rows that have it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import lvd
from lvd.models.candidates import Candidates
from lvd.models.losses import SquaredLoss, known_mean
from lvd.wrap import as_model

RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, size=(900, 3))
Y = np.column_stack([X[:, 0] + 0.3 * RNG.normal(size=900), X[:, 1] * (1 + 2 * RNG.normal(size=900))])
TRAIN, CALIB, NEW = np.arange(400), np.arange(400, 800), X[800:]
HOLES = Y.copy()
HOLES[::2, 1] = np.nan
HOLES[1::5, 0] = np.nan
SHORT = lvd.MahalanobisKernel(max_iter=20)


def predict_both(rows):
    return rows[:, :2]


def predict_second(rows):
    return rows[:, 1:2]


def embed(rows):
    return rows


def regressor(predict=predict_both, **changes):
    settings = {"preset": "paper", "kernel": SHORT, "calib_size": None, "random_state": 0} | changes
    return lvd.LVDRegressor((predict, embed), prefit=True, **settings)


def fitted(**changes):
    return regressor(**changes).fit(X[TRAIN], HOLES[TRAIN]).conformalize(X[CALIB], HOLES[CALIB])


def test_each_target_is_as_if_only_its_rows_were_there():
    known = ~np.isnan(HOLES[:, 1])
    train, calib = TRAIN[known[TRAIN]], CALIB[known[CALIB]]
    alone = regressor(predict_second).fit(X[train], HOLES[train, 1]).conformalize(X[calib], HOLES[calib, 1])
    both = fitted()
    np.testing.assert_array_equal(both.predict_interval(NEW)[1][..., 1], alone.predict_interval(NEW)[1])
    assert (both.predict_interval(NEW)[1] != fitted_whole().predict_interval(NEW)[1]).any(0).all()


def fitted_whole():
    return regressor().fit(X[TRAIN], Y[TRAIN]).conformalize(X[CALIB], Y[CALIB])


@pytest.mark.parametrize("score", ["scaled", "sided", "signed"])
def test_scores_learn_from_the_rows_that_have_the_target(score):
    method = fitted(preset="default", conformity_score=score, when_unknown="widen")
    intervals = method.predict_interval(NEW, 0.8)[1]
    inside = (intervals[:, 0, 0] <= Y[800:]) & (Y[800:] <= intervals[:, 1, 0])
    assert (inside.mean(0) > 0.7).all()


def test_explanations_count_among_all_calibration_rows():
    for explanation in fitted().explain(NEW[:5], n_neighbors=4):
        for neighbor in explanation.evidence.neighbors:
            assert neighbor.target == HOLES[CALIB][neighbor.index, explanation.target]


def test_updates_and_what_is_forgotten_follow_the_rows():
    first = regressor().fit(X[TRAIN], HOLES[TRAIN]).conformalize(X[CALIB[:200]], HOLES[CALIB[:200]])
    updated = first.update(X[CALIB[200:]], HOLES[CALIB[200:]])
    np.testing.assert_array_equal(updated.predict_interval(NEW)[1], fitted().predict_interval(NEW)[1])
    newest = regressor().fit(X[TRAIN], HOLES[TRAIN]).conformalize(X[CALIB[-150:]], HOLES[CALIB[-150:]])
    np.testing.assert_array_equal(
        updated.forget(150).predict_interval(NEW)[1], newest.predict_interval(NEW)[1]
    )


@pytest.mark.parametrize("score", ["absolute", "sided"])
def test_distributions_and_saving(score, tmp_path):
    method = fitted(conformity_score=score)
    method.save(tmp_path / "model")
    loaded = lvd.load(tmp_path / "model", estimator=(predict_both, embed))
    np.testing.assert_array_equal(loaded.predict_interval(NEW)[1], method.predict_interval(NEW)[1])
    np.testing.assert_array_equal(loaded.y_calib_, HOLES[CALIB])
    assert loaded.predict_quantiles(NEW, [0.5]).shape == (100, 1, 2)
    places, masses = loaded.predict_distribution(NEW).atoms()
    np.testing.assert_allclose(masses.sum(axis=1), 1.0)
    fewer = int(np.isnan(HOLES[CALIB]).sum(0).argmax())
    assert places[:, -2, fewer].min() == np.inf > places[:, -2, 1 - fewer].max()
    assert masses[:, -2, fewer].max() == 0.0
    # The median is where half of the mass is reached.
    order = places.argsort(axis=1)
    places, masses = (np.take_along_axis(part, order, axis=1) for part in (places, masses))
    reached = np.argmax(masses.cumsum(axis=1) >= 0.5, axis=1)
    median = np.take_along_axis(places, reached[:, None], axis=1)
    np.testing.assert_allclose(median, loaded.predict_quantiles(NEW, [0.5]))


def test_groups_follow_the_rows():
    labels = np.where(X[:, 2] > 0, "right", "left")
    method = regressor().fit(X[TRAIN], HOLES[TRAIN])
    method.conformalize(X[CALIB], HOLES[CALIB], groups=labels[CALIB].tolist())
    assert np.isfinite(method.predict_interval(NEW, 0.5, groups=labels[800:])[1]).any()


@pytest.mark.parametrize("method", [lvd.SplitConformalRegressor, lvd.LVDRegressor])
def test_what_cannot_be_is_refused(method):
    with pytest.raises(lvd.InputError, match="y contains 180 NaN"):
        method((predict_second, embed), prefit=True).fit(X, HOLES[:, 0])  # rows without any target
    infinite = HOLES.copy()
    infinite[3, 1] = np.inf
    with pytest.raises(lvd.InputError, match="y contains 1 NaN or infinity values"):
        method((predict_both, embed), prefit=True).fit(X, infinite)
    nothing = HOLES.copy()
    nothing[:, 1] = np.nan
    with pytest.raises(lvd.InputError, match="target 1 is known for none of"):
        method((predict_both, embed), prefit=True, random_state=0).fit(X, nothing).conformalize(
            X + 9, nothing
        )


class TestModels:
    """What is trained here learns each target from the rows that have it."""

    @pytest.mark.parametrize(
        "estimator",
        [lvd.TreesRegressor(max_iter=10, random_state=0), Ridge(), make_pipeline(StandardScaler(), Ridge())],
    )
    def test_targets_apart_are_as_if_alone(self, estimator):
        model = as_model(estimator)
        both = model.fit(X[TRAIN], HOLES[TRAIN]).evaluate(NEW)
        assert both.embeddings.shape[1] >= 3
        for target in range(2):
            some = TRAIN[~np.isnan(HOLES[TRAIN, target])]
            alone = as_model(estimator).fit(X[some], HOLES[some, target, None]).evaluate(NEW)
            np.testing.assert_array_equal(both.y_pred[:, [target]], alone.y_pred)

    @pytest.mark.parametrize("settings", [{"n_batches": 300}, {"hidden_sizes": (32,)}])
    def test_a_network_learns_what_is_known(self, settings):
        y = np.column_stack([X[:, 0], 100.0 * X[:, 1]])
        holes = np.where(np.isnan(HOLES), np.nan, y)
        net = lvd.NetRegressor(**settings, device="cpu", random_state=0).fit(X[TRAIN], holes[TRAIN])
        errors = np.abs(net.predict(NEW) - y[800:]).mean(0) / y.std(0)
        assert (errors < 0.15).all()
        spoilt = np.where(np.isnan(HOLES), 0.0, y)  # unknown targets taken for zeros
        wrong = lvd.NetRegressor(**settings, device="cpu", random_state=0).fit(X[TRAIN], spoilt[TRAIN])
        assert np.abs(wrong.predict(NEW) - y[800:]).mean(0)[1] / y.std(0)[1] > 0.25

    def test_the_loss_is_the_mean_over_known_targets(self):
        outputs, nan = torch.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True), float("nan")
        value = known_mean(SquaredLoss(), outputs, torch.tensor([[0.0, nan], [1.0, 1.0]]))
        value.backward()
        assert value.item() == pytest.approx((1.0 + 4.0 + 9.0) / 3)
        assert outputs.grad.tolist() == [
            [pytest.approx(2 / 3), 0.0],
            [pytest.approx(4 / 3), pytest.approx(2.0)],
        ]
        assert known_mean(SquaredLoss(), outputs, torch.full((2, 2), nan)).item() == 0.0

    def test_the_better_of_two_is_chosen_by_known_targets(self):
        models = {"net": as_model(Ridge()), "trees": as_model(lvd.TreesRegressor(max_iter=5))}
        choice = Candidates(models).choose(X[TRAIN], HOLES[TRAIN], 0)
        assert choice.model is models["net"]
        assert np.isfinite(list(choice.errors.values())).all()

    @pytest.mark.parametrize(
        "method", [lvd.LVDRegressor, lvd.MADSplitRegressor, lvd.ConformalizedQuantileRegressor]
    )
    def test_methods_train_networks_on_them(self, method):
        net = lvd.NetRegressor(n_batches=100, device="cpu")
        fitted = method(net, random_state=0).fit(X, HOLES)
        assert fitted.predict_interval(NEW)[1].shape == (100, 2, 1, 2)

    def test_saved_with_an_estimator_for_each_target(self, tmp_path):
        pytest.importorskip("skops")
        method = lvd.SplitConformalRegressor(Ridge(), random_state=0).fit(X, HOLES)
        method.save(tmp_path / "model")
        loaded = lvd.load(tmp_path / "model")
        np.testing.assert_array_equal(loaded.predict_interval(NEW)[1], method.predict_interval(NEW)[1])

    @pytest.mark.parametrize("estimator", [lvd.NetRegressor(), lvd.TreesRegressor(), Ridge()])
    def test_a_target_without_rows_is_told(self, estimator):
        nothing = HOLES.copy()
        nothing[:, 1] = np.nan
        with pytest.raises(lvd.InputError, match="target 1 is known for none of 900 rows"):
            as_model(estimator).fit(X, nothing)

    def test_a_loss_of_ones_own_is_refused(self):
        net = lvd.NetRegressor(loss=torch.nn.functional.l1_loss, n_batches=5, device="cpu")
        with pytest.raises(lvd.InputError, match="which a loss of your own cannot leave out"):
            net.fit(X, HOLES)
        with pytest.raises(lvd.InputError, match="y contains 180 NaN"):
            lvd.NetRegressor().fit(X, HOLES[:, 0])  # rows without any target


def test_too_few_rows_of_one_target_are_warned_of():
    few = HOLES.copy()
    few[405:800, 1] = np.nan
    with pytest.warns(
        lvd.CalibrationWarning, match="at least 9 calibration rows, and there are 2; give more"
    ):
        regressor().fit(X[TRAIN], few[TRAIN]).conformalize(X[CALIB], few[CALIB])
