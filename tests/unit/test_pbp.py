"""Probabilistic backpropagation: moments, evidence gradients, the prior's refinement, and the method."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from scipy.stats import norm
from sklearn.base import clone

from lvd._validation import InputError
from lvd.methods.pbp import PBPRegressor
from lvd.models.assumed_density import (
    Gamma,
    Gaussians,
    absorb_row,
    evidence_gradients,
    linear_moments,
    match_gamma,
    match_gaussians,
    relu_moments,
    run_network,
    with_bias,
)
from lvd.models.probabilistic import PRIOR, ProbabilisticNet, WeightPrior, certain

N_SAMPLES = 200_000


def gaussians(rng: np.random.Generator, *shape: int) -> Gaussians:
    return Gaussians(rng.normal(size=shape), rng.uniform(0.1, 1.0, shape))


def samples(of: Gaussians, rng: np.random.Generator) -> np.ndarray:
    noise = rng.normal(size=(N_SAMPLES, *of.mean.shape))
    return of.mean + noise * np.sqrt(of.variance)


def standard_errors(moments: Gaussians, drawn: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """How many standard errors the sample's mean and variance are away from the formulas."""
    centred = drawn - drawn.mean(0)
    variance, fourth = (centred**2).mean(0), (centred**4).mean(0)
    of_mean = (drawn.mean(0) - moments.mean) / np.sqrt(variance / len(drawn))
    of_variance = (variance - moments.variance) / np.sqrt((fourth - variance**2) / len(drawn))
    return np.abs(of_mean), np.abs(of_variance)


def random_network(rng: np.random.Generator) -> list[Gaussians]:
    return [gaussians(rng, 4, 4), gaussians(rng, 3, 5), gaussians(rng, 1, 4)]


class TestMoments:
    def test_linear_layer_against_monte_carlo(self, rng):
        inputs, weights = gaussians(rng, 1, 3), gaussians(rng, 2, 3)
        drawn = (samples(weights, rng) @ samples(inputs, rng)[:, 0, :, None])[:, None, :, 0]
        of_mean, of_variance = standard_errors(linear_moments(inputs, weights), drawn)
        assert of_mean.max() < 3.0
        assert of_variance.max() < 3.0

    def test_linear_layer_without_the_inputs_variance_is_found_out(self, rng):
        inputs, weights = gaussians(rng, 1, 3), gaussians(rng, 2, 3)
        drawn = (samples(weights, rng) @ samples(inputs, rng)[:, 0, :, None])[:, None, :, 0]
        broken = linear_moments(Gaussians(inputs.mean, np.zeros_like(inputs.variance)), weights)
        assert standard_errors(broken, drawn)[1].min() > 30.0

    def test_relu_against_monte_carlo(self, rng):
        inputs = Gaussians(np.linspace(-2.0, 2.0, 9)[None], np.full((1, 9), 0.7))
        drawn = np.maximum(samples(inputs, rng), 0.0)
        of_mean, of_variance = standard_errors(relu_moments(inputs)[0], drawn)
        assert of_mean.max() < 3.0
        assert of_variance.max() < 3.0

    @pytest.mark.parametrize("alpha", [-35.0, -20.0, -5.0, 0.0, 5.0, 50.0, 1e6])
    def test_relu_keeps_its_digits_in_the_tails(self, alpha):
        with mpmath.workdps(200):
            exact, deviation = mpmath.mpf(alpha), mpmath.mpf("0.1")
            mean = deviation * (mpmath.npdf(exact) + exact * mpmath.ncdf(exact))
            second = deviation**2 * ((exact**2 + 1) * mpmath.ncdf(exact) + exact * mpmath.npdf(exact))
            expected = [float(mean), float(second - mean**2)]
        inputs = Gaussians(np.array([[0.1 * alpha]]), np.array([[0.1**2]]))
        mean, variance = relu_moments(inputs)[0]
        np.testing.assert_allclose([mean.item(), variance.item()], expected, rtol=1e-6)

    def test_relu_far_below_zero_is_zero(self):
        moments, slopes = relu_moments(Gaussians(np.array([[-100.0]]), np.array([[1.0]])))
        assert [part.item() for part in (*moments, *slopes)] == [0.0] * 6

    def test_bias_is_the_last_input_and_all_are_divided_by_the_root(self):
        mean, variance = with_bias(Gaussians(np.ones((1, 3)), np.full((1, 3), 2.0)))
        assert mean.tolist() == [[0.5, 0.5, 0.5, 0.5]]
        assert variance.tolist() == [[0.5, 0.5, 0.5, 0.0]]


