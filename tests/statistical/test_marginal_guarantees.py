"""Where plain LVD falls short of its level on average, and the two other guarantees hold.

With X ~ N(0, I_10), a kernel of bandwidth h^2 = 2 and the score ||X||, a row has neighbours that lie nearer to the
origin and have smaller scores. With a bandwidth for each row, fixed by training rows, half of the rows are crowded
at 0 and half are strewn far out, look far, and have larger scores than the rows they find there.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import binomtest

from lvd.calibration.guarantees import (
    calibrated_radius,
    draw_centres,
    randomized_radius,
    sample_points,
    standing,
)
from lvd.engine import Queries, SortedRows, local_quantile
from lvd.engine.quantiles import TrainingSample, adaptive_bandwidths

LEVEL = np.array([0.9])


def covers(rng, m, radii):
    """One trial: a fresh calibration set and one new row, which each of the radii covers or not."""
    rows = rng.normal(size=(m + 1, 10))
    points = torch.tensor(rows / 2.0)
    scores = torch.tensor(np.linalg.norm(rows, axis=1))
    calibration = SortedRows.of(points[:-1], scores[:-1])
    return [bool(scores[-1] <= radius(points[-1:], calibration).item()) for radius in radii]


def local(query, calibration):
    return local_quantile(Queries(query), calibration, LEVEL).radius


def randomized(query, calibration):
    return randomized_radius(Queries(query), calibration, LEVEL, seed=0)


def level_calibrated(query, calibration):
    return calibrated_radius(Queries(query), calibration, standing(calibration), LEVEL)


def broken(query, calibration):
    known = standing(calibration)
    weaker = replace(known, below=0.9 * known.below)
    return calibrated_radius(Queries(query), calibration, weaker, LEVEL)


@pytest.mark.parametrize(
    ("radius", "too_small", "m"),
    [(randomized, local, 20_000), (level_calibrated, broken, 300)],
    ids=["randomized beside plain radii", "a calibrated level beside a weaker one"],
)
def test_marginal_coverage_holds_where_smaller_radii_fall_short(radius, too_small, m):
    trials = [covers(np.random.default_rng(trial), m, (radius, too_small)) for trial in range(300)]
    holds, falls_short = (
        binomtest(sum(covered), len(trials), 0.9, alternative="less").pvalue
        for covered in zip(*trials, strict=True)
    )
    assert holds > 1e-6
    assert falls_short < 1e-6


class TestAdaptiveBandwidths:
    N_CALIB, N_TRIALS = 100, 300

    @staticmethod
    def draw(rng, n):
        x = np.where(rng.random(n) < 0.5, 20.0 * rng.exponential(size=n) + 1.0, 0.5 * rng.normal(size=n))
        return torch.tensor(x[:, None]), torch.tensor(np.abs(x) + 0.1 * rng.random(n))

    def covered(self, ways):
        """Fresh calibration rows and one new row in each trial; the training rows stay."""
        sample = TrainingSample.of(self.draw(np.random.default_rng(99), 600)[0])
        result = []
        for trial in range(self.N_TRIALS):
            points, scores = self.draw(np.random.default_rng(trial), self.N_CALIB + 1)
            rows = SortedRows.of(points[:-1], scores[:-1])
            h, own = (
                adaptive_bandwidths(some, sample, n_calib=self.N_CALIB, level=0.9, mass=3.0)
                for some in (rows.points, points[-1:])
            )
            query = Queries(points[-1:], bandwidths=own)
            result.append([bool(scores[-1] <= way(query, rows, h).item()) for way in ways])
        return zip(*result, strict=True)

    @staticmethod
    def randomized(query, rows, h):
        return randomized_radius(query, sample_points(rows, h), LEVEL, seed=0)

    @staticmethod
    def randomized_with_the_querys_bandwidth_for_all(query, rows, h):
        centre = draw_centres(query.points, 0, None, query.bandwidths)
        own = (centre - query.points).square().sum(1).mul(-query.precisions).exp()
        return local_quantile(Queries(centre, own, bandwidths=query.bandwidths), rows, LEVEL).radius

    @staticmethod
    def calibrated(query, rows, h):
        return calibrated_radius(query, rows, standing(rows, h), LEVEL)

    @staticmethod
    def calibrated_with_the_rows_as_narrow_as_learned(query, rows, h):
        return calibrated_radius(query, rows, standing(rows), LEVEL)

    @pytest.mark.parametrize(
        ("right", "mutant"),
        [
            ("randomized", "randomized_with_the_querys_bandwidth_for_all"),
            ("calibrated", "calibrated_with_the_rows_as_narrow_as_learned"),
        ],
    )
    def test_coverage_holds_where_other_bandwidths_fall_short(self, right, mutant):
        holds, falls_short = (
            binomtest(sum(covered), self.N_TRIALS, 0.9, alternative="less").pvalue
            for covered in self.covered([getattr(self, right), getattr(self, mutant)])
        )
        assert holds > 1e-6
        assert falls_short < 1e-6
