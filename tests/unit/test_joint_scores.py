"""Scores of all targets together, and how errors go together: toys, brute force, invariances."""

from __future__ import annotations

import numpy as np
import pytest

import lvd
from lvd.models import Evaluation
from lvd.scores import EvaluatedRows, JointResidual, TrainingRows
from lvd.scores.joint import BoundJoint, LocalCovariance, covariance_misfit, global_moments, kept_off_zero
from lvd.wrap import as_model

RNG = np.random.default_rng(0)


def correlated(n_rows, rho, scale=(1.0, 1.0)):
    return RNG.multivariate_normal([0.0, 0.0], [[1.0, rho], [rho, 1.0]], size=n_rows) * scale


def test_box_score_by_hand():
    bound = BoundJoint(np.array([[0.0, 10.0]]), np.array([[2.0, 5.0]]))
    assert bound(np.array([[3.0, 5.0]])).item() == 1.5
    assert bound(np.array([[-1.0, 20.0]])).item() == 2.0
    intervals = bound.intervals(np.full((1, 1, 2, 1), [[[1.0], [2.0]]]), np.array([0.5, 0.9]))
    assert intervals[0, :, 1].tolist() == [[-4.0, 0.0], [4.0, 20.0]]


def test_ellipsoid_score_by_hand():
    shapes = np.diag([4.0, 25.0])[None]
    bound = BoundJoint(np.array([[0.0, 10.0]]), np.array([[2.0, 5.0]]), shapes)
    assert bound(np.array([[6.0, 30.0]])).item() == pytest.approx(5.0)  # (3, 4) in units of 2 and 5


@pytest.mark.parametrize("shapes", [None, np.eye(2)[None].repeat(2, axis=0)])
def test_a_row_without_a_target_has_no_score_and_an_empty_region_shrinks_to_the_prediction(shapes):
    bound = BoundJoint(np.zeros((2, 2)), np.ones((2, 2)), shapes)
    assert np.isnan(bound(np.array([[np.nan, 1.0], [0.0, 1.0]]))[:, 0, 0]).tolist() == [True, False]
    region = bound.region(np.array([-np.inf, 1.0]))
    assert region.project()[0].tolist() == [[0.0, 0.0], [0.0, 0.0]]


def test_what_scores_at_most_the_radius_is_in_the_region():
    factors = RNG.normal(size=(500, 3, 3))
    shapes = factors @ factors.transpose(0, 2, 1) + 0.1 * np.eye(3)
    y_pred, y, radius = RNG.normal(size=(500, 3)), RNG.normal(size=(500, 3)), RNG.uniform(0.2, 3.0, size=500)
    for bound in (BoundJoint(y_pred, np.ones((500, 3))), BoundJoint(y_pred, np.ones((500, 3)), shapes)):
        inside = bound(y)[:, 0, 0] <= radius
        assert 0.1 < inside.mean() < 0.9
        np.testing.assert_array_equal(bound.region(radius).contains(y), inside)


def test_global_moments_by_hand():
    found = global_moments(np.array([[1.0, 1.0], [1.0, -1.0], [2.0, 2.0], [0.0, 0.0]]))
    # Products sum to (6, 4, 6) over 4 rows; two more rows, without correlation, shrink the middle one.
    np.testing.assert_allclose(found, [[1.5, 4.0 / 6.0], [4.0 / 6.0, 1.5]])


def test_covariance_misfit_is_lowest_at_the_truth_and_blind_to_size():
    errors = correlated(4000, 0.8)

    def at(rho, size=1.0):
        return covariance_misfit(np.repeat(size * np.array([[[1.0, rho], [rho, 1.0]]]), 4000, axis=0), errors)

    assert at(0.8) < min(at(0.6), at(0.9), at(0.0))
    assert at(0.8, size=7.0) == pytest.approx(at(0.8))