class TestEvidence:
    def test_gradients_against_finite_differences(self, rng):
        layers, noise = random_network(rng), 0.3
        inputs = certain(rng.normal(size=(5, 3)))
        targets = rng.normal(size=(5, 1))

        def log_z() -> float:
            mean, variance = run_network(layers, inputs).output
            return float(norm.logpdf(targets, mean, np.sqrt(variance + noise)).sum())

        gradients = evidence_gradients(layers, run_network(layers, inputs), noise, targets)
        step = 1e-5
        for layer, gradient in zip(layers, gradients, strict=True):
            for values, slopes in zip(layer, gradient, strict=True):
                for i in np.ndindex(tuple(values.shape)):
                    before = float(values[i])
                    values[i] = before + step
                    above = log_z()
                    values[i] = before - step
                    below = log_z()
                    values[i] = before
                    assert float(slopes[i]) == pytest.approx((above - below) / (2 * step), rel=1e-6, abs=1e-7)

    def test_one_linear_layer_is_exact_bayesian_regression(self):
        """One input and no hidden layer: y = (2 w + b) / sqrt(2) + noise is Gaussian in w and b."""
        weights = Gaussians(np.array([[0.5, -1.0]]), np.array([[2.0, 3.0]]))
        noise = Gamma(1e9 + 1.0, 4e9)
        row = certain(np.array([[2.0]]))
        (after,), _ = absorb_row([weights], noise, row, 1.0)
        design, prior = np.array([2.0, 1.0]) / math.sqrt(2.0), np.diag([2.0, 3.0])
        gain = prior @ design / (design @ prior @ design + 4.0)
        np.testing.assert_allclose(after.mean[0], [0.5, -1.0] + gain * (1.0 - design @ [0.5, -1.0]))
        np.testing.assert_allclose(after.variance[0], np.diag(prior - np.outer(gain, design @ prior)))

    def test_a_weight_without_a_valid_update_stays(self):
        weights = Gaussians(np.zeros((1, 3)), np.ones((1, 3)))
        slopes = Gaussians(np.array([[2.0, math.nan, 0.5]]), np.array([[0.0, 0.0, 0.0]]))
        after = match_gaussians(weights, slopes)
        assert after.mean.tolist() == [[0.0, 0.0, 0.5]]
        assert after.variance.tolist() == [[1.0, 1.0, 0.75]]

    def test_gamma_is_the_papers_formula(self):
        shape, rate, squared, variance = 6.0, 5.0, 1.3, 0.4
        log_z, log_z1, log_z2 = (
            norm.logpdf(math.sqrt(squared), scale=math.sqrt(variance + rate / (a - 1.0)))
            for a in (shape, shape + 1.0, shape + 2.0)
        )
        expected = (
            1.0 / (math.exp(log_z2 - 2.0 * log_z1 + log_z) * (shape + 1.0) / shape - 1.0),
            1.0
            / (math.exp(log_z2 - log_z1) * (shape + 1.0) / rate - math.exp(log_z1 - log_z) * shape / rate),
        )
        assert match_gamma(Gamma(shape, rate), squared, variance) == pytest.approx(expected, rel=1e-10)

    def test_gamma_learns_the_variance_of_noise(self, rng):
        gamma = PRIOR
        for error in rng.normal(scale=0.5, size=4000):
            gamma = match_gamma(gamma, error**2, 0.0)
        assert gamma.variance == pytest.approx(0.25, rel=0.1)

    @pytest.mark.parametrize(("squared", "variance"), [(1e4, 1.0), (1e12, 1.0), (1e12, 0.0)])
    def test_gamma_ignores_an_error_beyond_reason(self, squared, variance):
        assert match_gamma(PRIOR, squared, variance) == PRIOR


class TestWeightPrior:
    def test_one_factor_is_the_papers_update(self):
        """The means and variances by the gradients of log Z at the cavity, as written in the paper."""
        mean, variance = 0.8, 0.3
        precision = 1.0 / variance - 5.0 / 6.0
        cavity_mean, cavity_variance = mean / variance / precision, 1.0 / precision
        total = cavity_variance + 6.0 / 5.0
        by_mean, by_variance = -cavity_mean / total, 0.5 * (cavity_mean**2 / total**2 - 1.0 / total)
        prior = WeightPrior(1)
        (after,) = prior.refine([Gaussians(np.array([[mean]]), np.array([[variance]]))])
        assert after.mean.item() == pytest.approx(cavity_mean + cavity_variance * by_mean)
        assert after.variance.item() == pytest.approx(
            cavity_variance - cavity_variance**2 * (by_mean**2 - 2.0 * by_variance)
        )
        assert prior.gamma == pytest.approx(match_gamma(PRIOR, cavity_mean**2, cavity_variance))

    def test_it_finds_the_spread_of_the_weights(self, rng):
        mean = rng.normal(scale=0.5, size=(20, 40))
        weights = Gaussians(mean, np.full_like(mean, 1e-4))
        prior = WeightPrior(800)
        for _ in range(10):
            (weights,) = prior.refine([weights])
        assert prior.gamma.variance == pytest.approx(0.25, rel=0.1)

    def test_a_factor_without_a_cavity_stays(self):
        wide = Gaussians(np.ones((1, 1)), np.full((1, 1), 2.0))
        prior = WeightPrior(1)
        (after,) = prior.refine([wide])
        assert (after.mean.item(), after.variance.item(), prior.gamma) == (1.0, 2.0, PRIOR)


@pytest.fixture(scope="module")
def line() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    X = rng.uniform(-1.0, 1.0, size=(40, 2))
    return X, 3.0 * X[:, 0] + 0.3 * rng.normal(size=40)


