"""Whether a row is known: far rows are told, ordinary ones are not called unknown too often."""

from __future__ import annotations

import numpy as np
import pytest

import lvd
from lvd.conformal.familiar import BEYOND, Familiarity


def test_few_ordinary_rows_are_called_unknown(rng):
    rows = rng.normal(size=(20_000, 3))
    familiarity = Familiarity.of([rows[:4000], rows[:4000, :2]], 0)
    unknown = ~familiarity.known([rows[4000:], rows[4000:, :2]])
    assert 0.0 < unknown.mean() < 1.5 * BEYOND


def test_near_in_one_space_is_enough_unless_the_row_is_very_far_in_another(rng):
    rows = rng.normal(size=(500, 2))
    rows[-1] = 6.0  # an outlier, so that what is near is well defined
    familiarity = Familiarity.of([rows, rows[:, :1]], 0)
    up = np.array([0.0, familiarity.spaces[0].limit])
    top = rows[np.argmax(rows[:-1, 1])]
    asked = np.array([[0.0, 0.0], top + 1.5 * up, top + 3.0 * up, [9.0, 9.0], [1e200, 0.0]])
    assert familiarity.known([asked, asked[:, :1]]).tolist() == [True, True, False, False, False]


def test_rows_that_are_all_the_same():
    familiarity = Familiarity.of([np.ones((30, 2))], 0)
    assert familiarity.known([np.array([[1.0, 1.0], [1.0, 1.1]])]).tolist() == [True, False]


@pytest.fixture(scope="module")
def fitted():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 2))
    network = lvd.NetRegressor(n_batches=100, random_state=0).fit(X[:400], X[:400, 0])
    score = lvd.scores.ScaledResidual(("kernel",))
    reg = lvd.LVDRegressor(network, prefit=True, calib_size=None, conformity_score=score, random_state=0)
    return reg.fit(X[:400], X[:400, 0]).conformalize(X[400:], X[400:, 0])


class TestInTheRegressor:
    def test_a_row_far_out_is_unknown_and_infinite(self, fitted):
        known = fitted.predict_with_evidence([[0.0, 0.0], [50.0, 50.0]]).known
        finite = np.isfinite(fitted.predict_interval([[0.0, 0.0], [50.0, 50.0]])[1]).all((1, 2))
        assert known.tolist() == finite.tolist() == [True, False]

    def test_or_as_wide_as_the_calibration_rows_say(self, fitted):
        fitted.set_params(when_unknown="widen")
        prediction = fitted.predict_with_evidence([[4.0, 4.0]])
        fitted.set_params(when_unknown=None)
        assert not prediction.known[0]
        assert np.isfinite(prediction.intervals).all()

    def test_the_sentence_says_so(self, fitted):
        (explanation,) = fitted.explain([[50.0, 50.0]])
        assert (
            explanation.sentence
            == "Unknown: no training row is near this one, so it gets no finite interval."
        )


def test_concrete_older_than_any_seen(shared_dir):
    """Trained and calibrated without concrete of 90 days and more, at least 90% of those rows are unknown."""
    data = lvd.data.load("concrete", data_dir=shared_dir / "data")
    old = data.X[:, 7] >= 90
    told, mistaken = [], []
    for seed in range(3):
        young = np.random.default_rng(seed).permutation(np.flatnonzero(~old))
        train, test = young[: int(0.8 * len(young))], young[int(0.8 * len(young)) :]
        reg = lvd.LVDRegressor(preset="paper", random_state=seed).fit(data.X[train], data.y[train])
        told.append(1.0 - reg.predict_with_evidence(data.X[old]).known.mean())
        mistaken.append(1.0 - reg.predict_with_evidence(data.X[test]).known.mean())
    assert np.mean(told) >= 0.9
    assert np.mean(mistaken) <= 0.02
