"""The local guarantee: at a fixed centre, over calibration sets and rows drawn near it, a score is covered.

X ~ N(0, 1), kernel exp(-(x - centre)^2), score given x ~ |N(0, (0.2 + |x|)^2)|. Rows re-weighted by the kernel
are again normal, so the local coverage of a radius is an integral, and no test rows are drawn.

Randomly localized radii keep the promise at the centre that was drawn, with the row's own weight K(centre, x). A
calibrated level promises nothing of the kind, but does so when it is told of the localized rows by their likelihood
ratios, which are the kernel at the centre.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.special import ndtr

import lvd
from lvd.calibration.guarantees import calibrated_radius, standing
from lvd.engine import Queries, SortedRows, local_quantile
from lvd.engine.quantiles import TrainingSample, adaptive_bandwidths

CENTRES = np.arange(-3.0, 4.0)
LEVEL = 0.9
N_SETS, N_ROWS = 20_000, 200


def draw_sets(rng, n_sets):
    """Rows and their scores, each set in ascending order of the scores."""
    x = rng.normal(size=(n_sets, N_ROWS))
    scores = np.abs((0.2 + np.abs(x)) * rng.normal(size=x.shape))
    order = scores.argsort(axis=1)
    return np.take_along_axis(x, order, 1), np.take_along_axis(scores, order, 1)


ONE = np.ones(len(CENTRES))


def radii(x, scores, self_weight, widths=ONE):
    """The weighted quantile of every set at every centre, (sets, centres), with a kernel of that width there."""
    weights = np.exp(-np.square((x[:, None, :] - CENTRES[:, None]) / widths[:, None])).cumsum(-1)
    ranks = (weights < LEVEL * (weights[..., -1:] + self_weight)).sum(-1)
    return np.take_along_axis(np.pad(scores, ((0, 0), (0, 1)), constant_values=np.inf), ranks, 1)


def localized_rows(n_nodes, reach, widths=ONE):
    """Nodes x on [-reach, reach], and the mass of each under N(0, 1) times the kernel at every centre."""
    nodes, node_weights = np.polynomial.legendre.leggauss(n_nodes)
    nodes = reach / 2.0 * (nodes + 1.0)  # the kink of |x| lies at an end
    x = np.concatenate([-nodes, nodes])
    precision = 1.0 + 2.0 / widths**2
    mean, deviation = 2.0 * CENTRES / (widths**2 * precision), precision[:, None] ** -0.5
    density = np.exp(-0.5 * np.square((x - mean[:, None]) / deviation)) / (deviation * (2.0 * np.pi) ** 0.5)
    return x, density * np.tile(reach / 2.0 * node_weights, 2)


def local_coverage(radius, widths=ONE, n_nodes=40):
    """P(score <= radius) for a row drawn with a density proportional to N(0, 1) times the kernel at the centre."""
    x, masses = localized_rows(n_nodes, 8.0, widths)
    return ((2.0 * ndtr(radius[..., None] / (0.2 + np.abs(x))) - 1.0) * masses).sum(-1)


def coverage_by_row(radius, x, masses):
    """The same for radii that differ from row to row, (centres, nodes)."""
    return ((2.0 * ndtr(radius / (0.2 + np.abs(x))) - 1.0) * masses).sum(-1)


@pytest.fixture(scope="module")
def calibration_sets():
    rng = np.random.default_rng(0)
    return [draw_sets(rng, N_SETS // 40) for _ in range(40)]


def coverage_of(calibration_sets, self_weight):
    """Mean local coverage at each centre over all calibration sets, and its standard error."""
    coverage = np.concatenate([local_coverage(radii(x, v, self_weight)) for x, v in calibration_sets])
    return coverage.mean(0), coverage.std(0) / N_SETS**0.5


def holds(coverage, error):
    """At least the level at every centre; not far above it where calibration rows are plenty."""
    return (coverage >= LEVEL - 4.0 * error) & ((coverage <= 0.93) | (np.abs(CENTRES) > 2.0))


@pytest.mark.parametrize("self_weight", [0.0, 1.0])
def test_the_radii_here_are_the_engines(calibration_sets, self_weight):
    x, scores = calibration_sets[0]
    own = torch.full((len(CENTRES),), self_weight, dtype=torch.float64)
    centres, levels = torch.as_tensor(CENTRES[:, None]), np.array([LEVEL])
    ours = []
    for rows, values in zip(x[:100], scores[:100], strict=True):
        calibration = SortedRows.of(torch.as_tensor(rows[:, None]), torch.as_tensor(values))
        ours.append(local_quantile(Queries(centres, own), calibration, levels).radius[:, 0].numpy())
    np.testing.assert_array_equal(np.stack(ours), radii(x[:100], scores[:100], self_weight))


def test_the_guarantee_holds_at_every_centre(calibration_sets):
    coverage, error = coverage_of(calibration_sets, 1.0)
    assert holds(coverage, error).all()
    np.testing.assert_allclose(coverage[3:], [0.905, 0.907, 0.919, 0.999], atol=0.002)


def test_without_the_mass_at_infinity_it_fails_at_every_centre(calibration_sets):
    assert not holds(*coverage_of(calibration_sets, 0.0)).any()


def test_an_always_infinite_radius_fails_where_rows_are_plenty():
    coverage = local_coverage(np.full((1, len(CENTRES)), np.inf))[0]
    np.testing.assert_allclose(coverage, 1.0, atol=1e-9)
    assert not holds(coverage, 0.0)[np.abs(CENTRES) <= 2.0].any()


class TestAdaptiveBandwidth:
    """A kernel that is too narrow for 200 rows, widened at each centre as far as the training rows tell.

    For a fixed centre the bandwidth is a number that knows nothing of the calibration set.
    """

    SHARPNESS, N_SETS = 8.0, 4_000
    ROOM = 4.76
    """Standard errors below the level: a normal number falls so far with a probability of 1e-6."""

    @pytest.fixture
    def kernel(self):
        training = np.random.default_rng(7).normal(size=(500, 1))
        return lvd.MahalanobisKernel.from_components(
            [[self.SHARPNESS]], mean=[0.0], scale=[1.0], embeddings=training, y=training[:, 0], device="cpu"
        )

    @pytest.fixture
    def widths(self, kernel):
        bandwidths = adaptive_bandwidths(
            torch.as_tensor(self.SHARPNESS * CENTRES[:, None]),
            TrainingSample.of(torch.tensor(kernel.train_points_)),
            n_calib=N_ROWS,
            level=LEVEL,
            mass=2.0,
        )
        return bandwidths.numpy() / self.SHARPNESS

    def coverage(self, calibration_sets, choose):
        """Mean local coverage of radii and widths that `choose` gives for each set, and its standard error."""
        coverage = np.concatenate([choose(x, v) for x, v in calibration_sets[: self.N_SETS * 40 // N_SETS]])
        return coverage.mean(0), coverage.std(0) / len(coverage) ** 0.5

    def falls_short(self, coverage, error):
        return coverage < LEVEL - self.ROOM * error

    def test_the_radii_here_are_the_librarys(self, calibration_sets, kernel, widths):
        x, scores = calibration_sets[0]
        expected = radii(x[:50], scores[:50], 1.0, widths)
        for rows, values, radius in zip(x[:50], scores[:50], expected, strict=True):
            conformal = lvd.LocalConformal(kernel, bandwidth="adaptive").conformalize(rows[:, None], values)
            np.testing.assert_allclose(conformal.bandwidths(CENTRES[:, None]) / self.SHARPNESS, widths)
            np.testing.assert_array_equal(conformal.radius(CENTRES[:, None], LEVEL), radius)
        assert len(np.unique(widths)) > 2

    def test_the_guarantee_holds_at_every_centre(self, calibration_sets, widths):
        coverage, error = self.coverage(
            calibration_sets, lambda x, v: local_coverage(radii(x, v, 1.0, widths), widths, 200)
        )
        assert not self.falls_short(coverage, error).any()
        assert (coverage < 0.97).all()

    def test_without_the_mass_at_infinity_it_fails_at_every_centre(self, calibration_sets, widths):
        coverage, error = self.coverage(
            calibration_sets, lambda x, v: local_coverage(radii(x, v, 0.0, widths), widths, 200)
        )
        assert self.falls_short(coverage, error).all()

    def test_with_the_bandwidth_of_the_smallest_radius_it_fails(self, calibration_sets, widths):
        """The mutant: of five bandwidths, the one is used that looks best on the calibration rows."""
        grid = [factor * widths for factor in (0.5, 0.7, 1.0, 1.4, 2.0)]

        def peek(x, v):
            smallest = np.min([radii(x, v, 1.0, width) for width in grid], axis=0)
            return local_coverage(smallest, widths, 200)

        coverage, error = self.coverage(calibration_sets, peek)
        assert self.falls_short(coverage, error)[np.abs(CENTRES) >= 2.0].all()


def randomized_radii(x_calib, scores, rows, own_mass):
    """Radii at the drawn centres for each row, from one calibration set in ascending order, (centres, rows)."""
    cumulative = np.exp(-np.square(x_calib - CENTRES[:, None])).cumsum(1)
    own = own_mass * np.exp(-np.square(rows - CENTRES[:, None]))
    ranks = [
        np.searchsorted(weights, LEVEL * (weights[-1] + mass))
        for weights, mass in zip(cumulative, own, strict=True)
    ]
    return np.append(scores, np.inf)[np.stack(ranks)]


class TestRandomized:
    @staticmethod
    def coverage(calibration_sets, own_mass):
        rows, masses = localized_rows(10, 5.0)
        coverage = np.stack(
            [
                coverage_by_row(randomized_radii(x, v, rows, own_mass), rows, masses)
                for many_x, many_scores in calibration_sets[:8]
                for x, v in zip(many_x, many_scores, strict=True)
            ]
        )
        return coverage.mean(0), coverage.std(0) / len(coverage) ** 0.5

    def test_the_radii_here_are_the_engines(self, calibration_sets):
        rows, _ = localized_rows(10, 5.0)
        x, scores = (part[0] for part in calibration_sets[0])
        calibration = SortedRows.of(torch.as_tensor(x[:, None]), torch.as_tensor(scores))
        expected = randomized_radii(x, scores, rows, 1.0)
        for centre, radii in zip(CENTRES, expected, strict=True):
            own = torch.as_tensor(np.exp(-np.square(rows - centre)))
            centres = torch.full((len(rows), 1), centre, dtype=torch.float64)
            ours = local_quantile(Queries(centres, own), calibration, np.array([LEVEL])).radius[:, 0]
            np.testing.assert_array_equal(ours.numpy(), radii)

    def test_the_guarantee_holds_at_every_centre(self, calibration_sets):
        assert holds(*self.coverage(calibration_sets, 1.0)).all()

    def test_without_the_mass_at_infinity_it_fails_at_every_centre(self, calibration_sets):
        assert not holds(*self.coverage(calibration_sets, 0.0)).any()


class TestCalibrated:
    """On smaller calibration sets, where the mass at infinity counts for more."""

    N_CALIB, N_TRIALS = 40, 100
    PLACES = (3, 4, 5)  # the centres 0, 1 and 2

    def coverage(self, *, told, own_mass=1.0):
        """Local coverage with the kernel at the centre as likelihood ratios, or without a word on it."""
        rows, masses = localized_rows(8, 5.0)
        rng, coverage = np.random.default_rng(0), []
        for _ in range(self.N_TRIALS):
            x = rng.normal(size=self.N_CALIB)
            scores = np.abs((0.2 + np.abs(x)) * rng.normal(size=self.N_CALIB))
            coverage.append(
                [self.one(x, scores, place, (rows, masses), told, own_mass) for place in self.PLACES]
            )
        return np.mean(coverage, 0), np.std(coverage, 0) / self.N_TRIALS**0.5

    @staticmethod
    def one(x, scores, place, localized, told, own_mass):
        rows, masses = localized
        points, queries = torch.as_tensor(x[:, None]), torch.as_tensor(rows[:, None])
        ratios = torch.exp(-(points[:, 0] - CENTRES[place]).square()) if told else None
        calibration = SortedRows.of(points, torch.as_tensor(scores), ratios=ratios)
        own = (
            torch.exp(-(queries[:, 0] - CENTRES[place]).square()) if told else torch.ones(len(rows)).double()
        )
        asked = Queries(queries, own_mass * own)
        radius = calibrated_radius(asked, calibration, standing(calibration), np.array([LEVEL]))[:, 0]
        return coverage_by_row(radius.numpy(), rows, masses[place])

    def test_the_guarantee_holds_where_the_localized_rows_are_told_of(self):
        coverage, error = self.coverage(told=True)
        assert (coverage >= LEVEL - 4.0 * error).all()

    def test_without_the_mass_at_infinity_it_fails(self):
        coverage, error = self.coverage(told=True, own_mass=1e-9)
        assert (coverage < LEVEL - 4.0 * error).all()

    def test_it_is_not_local_by_itself(self):
        coverage, error = self.coverage(told=False)
        assert coverage[-1] < LEVEL - 4.0 * error[-1]
