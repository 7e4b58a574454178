from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import integrate

from lvd import InputError
from lvd.metrics import crps

INF = np.inf


def test_one_sample_is_the_absolute_error():
    np.testing.assert_array_equal(crps([0, 1, 5], [2]), [2, 1, 3])


@pytest.mark.parametrize("y", [-3.0, -1.0, 0.2, 0.5, 4.0])
def test_the_score_is_the_integral_it_is_defined_by(y):
    samples, weights = np.array([0.5, -1.0, 2.0, 2.0]), np.array([0.2, 0.5, 0.2, 0.1])

    def integrand(z):
        return (weights[samples <= z].sum() - (y <= z)) ** 2

    expected, _ = integrate.quad(integrand, -4, 5, points=sorted({*samples, y}), limit=200)
    assert crps([y], samples, weights)[0] == pytest.approx(expected, abs=1e-8)


def test_the_scale_of_the_weights_and_samples_without_weight_do_not_matter():
    plain = crps([0.3], [0, 1], [0.25, 0.75])
    np.testing.assert_allclose(crps([0.3], [0, 1, -9, 9, INF], [1, 3, 0, 0, 0]), plain)


def test_mass_at_infinity_is_an_infinite_score_unless_left_out():
    samples, weights = [[0, INF], [-INF, 2], [0, 2]], [[0.9, 0.1]] * 3
    np.testing.assert_array_equal(crps([0, 0, 0], samples, weights)[:2], [INF, INF])
    given = crps([0, 0, 0], samples, weights, given_finite=True)
    np.testing.assert_allclose(given, [0, 2, 2 * 0.1**2])
    assert math.isnan(crps([0], [INF], given_finite=True)[0])


def test_the_spread_of_the_truth_scores_best(rng):
    y, samples = rng.normal(size=4000), rng.normal(size=500)
    scores = {scale: crps(y, scale * samples).mean() for scale in (0.5, 1.0, 2.0)}
    assert min(scores, key=scores.__getitem__) == 1.0


@pytest.mark.parametrize(
    ("samples", "weights", "message"),
    [
        ([[0.0, np.nan]], None, "samples holds NaN"),
        (["a"], None, "samples must be numbers of shape"),
        ([[0.0], [1.0]], None, "y has 1, samples has 2"),
        ([0.0, 1.0], [1.0], r"one column per sample, got \(1, 1\) for \(1, 2\)"),
        ([0.0, 1.0], [-1.0, 2.0], "weights must be finite, at least 0, and positive somewhere"),
        ([0.0, 1.0], [0.0, 0.0], "weights must be finite, at least 0, and positive somewhere"),
        ([0.0, 1.0], [INF, 0.0], "weights must be finite, at least 0, and positive somewhere"),
    ],
)
def test_bad_distributions_are_refused(samples, weights, message):
    with pytest.raises(InputError, match=message):
        crps([0.0], samples, weights)
