from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import halfnorm

from experiments.arena import pcp
from experiments.arena.contest import run_contestant
from experiments.arena.epicscore import learn_scores
from experiments.arena.pcp import PosteriorMixture, fit_mixture, posterior_radius
from experiments.arena.rectified import learn_quantile
from experiments.arena.split import ArenaSplit
from experiments.arena.tables import ArenaTable, load_arena_table

pytestmark = pytest.mark.slow  # rivals of the arena alone, most of them networks
RECENT = (
    "pcp",
    "rcp",
    "cpcp",
    "epicscore",
    "dcp",
    "dcp-optimal",
    "chr",
    "clear",
    "cv-plus-ten-lines",
)


@pytest.fixture(scope="module")
def split():
    table = load_arena_table("corner", None)
    some, X = np.arange(1500), table.features(np.arange(1))
    return ArenaSplit(
        ArenaTable("corner", table.y[some], lambda train: X[some], table.truth.rows(some)), "trees", 0
    )


@pytest.fixture(scope="module")
def two_noises():
    """Inputs, and absolute errors three times as large where the first input is positive."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1500, 2))
    return X, np.abs(rng.normal(size=1500)) * np.where(X[:, 0] > 0, 3.0, 1.0)


@pytest.mark.parametrize("method", RECENT)
def test_they_cover_and_see_the_noise(split, method):
    plain, result = (run_contestant(split, name, 0.9) for name in ("split", method))
    assert result.error == ""
    assert 0.84 < result.coverage < 0.96
    assert result.conditional_gap < 0.7 * plain.conditional_gap


def test_a_score_boosted_for_a_small_mean_length_covers_and_is_shortest(split):
    """Mean length is small where noisy rows are covered less, so that coverage is not more even."""
    others = [run_contestant(split, name, 0.9) for name in ("split", "ten-lines", "chr")]
    result = run_contestant(split, "boosted", 0.9)
    assert result.error == ""
    assert 0.84 < result.coverage < 0.96
    assert result.width < 0.95 * min(other.width for other in others)


@pytest.mark.parametrize("method", ["pcp", "cpcp", "epicscore"])
def test_the_same_seed_gives_the_same(split, method):
    torch.manual_seed(0)
    one = run_contestant(split, method, 0.5)
    torch.manual_seed(1)  # the process's own generator has no say
    again = run_contestant(ArenaSplit(split.table, "trees", 0), method, 0.5)
    assert (one.winkler, one.coverage) == (again.winkler, again.coverage)


def mixture(parts, n_draws):
    """Two inputs that are the standardised answers themselves."""
    n = len(parts[0])
    return PosteriorMixture(
        np.zeros(1), np.ones(1), np.zeros((2, n)), np.zeros(n), np.ones(n), np.array(parts), n_draws
    )


def test_pcp_with_one_kind_of_row_is_split():
    """All rows have the same shares, so all calibration rows and the query weigh alike."""
    alike, scores = mixture([[0.0], [1.0]], 20), np.arange(1.0, 20.0)
    X, query = np.random.default_rng(0).normal(size=(19, 1)), np.zeros((3, 1))
    np.testing.assert_array_equal(
        posterior_radius(alike, X, scores, query, level=0.9, seed=0), 18.0
    )  # ceil(20 * 0.9)
    np.testing.assert_array_equal(posterior_radius(alike, X, scores, query, level=0.96, seed=0), np.inf)


def test_pcp_tells_two_kinds_apart(two_noises):
    X, errors = two_noises
    fitted = fit_mixture(X, errors, 500, 0)
    shares = fitted.shares(np.array([[-1.5, 0.0], [-1.4, 1.0], [1.5, 0.0]]))
    assert shares.sum(axis=1) == pytest.approx(1.0)
    assert np.abs(shares[0] - shares[1]).sum() < 0.5 * np.abs(shares[0] - shares[2]).sum()
    quiet, noisy = posterior_radius(fitted, X, errors, np.array([[-1.5, 0.0], [1.5, 0.0]]), level=0.9, seed=0)
    assert noisy > 1.5 * quiet


def test_pcp_more_draws_make_fewer_rows_similar():
    rng = np.random.default_rng(0)
    shares = rng.dirichlet([1.0, 1.0, 1.0], size=400)
    n_draws = pcp._choose_draws(shares)
    assert 5 < n_draws < 501


def test_the_ridge_is_the_normal_equations(rng):
    Z, below = rng.normal(size=(50, 3)), rng.random(50) < 0.4
    answers = pcp._ridge(Z, below)
    above = Z[~below]
    for penalty, answer in zip(pcp.PENALTIES, answers.T, strict=True):
        expected = np.linalg.solve(above.T @ above / len(above) + penalty * np.eye(3), Z[below].mean(axis=0))
        np.testing.assert_allclose(answer, expected, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("weighted", [True, False])
def test_the_network_learns_the_quantile(two_noises, weighted):
    X, errors = two_noises
    quiet, noisy = learn_quantile(X, errors, 0.9, 0, weighted=weighted)(np.array([[-1.0, 0.0], [1.0, 0.0]]))
    assert quiet == pytest.approx(halfnorm.ppf(0.9), rel=0.35)
    assert noisy == pytest.approx(3 * halfnorm.ppf(0.9), rel=0.35)


def test_the_distribution_of_scores_and_its_inverse(two_noises):
    X, errors = two_noises
    distribution = learn_scores(X, errors, 0)
    rows = X[:50]
    for share in (0.5, 0.9):
        radius = distribution.quantile(rows, share)
        inside = radius > 0
        assert distribution.cdf(rows, radius)[inside] == pytest.approx(share, abs=1e-6)
    assert np.isinf(distribution.quantile(rows, 1.0)).all()
    assert distribution.cdf(X, errors).mean() == pytest.approx(0.5, abs=0.06)


def test_the_score_of_a_row_does_not_depend_on_the_rows_beside_it(two_noises):
    X, errors = two_noises
    distribution = learn_scores(X[:600], errors[:600], 0)
    together, alone = (
        distribution.quantile(X[:5], 0.9),
        [distribution.quantile(X[i : i + 1], 0.9)[0] for i in range(5)],
    )
    np.testing.assert_allclose(together, alone, rtol=1e-4)