class TestLocalCovariance:
    """The correlation is 0.9 left of zero, and -0.9 right of it."""

    POINTS = RNG.uniform(-3.0, 3.0, size=(1200, 1))
    SIGN = np.where(POINTS < 0.0, 1.0, -1.0)
    ERRORS = correlated(1200, 0.9) * np.concatenate([np.ones_like(SIGN), SIGN], axis=1)

    def test_it_finds_both(self):
        left, right = LocalCovariance().fit(self.POINTS, self.ERRORS, 0).predict(np.array([[-2.0], [2.0]]), 2)
        assert left[0, 1] / np.sqrt(left[0, 0] * left[1, 1]) > 0.7
        assert right[0, 1] / np.sqrt(right[0, 0] * right[1, 1]) < -0.7

    def test_it_is_the_sum_over_all_rows(self):
        fitted = LocalCovariance().fit(self.POINTS[:300], self.ERRORS[:300], 0)
        bandwidth, strength = fitted.reach_
        weights = np.exp(-np.square((0.5 - fitted.points_[:, 0]) / bandwidth))
        sums = np.einsum("j,js,jt->st", weights, fitted.errors_, fitted.errors_)
        wanted = (sums + strength * fitted.moments_) / (weights.sum() + strength)
        np.testing.assert_allclose(fitted.predict(np.array([[0.5]]), 1)[0], wanted + 0.0025 * np.eye(2))

    def test_far_from_all_rows_it_is_the_one_of_all(self):
        fitted = LocalCovariance().fit(self.POINTS, self.ERRORS, 0)
        np.testing.assert_allclose(fitted.predict(np.array([[1e3]]), 1)[0], kept_off_zero(fitted.moments_))

    def test_where_place_tells_nothing_it_is_one_matrix(self):
        fitted = LocalCovariance().fit(self.POINTS, correlated(1200, 0.5), 0)
        assert fitted.reach_ is None
        assert fitted.predict(self.POINTS[:3], 3).shape == (3, 2, 2)

    def test_it_can_be_inverted_even_when_targets_are_copies_or_without_error(self):
        copies = np.repeat(correlated(300, 0.0)[:, :1], 2, axis=1)
        for errors in (copies, copies * [1.0, 0.0], np.zeros((300, 2))):
            matrices = LocalCovariance().fit(self.POINTS[:300], errors, 0).predict(self.POINTS[:5], 5)
            assert np.linalg.eigvalsh(matrices).min() > 1e-3


def training_rows(errors, kernel):
    inputs = RNG.normal(size=(len(errors), 2))
    y_pred = np.zeros_like(errors)
    rows = EvaluatedRows(inputs, Evaluation(y_pred, inputs), [kernel])
    model = as_model((np.zeros_like, np.asarray), prefit=True)
    return TrainingRows(rows, errors, model, "cpu", 0)


KERNEL = lvd.MahalanobisKernel.from_components(np.eye(2), mean=[0.0, 0.0], scale=[1.0, 1.0])


@pytest.mark.parametrize("shape", ["box", "ellipsoid"])
def test_order_and_units_of_targets_change_nothing(shape):
    errors, y = correlated(400, 0.8), correlated(50, 0.8)
    state = RNG.bit_generator.state
    scores = []
    for order, units in (([0, 1], [1.0, 1.0]), ([1, 0], [1.0, 1.0]), ([0, 1], [8.0, 0.25])):
        RNG.bit_generator.state = state
        training = training_rows((errors * units)[:, order], KERNEL)
        score = JointResidual(shape, scales=("kernel",))
        score.fit(training)
        rows = training.rows
        some = EvaluatedRows(rows.inputs[:50], Evaluation(rows.y_pred[:50], rows.inputs[:50]), [KERNEL])
        scores.append(score.bind(some)((y * units)[:, order])[:, 0, 0])
        sizes = score.error_sizes((errors * units)[:, order])
        assert sizes.shape == (400, 1)
    np.testing.assert_allclose(scores[1], scores[0], rtol=1e-9)
    np.testing.assert_allclose(scores[2], scores[0], rtol=1e-9)


def test_ellipsoids_follow_the_correlation_and_boxes_do_not():
    training = training_rows(correlated(1000, 0.9, scale=(1.0, 10.0)), KERNEL)
    together, apart = np.array([[1.0, 10.0]] * 5), np.array([[1.0, -10.0]] * 5)
    ratios = {}
    for shape in ("box", "ellipsoid"):
        score = JointResidual(shape, scales=())
        score.fit(training)
        rows = EvaluatedRows(np.zeros((5, 2)), Evaluation(np.zeros((5, 2)), np.zeros((5, 2))), [KERNEL])
        bound = score.bind(rows)
        ratios[shape] = (bound(apart) / bound(together)).mean()
    assert ratios["box"] == pytest.approx(1.0, abs=0.1)
    assert ratios["ellipsoid"] > 3.0  # the root of 1.9 / 0.1 is 4.4


def test_an_unknown_shape_is_refused():
    with pytest.raises(lvd.InputError, match="shape must be one of 'box', 'ellipsoid', got 'ball'"):
        lvd.SplitConformalRegressor(conformity_score=JointResidual("ball")).fit(np.eye(20), np.ones((20, 2)))
