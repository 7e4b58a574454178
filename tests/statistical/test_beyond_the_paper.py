"""Promises past the paper: an exact level, groups, another population, whole distributions.

In every trial the calibration set is a fresh one and there is one new row, so that the number of covered rows is
binomial. Radii are the oracle's, which is quick on single rows; that the library's are the same is tested on some.
Each promise stands beside a version without the thing that makes it true.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import binomtest, kstest

import lvd
from lvd.calibration.calibration_rows import draw_shares, local_cdf
from lvd.calibration.guarantees import (
    calibrated_radius,
    draw_centres,
    randomized_radius,
    standing,
)
from lvd.engine import Queries, SortedRows
from lvd.engine.oracle import gaussian_weights, weighted_quantile

LEVEL = 0.9
SURE = 1e-6
FEW = 10


def chance_of_so_few(covered):
    return binomtest(int(np.sum(covered)), len(covered), LEVEL, alternative="less").pvalue


def chance_of_so_far_off(covered):
    return binomtest(int(np.sum(covered)), len(covered), LEVEL).pvalue


class TestSmoothed:
    """With few rows nearby, the unsmoothed radius is infinite more often than it must be."""

    N_TRIALS, N_CALIB = 2500, 30

    @pytest.fixture
    def trials(self):
        rows = np.random.default_rng(0).normal(size=(self.N_TRIALS, self.N_CALIB + 1, 2))
        return rows, np.linalg.norm(rows, axis=2)

    @staticmethod
    def radii(trials, shares):
        """Radii with the share of the own mass at +inf that is given, the rest of it at -inf; 1: unsmoothed."""
        rows, scores = trials
        centres = draw_centres(torch.tensor(rows[:, -1]), 0).numpy()
        result = []
        for points, v, centre, share in zip(rows, scores, centres, shares, strict=True):
            *weights, own = gaussian_weights(centre, points)
            result.append(
                weighted_quantile(v[:-1], np.array(weights), share * own, LEVEL, (1.0 - share) * own)
            )
        return np.array(result)

    @staticmethod
    def drawn(trials):
        return draw_shares(torch.tensor(trials[0][:, -1]), 0).numpy()

    @pytest.mark.parametrize("smoothed", [False, True])
    def test_the_radii_here_are_the_librarys(self, trials, smoothed):
        rows, scores = (torch.tensor(part[:FEW]) for part in trials)
        shares = self.drawn(trials)[:FEW] if smoothed else np.ones(FEW)
        expected = self.radii((rows.numpy(), scores.numpy()), shares)
        for points, v, radius in zip(rows, scores, expected, strict=True):
            asked = Queries(points[-1:]), SortedRows.of(points[:-1], v[:-1]), np.array([LEVEL])
            assert randomized_radius(*asked, seed=0, smoothed=smoothed).item() == radius

    def test_the_level_is_met_exactly(self, trials):
        covered = trials[1][:, -1] <= self.radii(trials, self.drawn(trials))
        assert chance_of_so_far_off(covered) > SURE
        assert abs(covered.mean() - LEVEL) < 4.0 * (LEVEL * (1.0 - LEVEL) / self.N_TRIALS) ** 0.5

    def test_without_smoothing_it_is_exceeded(self, trials):
        covered = trials[1][:, -1] <= self.radii(trials, np.ones(self.N_TRIALS))
        assert chance_of_so_few(covered) > SURE
        assert chance_of_so_far_off(covered) < SURE

    def test_a_share_that_is_not_drawn_misses_the_level(self, trials):
        covered = trials[1][:, -1] <= self.radii(trials, np.zeros(self.N_TRIALS))
        assert chance_of_so_far_off(covered) < SURE


def constant_kernel():
    return lvd.MahalanobisKernel.from_components(np.zeros((1, 1)), mean=[0.0], scale=[1.0], device="cpu")


class TestShift:
    """Calibration rows x ~ N(0, 1), new rows x ~ N(1, 1), the errors growing with |x|; a constant kernel."""

    N_TRIALS, N_CALIB = 2000, 200

    @pytest.fixture
    def trials(self):
        rng = np.random.default_rng(0)
        x = rng.normal(size=(self.N_TRIALS, self.N_CALIB + 1))
        x[:, -1] += 1.0
        return x, np.abs((0.2 + np.abs(x)) * rng.normal(size=x.shape)), np.exp(x - 0.5)

    @staticmethod
    def radii(trials):
        _, scores, ratios = trials
        return np.array(
            [weighted_quantile(v[:-1], w[:-1], w[-1], LEVEL) for v, w in zip(scores, ratios, strict=True)]
        )

    def test_the_radii_here_are_the_librarys(self, trials):
        few = [part[:FEW] for part in trials]
        for x, scores, ratios, radius in zip(*few, self.radii(few), strict=True):
            conformal = lvd.LocalConformal(constant_kernel())
            conformal.conformalize(x[:-1, None], scores[:-1], weights=ratios[:-1])
            for guarantee in ("randomized", "calibrated"):
                found = conformal.radius(x[-1:, None], LEVEL, guarantee=guarantee, weights=ratios[-1:])
                assert found[0] == radius

    def test_weights_restore_the_coverage(self, trials):
        assert chance_of_so_few(trials[1][:, -1] <= self.radii(trials)) > SURE

    def test_without_weights_it_is_lost(self, trials):
        x, scores, ratios = trials
        assert chance_of_so_few(scores[:, -1] <= self.radii((x, scores, np.ones_like(ratios)))) < SURE

    @pytest.mark.parametrize("told", [True, False])
    def test_a_calibrated_level_needs_them_too(self, told):
        """Rows x ~ N(2, 1) among neighbours, with a kernel of their own."""
        rng, covered = np.random.default_rng(1), []
        for _ in range(150):
            x = np.append(rng.normal(size=100), rng.normal(2.0))
            points, ratios = torch.tensor(x[:, None] / 3.0), torch.tensor(np.exp(2.0 * x - 2.0))
            scores = torch.tensor(np.abs((0.2 + np.abs(x)) * rng.normal(size=101)))
            calib = SortedRows.of(points[:-1], scores[:-1], ratios=ratios[:-1] if told else None)
            asked = Queries(points[-1:], ratios[-1:] if told else None)
            radius = calibrated_radius(asked, calib, standing(calib), np.array([LEVEL]))
            covered.append(scores[-1].item() <= radius.item())
        assert (chance_of_so_few(covered) > SURE) == told


class TestGroups:
    """A small loud group among many quiet rows, asked for rows of the loud one; a constant kernel."""

    N_TRIALS, N_CALIB = 1000, 120

    @pytest.fixture
    def trials(self):
        rng = np.random.default_rng(0)
        loud = rng.uniform(size=(self.N_TRIALS, self.N_CALIB + 1)) < 0.2
        loud[:, -1] = True
        return loud, np.abs(rng.normal(size=loud.shape)) * np.where(loud, 3.0, 1.0)

    @staticmethod
    def radii(loud, scores):
        """Radii from the rows that are chosen as loud."""
        return np.array(
            [
                weighted_quantile(v[:-1], chosen[:-1].astype(float), 1.0, LEVEL)
                for chosen, v in zip(loud, scores, strict=True)
            ]
        )

    def test_the_radii_here_are_the_librarys(self, trials):
        loud, scores = (part[:FEW] for part in trials)
        for groups, v, radius in zip(loud, scores, self.radii(loud, scores), strict=True):
            rows = np.zeros((self.N_CALIB, 1))
            conformal = lvd.LocalConformal(constant_kernel()).conformalize(rows, v[:-1], groups=groups[:-1])
            assert conformal.radius(rows[:1], LEVEL, groups=[True])[0] == radius

    def test_each_group_is_covered(self, trials):
        assert chance_of_so_few(trials[1][:, -1] <= self.radii(*trials)) > SURE

    def test_without_groups_the_loud_one_is_not(self, trials):
        loud, scores = trials
        assert chance_of_so_few(scores[:, -1] <= self.radii(np.ones_like(loud), scores)) < SURE


class TestPIT:
    """Signed errors that do not depend on x: the distributions are right, whatever the kernel."""

    N_TRIALS, N_CALIB = 200, 300

    def values(self, *, stretch=1.0, shift=0.0):
        values = []
        for trial in range(self.N_TRIALS):
            rng = np.random.default_rng(trial)
            points = torch.tensor(rng.normal(size=(self.N_CALIB + 1, 1)))
            errors = rng.gamma(2.0, size=self.N_CALIB + 1) - 2.0
            calibration = SortedRows.of(points[:-1], torch.tensor(errors[:-1]))
            asked, at = Queries(points[-1:]), torch.tensor(stretch * errors[-1:] + shift)
            values.append(local_cdf(asked, calibration, at, draw_shares(points[-1:], 0)).item())
        return np.array(values)

    def test_is_uniform_under_the_right_model(self):
        assert kstest(self.values(), "uniform").pvalue > SURE

    @pytest.mark.parametrize("wrong", [{"stretch": 3.0}, {"shift": 1.0}], ids=["narrow", "shifted"])
    def test_is_not_under_a_wrong_one(self, wrong):
        assert kstest(self.values(**wrong), "uniform").pvalue < SURE
