"""Explanations, and calibration sets that grow and forget."""

from __future__ import annotations

import math

import numpy as np
import pytest

import lvd
from lvd.engine.quantiles import rows_missing


def identity_kernel(n_columns=1):
    return lvd.MahalanobisKernel.from_components(
        np.eye(n_columns), mean=np.zeros(n_columns), scale=np.ones(n_columns), distance="sum"
    )


@pytest.fixture
def conformal(rng):
    return lvd.LocalConformal(identity_kernel()).conformalize(
        rng.normal(size=(50, 1)), np.abs(rng.normal(size=50))
    )


def test_neighbours_carry_weight_score_and_target():
    conformal = lvd.LocalConformal(identity_kernel()).conformalize([[0.0], [1.0], [5.0]], [3.0, 1.0, 2.0])
    (evidence,) = conformal.explain([[0.0]], 0.5, n_neighbors=2, targets=[30.0, 10.0, 20.0])
    first, second = evidence.neighbors
    total = 1.0 + math.exp(-1) + math.exp(-25)
    assert (first.index, first.score, first.target) == (0, 3.0, 30.0)
    assert (second.index, second.score, second.target) == (1, 1.0, 10.0)
    assert first.similarity == 1.0
    assert first.weight == pytest.approx(1.0 / (total + 1.0))
    assert evidence.weight_at_infinity == pytest.approx(1.0 / (total + 1.0))
    assert evidence.n_effective == pytest.approx(total**2 / (1.0 + math.exp(-2) + math.exp(-50)))
    assert evidence.radius == 3.0
    assert evidence.rows_missing == 0
    assert evidence.sentence.endswith("50% of which had an error of at most 3.")


def test_the_count_of_missing_rows_is_exact(conformal):
    scores = np.ones(50)
    for centre in (0.0, 2.0, 2.6, 3.5, 9.0):
        for level in (0.5, 0.8, 0.9, 0.99):
            embeddings = conformal.calibration_.rows.points.numpy()
            missing = conformal.explain([[centre]], level)[0].rows_missing
            radius_with = {}
            for extra in {missing, max(missing - 1, 0)}:
                more = lvd.LocalConformal(identity_kernel()).conformalize(
                    np.concatenate([embeddings, np.full((extra, 1), centre)]),
                    np.concatenate([scores, np.ones(extra)]),
                )
                radius_with[extra] = more.radius([[centre]], level)[0]
            assert np.isfinite(radius_with[missing])
            if missing:
                assert np.isinf(radius_with[missing - 1])


def test_an_infinite_radius_says_what_is_missing(conformal):
    (evidence,) = conformal.explain([[40.0]], 0.9)
    assert math.isinf(evidence.radius)
    assert evidence.rows_missing == 9
    assert "9 more rows like it would make it finite" in evidence.sentence
    assert "no calibration row is similar to this one" in evidence.sentence


def test_rows_missing_at_the_edge():
    assert rows_missing(9.0, 0.9) == 0
    assert rows_missing(8.0, 0.9) == 1
    assert rows_missing(0.0, 0.5) == 1


def test_update_equals_calibrating_on_all_rows_at_once(rng):
    embeddings, scores = rng.normal(size=(90, 2)), np.abs(rng.normal(size=90)).round(1)
    at_once = lvd.LocalConformal(identity_kernel(2)).conformalize(embeddings, scores)
    grown = lvd.LocalConformal(identity_kernel(2)).conformalize(embeddings[:30], scores[:30])
    grown.update(embeddings[30:31], scores[30:31]).update(embeddings[31:], scores[31:])
    queries = rng.normal(size=(200, 2))
    np.testing.assert_array_equal(
        at_once.radius(queries, [0.5, 0.8, 0.9]), grown.radius(queries, [0.5, 0.8, 0.9])
    )