@pytest.fixture(scope="module")
def fitted(line) -> PBPRegressor:
    return PBPRegressor(hidden_sizes=(10,), epochs=6, random_state=0).fit(*line)


class TestMethod:
    def test_it_learns_a_line_and_its_noise(self, line, fitted):
        X, y = line
        longer = clone(fitted).set_params(epochs=20).fit(X, y)
        assert np.sqrt(np.mean((longer.predict(X) - y) ** 2)) < 0.4
        assert math.sqrt(longer.model_.noise_variances_[0]) == pytest.approx(0.3, rel=0.5)

    def test_intervals_are_those_of_the_normal(self, line, fitted):
        X, _ = line
        mean, variance = fitted.model_.moments(X)
        y_pred, intervals = fitted.predict_interval(X, [0.5, 0.9])
        expected = np.stack(
            norm.interval(np.array([0.5, 0.9])[:, None, None], mean, np.sqrt(variance)), axis=0
        )
        np.testing.assert_allclose(y_pred, mean[:, 0])
        np.testing.assert_allclose(intervals, expected[..., 0].transpose(2, 0, 1))

    def test_log_likelihood_is_in_the_units_of_y(self, line, fitted):
        X, y = line
        mean, variance = fitted.model_.moments(X)
        expected = norm.logpdf(y, mean[:, 0], np.sqrt(variance[:, 0]))
        np.testing.assert_allclose(fitted.log_likelihood(X, y), expected)
        scaled = clone(fitted).fit(X, 10.0 * y + 5.0)
        shifted = scaled.log_likelihood(X, 10.0 * y + 5.0)
        np.testing.assert_allclose(shifted, expected - math.log(10.0), rtol=1e-6)

    def test_the_same_seed_gives_the_same_network(self, line, fitted):
        again, other = clone(fitted).fit(*line), clone(fitted).set_params(random_state=1).fit(*line)
        np.testing.assert_array_equal(again.predict(line[0]), fitted.predict(line[0]))
        assert not np.allclose(other.predict(line[0]), fitted.predict(line[0]))

    def test_each_target_is_fitted_as_if_alone(self, line, fitted):
        X, y = line
        both = clone(fitted).fit(X, np.stack([y, y**2], axis=1))
        y_pred, intervals = both.predict_interval(X, [0.5, 0.9])
        assert (y_pred.shape, intervals.shape) == ((40, 2), (40, 2, 2, 2))
        assert both.log_likelihood(X, np.stack([y, y**2], axis=1)).shape == (40, 2)
        np.testing.assert_allclose(y_pred[:, 0], fitted.predict(X))

    def test_rows_in_chunks_are_the_same(self, line, fitted, monkeypatch):
        whole = fitted.model_.moments(line[0])
        monkeypatch.setattr("lvd.models.probabilistic.EVALUATION_ROWS", 7)
        np.testing.assert_allclose(fitted.model_.moments(line[0]), whole)

    def test_it_is_less_sure_far_from_the_rows(self, fitted):
        _, variance = fitted.model_.moments(np.array([[0.0, 0.0], [10.0, 10.0]]))
        assert variance[1, 0] > 4.0 * variance[0, 0]

    def test_several_hidden_layers_and_none(self, line):
        X, y = line
        for hidden_sizes in ((), (5, 4)):
            net = ProbabilisticNet(hidden_sizes).fit(X, y[:, None], epochs=2, seed=0)
            assert len(net.weight_means_) == len(hidden_sizes) + 1
            assert np.isfinite(net.moments(X)).all()

    def test_a_wild_outlier_does_no_harm_to_numbers(self, line):
        X, y = line
        y = np.where(np.arange(40) == 20, 1e9, y)
        y_pred, intervals = PBPRegressor(epochs=2, random_state=0).fit(X, y).predict_interval(X)
        assert np.isfinite(y_pred).all()
        assert np.isfinite(intervals).all()

    def test_bounds_clip(self, line):
        reg = PBPRegressor(hidden_sizes=(5,), epochs=1, y_range=(-1.0, 1.0), random_state=0).fit(*line)
        _, intervals = reg.predict_interval(line[0], 0.99)
        assert intervals.min() == -1.0
        assert intervals.max() == 1.0

    @pytest.mark.parametrize(
        ("parameters", "message"),
        [
            ({"hidden_sizes": (50, 0)}, "hidden_sizes must be a positive integer, got 0"),
            ({"epochs": 0}, "epochs must be a positive integer, got 0"),
            ({"confidence_level": 90}, "confidence_level must lie in (0, 1), got 90; did you mean 0.9?"),
            (
                {"y_range": (2.0, 1.0)},
                "y_range must be (lowest, highest) with lowest < highest, got (2.0, 1.0)",
            ),
        ],
    )
    def test_parameters_that_cannot_work(self, line, parameters, message):
        with pytest.raises(InputError) as error:
            PBPRegressor(**parameters).fit(*line)
        assert str(error.value) == message

    def test_one_row_is_refused(self, line):
        with pytest.raises(InputError, match="at least 2 rows, got 1 sample"):
            PBPRegressor().fit(line[0][:1], line[1][:1])
