from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import integrate
from scipy.stats import binom, chi2

from lvd import InputError
from lvd.metrics import crps, pinball_loss, pit_histogram

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


class TestPit:
    def test_shares_and_band(self):
        found = pit_histogram([0.0, 0.05, 0.15, 1.0], n_bins=10)
        assert found.shares == (0.5, 0.25, 0, 0, 0, 0, 0, 0, 0, 0.25)
        assert found.n_rows == 4
        assert (found.low, found.high) == (0.0, pytest.approx(0.1 + 1.96 * 0.15))

    def test_uniform_values_pass_as_often_as_promised(self, rng):
        """The p-value is uniform itself; a test that takes ten degrees of freedom for nine is noticed."""
        p_values = np.array([pit_histogram(rng.uniform(size=400)).p_value for _ in range(2000)])
        assert binom.cdf((p_values < 0.5).sum(), 2000, 0.5) > 1e-6
        assert binom.sf((p_values < 0.05).sum(), 2000, 0.05) > 1e-6
        broken = chi2.sf(chi2.isf(p_values, 9), 10)
        assert binom.cdf((broken < 0.5).sum(), 2000, 0.5) < 1e-6

    def test_calibration_rows_fall_by_chance_too(self, rng):
        """Ranks among 200 calibration rows: without their number the test rejects far too often."""
        allowed, strict = [], []
        for _ in range(400):
            pit = np.searchsorted(np.sort(rng.normal(size=200)), rng.normal(size=400)) / 200
            allowed.append(pit_histogram(pit, n_calib=200).p_value < 0.05)
            strict.append(pit_histogram(pit).p_value < 0.05)
        assert binom.sf(sum(allowed), 400, 0.05) > 1e-6
        assert binom.sf(sum(strict), 400, 0.05) < 1e-6

    @pytest.mark.parametrize(
        ("power", "finding"), [(0.7, "are too low"), (1.4, "are too high"), (None, "look right")]
    )
    def test_what_is_wrong(self, power, finding):
        even = (np.arange(1000) + 0.5) / 1000
        assert pit_histogram(even if power is None else even**power).finding == finding

    def test_narrow_wide_and_off(self):
        even = (np.arange(1000) + 0.5) / 1000
        side = np.where(even < 0.5, 1.0, -1.0)
        far = 0.5 - side * (np.abs(even - 0.5) * 2) ** 0.7 / 2
        near = 0.5 - side * (np.abs(even - 0.5) * 2) ** 1.4 / 2
        assert pit_histogram(far).finding == "are too narrow"
        assert pit_histogram(near).finding == "are too wide"
        assert pit_histogram(np.repeat([0.05, 0.45, 0.55, 0.95], 250)).finding == "are off"

    def test_values_outside(self):
        with pytest.raises(InputError, match=r"pit must lie in \[0, 1\]"):
            pit_histogram([0.5, 1.5])


class TestPinball:
    def test_the_quantile_has_the_lowest(self, rng):
        y = rng.exponential(size=4000)
        losses = [pinball_loss(y, np.full(4000, z), 0.8) for z in np.quantile(y, [0.7, 0.8, 0.9])]
        assert losses.index(min(losses)) == 1

    def test_it_is_half_the_crps_on_average_over_levels(self):
        taus = (np.arange(1000) + 0.5) / 1000
        samples = np.array([[-1.0, 0.5, 2.0, 3.0]])
        quantiles = np.quantile(samples, taus, axis=1, method="inverted_cdf").T
        assert 2 * pinball_loss([0.7], quantiles, taus) == pytest.approx(crps([0.7], samples)[0], rel=1e-3)

    def test_infinite_quantiles(self):
        assert pinball_loss([1.0], [[-INF, 1.0]], [0.1, 0.5]) == INF

    def test_shapes_are_checked(self):
        with pytest.raises(InputError, match=r"quantiles must be numbers of shape \(2, 1\)"):
            pinball_loss([1.0, 2.0], [[1.0, 2.0], [1.0, 2.0]], 0.5)
