"""Of very many rows a part teaches what is learned about errors, and a part calibrates."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest
from sklearn.linear_model import Ridge
from sklearn.tree import DecisionTreeRegressor

import lvd
from lvd.calibration import calibration_rows
from lvd.methods import conformal
from lvd.scores import scaled
from lvd.scores import score as scores
from lvd.scores.scaled import MANY_ROWS, MOST_STEPS, Schedule, scale_schedule
from lvd.scores.score import EvaluatedRows, TrainingRows
from lvd.tables import splits
from lvd.wrap import as_model

RNG = np.random.default_rng(0)
X = RNG.normal(size=(400, 3))
Y = X[:, 0] + RNG.normal(size=400)


class Counted(Ridge):
    """Which rows each model was trained on."""

    seen: ClassVar[list[int]] = []

    def fit(self, X: Any, y: Any) -> Any:
        Counted.seen.append(len(X))
        return super().fit(X, y)


def training(estimator: Any, **kept: Any) -> TrainingRows:
    model = as_model(estimator, prefit=False, device="cpu", random_state=0)
    model.fit(X, Y[:, None])
    return TrainingRows(EvaluatedRows(X, model.evaluate(X)), Y[:, None], model, "cpu", 0, **kept)


@pytest.mark.parametrize(("n_learned", "n_models"), [(300, 4), (80, 1), (10, 1)])
def test_as_few_models_as_hold_out_enough_rows(
    n_learned: int, n_models: int, monkeypatch: pytest.MonkeyPatch, full_training: None
) -> None:
    monkeypatch.setattr(scores, "LEARNED_ROWS", n_learned)
    every = training(Counted())
    Counted.seen.clear()
    part = every.part_to_learn_from()
    assert Counted.seen == [320] * n_models
    assert part.y.shape == (n_learned, 1)
    assert np.isfinite(part.held_out_predictions).all()
    assert Counted.seen == [320] * n_models, "what was held out already is not predicted again"


def test_its_errors_are_those_of_models_that_have_not_seen_the_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scores, "LEARNED_ROWS", 150)
    part = training(DecisionTreeRegressor(random_state=0)).part_to_learn_from()
    assert np.abs(part.errors).max() == 0.0, "the model itself knows its training rows by heart"
    assert np.median(np.abs(part.held_out_errors)) > 0.5


def test_few_rows_and_folds_that_calibrate_stay_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    every = training(Ridge())
    assert every.part_to_learn_from() is every
    monkeypatch.setattr(scores, "LEARNED_ROWS", 50)
    folds = scores.held_out_folds(len(Y), 0)
    crossed = training(Ridge(), folds=folds)
    assert crossed.part_to_learn_from() is crossed


def test_the_papers_kernel_learns_from_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scores, "LEARNED_ROWS", 50)
    kernel = lvd.MahalanobisKernel(2, max_iter=2)
    for preset, n_rows in (("paper", 300), ("default", 50)):
        reg = lvd.LVDRegressor(Ridge(), preset=preset, kernel=kernel, random_state=0).fit(X, Y)
        assert len(reg.kernels_[0].train_points_) == n_rows


def test_a_bounded_number_of_rows_is_set_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conformal, "MOST_SET_ASIDE", 60)
    monkeypatch.setattr(splits, "MOST_SET_ASIDE", 60)
    assert lvd.SplitConformalRegressor(Ridge(), random_state=0).fit(X, Y).n_calib_ == 60
    assert lvd.SplitConformalRegressor(Ridge(), calib_size=0.5, random_state=0).fit(X, Y).n_calib_ == 200
    assert [len(part) for part in splits.random_parts(400, 0)] == [260, 60, 80]


def test_tables_of_ordinary_size_are_split_as_before() -> None:
    assert calibration_rows.MOST_SET_ASIDE == 50_000
    for n_rows in (308, 1000, 9568, 250_000):
        for now, before in zip(splits.random_parts(n_rows, 3), splits.split_indices(n_rows, 3), strict=True):
            np.testing.assert_array_equal(now, before)


def test_networks_of_scales_take_bounded_steps() -> None:
    assert scale_schedule(MANY_ROWS) == Schedule()
    for n_rows in (MANY_ROWS + 1, 30_000, 1_000_000):
        schedule = scale_schedule(n_rows)
        assert schedule.epochs == 1 or schedule.epochs * n_rows / schedule.batch <= MOST_STEPS


def test_networks_of_scales_learn_from_a_part_and_measure_all(
    monkeypatch: pytest.MonkeyPatch, full_training: None
) -> None:
    errors = np.where(X[:, 0] > 0, 1.0, 0.1) * np.abs(RNG.normal(size=400))
    monkeypatch.setattr(scaled, "NETWORK_ROWS", 250)
    seen: list[int] = []
    trained = scaled.train_fold_networks

    def note(fresh: Any, inputs: Any, *given: Any, **named: Any) -> Any:
        seen.append(len(inputs))
        return trained(fresh, inputs, *given, **named)

    monkeypatch.setattr(scaled, "train_fold_networks", note)
    found = scaled.NetworkScale().fit(4.0 * X, errors, 0)
    assert seen == [250]
    assert found.shape == (400,)
    assert np.median(found[X[:, 0] > 0]) > 2 * np.median(found[X[:, 0] < 0])