def test_forget_keeps_the_newest_rows(rng):
    embeddings, scores = rng.normal(size=(90, 2)), np.abs(rng.normal(size=90))
    newest = lvd.LocalConformal(identity_kernel(2)).conformalize(embeddings[-40:], scores[-40:])
    whole = lvd.LocalConformal(identity_kernel(2)).conformalize(embeddings, scores).forget(40)
    queries = rng.normal(size=(100, 2))
    np.testing.assert_array_equal(newest.radius(queries), whole.radius(queries))
    with pytest.raises(lvd.InputError, match="n_newest must be a positive integer, got 0"):
        whole.forget(0)


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(300, 2))
    return X, X[:, 0] + rng.normal(size=300) * np.abs(X[:, 1])


class TestRegressor:
    def regressor(self, **parameters):
        net = lvd.NetRegressor(hidden_sizes=(20,), n_batches=100, random_state=0)
        kernel = lvd.MahalanobisKernel(max_iter=20)
        settings = {"preset": "paper", "kernel": kernel, "calib_size": None, "random_state": 0}
        return lvd.LVDRegressor(net, **settings | parameters)

    def test_explain_agrees_with_predict_interval(self, rows):
        X, y = rows
        reg = self.regressor().fit(X[:150], y[:150]).conformalize(X[150:], y[150:])
        y_pred, intervals = reg.predict_interval(X[:5], 0.8)
        for row, explanation in enumerate(reg.explain(X[:5], 0.8, n_neighbors=3)):
            assert explanation.y_pred == y_pred[row]
            assert (explanation.lower, explanation.upper) == tuple(intervals[row, :, 0])
            assert len(explanation.evidence.neighbors) == 3
            nearest = explanation.evidence.neighbors[0]
            assert nearest.target == y[150 + nearest.index]
            assert nearest.error == nearest.score

    def test_errors_of_neighbours_are_in_units_of_y_whatever_their_scores_are(self, rows):
        X, y = rows
        reg = self.regressor(preset="default").fit(X[:150], y[:150]).conformalize(X[150:], y[150:])
        errors = np.abs(y - reg.predict(X))[150:]
        nearest = reg.explain(X[:1], 0.8)[0].evidence.neighbors
        assert [one.error for one in nearest] == pytest.approx([errors[one.index] for one in nearest])
        assert all(one.error != one.score for one in nearest)

    def test_scores_that_are_no_errors_are_called_so(self, rows):
        X, y = rows
        reg = self.regressor(preset="default", conformity_score="sided")
        explained = reg.fit(X[:150], y[:150]).conformalize(X[150:], y[150:]).explain(X[:1], 0.8)[0]
        assert "80% of which had a score of at most" in explained.sentence
        assert explained.score_name == "score"

    def test_a_joint_score_is_not_shown_beside_the_error_of_one_target(self, rows):
        X, y = rows
        targets = np.stack([y, -y], axis=1)
        reg = self.regressor(preset="default", joint="box").fit(X[:150], targets[:150])
        errors = np.abs(targets - reg.conformalize(X[150:], targets[150:]).predict(X))[150:]
        for explained in reg.explain(X[:1], 0.8):
            nearest = explained.evidence.neighbors[0]
            assert nearest.error == pytest.approx(errors[nearest.index, explained.target])
            assert explained.score_name is None

    def test_update_and_forget(self, rows):
        X, y = rows
        whole = self.regressor().fit(X[:100], y[:100]).conformalize(X[100:], y[100:])
        grown = self.regressor().fit(X[:100], y[:100]).conformalize(X[100:200], y[100:200])
        grown.update(X[200:], y[200:])
        np.testing.assert_array_equal(whole.predict_interval(X)[1], grown.predict_interval(X)[1])
        newest = self.regressor().fit(X[:100], y[:100]).conformalize(X[250:], y[250:])
        grown.forget(50)
        np.testing.assert_array_equal(newest.predict_interval(X)[1], grown.predict_interval(X)[1])
        assert grown.n_calib_ == 50

    def test_several_targets_are_explained_side_by_side(self, rows):
        X, y = rows
        targets = np.stack([y, -y], axis=1)
        reg = self.regressor().fit(X[:100], targets[:100]).conformalize(X[100:], targets[100:])
        explained = reg.explain(X[:2])
        assert [(e.row, e.target) for e in explained] == [(0, 0), (0, 1), (1, 0), (1, 1)]
