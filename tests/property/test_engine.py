"""The fast engine against the float64 oracle."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lvd.quantiles import engine
from lvd.conformal import conformal_quantile
from lvd.conformal.oracle import gaussian_weights, local_weights, weighted_quantile
from lvd.kernels import tiles

LEVELS = np.array([0.1, 0.5, 0.75, 0.9, 0.95])


@dataclass(frozen=True)
class Case:
    points: np.ndarray
    scores: np.ndarray
    queries: np.ndarray


@st.composite
def cases(draw, max_rows=400):
    """Clouds of any spread, anywhere, with repeated rows and tied scores, and queries near and far."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    m, k = draw(st.integers(0, max_rows)), draw(st.integers(1, 12))
    spread = 10.0 ** draw(st.floats(-3.0, 3.0))
    offset = draw(st.sampled_from([0.0, 1e3, -1e4, 1e6]))
    n_distinct = max(1, draw(st.sampled_from([1, m // 4, m])))
    cloud = offset + spread * rng.normal(size=(n_distinct, k))
    points = cloud[rng.integers(n_distinct, size=m)]
    scores = np.round(rng.gamma(1.0, size=m), draw(st.sampled_from([0, 1, 15])))
    near = cloud[rng.integers(n_distinct, size=4)]
    queries = np.concatenate(
        [near, near + 0.3 * rng.normal(size=near.shape), offset + spread * rng.normal(size=(4, k))]
    )
    return Case(points, scores, queries)


@dataclass(frozen=True)
class Masses:
    """Likelihood ratios of the calibration rows, the kernel's floor, and the query's own mass at the two ends."""

    ratios: np.ndarray | None = None
    floor: float = 0.0
    above: float = 1.0
    below: float = 0.0


@st.composite
def cases_with_masses(draw, max_rows=300):
    """Ratios of any spread, with equal ones among them, floors up to a constant kernel, masses small and large."""
    case = draw(cases(max_rows))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    spread = draw(st.sampled_from([None, 0.0, 1.0, 10.0, 100.0]))
    digits = draw(st.sampled_from([0, 15]))
    exponents = np.round((spread or 0.0) * rng.normal(size=len(case.scores)), digits)
    return case, Masses(
        None if spread is None else 2.0**exponents,
        draw(st.sampled_from([0.0, 1e-9, 0.045, 0.1, 0.5, 1.0])),
        draw(st.sampled_from([0.0, 1e-30, 0.3, 1.0, 50.0])),
        draw(st.sampled_from([0.0, 1e-30, 0.3, 1.0, 50.0])),
    )


def engine_radius(case, levels=LEVELS, self_weight=1.0, masses=None):
    masses = Masses(above=self_weight) if masses is None else masses
    ratios = None if masses.ratios is None else torch.as_tensor(masses.ratios)
    calibration = engine.sort_calibration(
        torch.as_tensor(case.points), torch.as_tensor(case.scores), weights=ratios, floor=masses.floor
    )
    queries = torch.as_tensor(case.queries)
    own = (torch.full((len(queries),), mass, dtype=torch.float64) for mass in (masses.above, masses.below))
    return engine.radius(queries, calibration, levels, *own).numpy()


def oracle_radius(case, levels=LEVELS, self_weight=1.0, masses=None):
    masses = Masses(above=self_weight) if masses is None else masses
    ratios = np.ones(len(case.scores)) if masses.ratios is None else masses.ratios
    weights = [local_weights(query, case.points, ratios, masses.floor) for query in case.queries]
    return np.array(
        [
            [
                weighted_quantile(case.scores, w, masses.above, level, masses.below)
                for level in levels.tolist()
            ]
            for w in weights
        ]
    )


@given(cases())
def test_the_engine_is_the_oracle_bit_for_bit(case):
    np.testing.assert_array_equal(engine_radius(case), oracle_radius(case))


@settings(max_examples=25)
@given(cases(max_rows=60), st.sampled_from([0.0, 1e-300, 1e-30, 1e-9, 1e-3, 0.5]))
def test_whatever_the_mass_at_infinity(case, self_weight):
    np.testing.assert_array_equal(
        engine_radius(case, self_weight=self_weight), oracle_radius(case, self_weight=self_weight)
    )


@given(cases(), st.sampled_from([0.0, 1e-30, 1.0]))
def test_without_exact_rows_the_engine_is_never_narrower(case, self_weight):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "EXACT_ROWS", 0)
        assert (
            engine_radius(case, self_weight=self_weight) >= oracle_radius(case, self_weight=self_weight)
        ).all()


@given(cases_with_masses())
def test_whatever_the_masses(given_case):
    case, masses = given_case
    np.testing.assert_array_equal(engine_radius(case, masses=masses), oracle_radius(case, masses=masses))


@given(cases_with_masses())
def test_without_exact_rows_the_engine_is_never_narrower_whatever_the_masses(given_case):
    case, masses = given_case
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "EXACT_ROWS", 0)
        assert (engine_radius(case, masses=masses) >= oracle_radius(case, masses=masses)).all()


@settings(max_examples=25)
@given(st.integers(1, 300), st.integers(0, 2**32 - 1), st.sampled_from([0.045, 0.1, 0.7, 1.0]))
def test_a_floor_changes_nothing_in_a_constant_kernel(m, seed, floor):
    scores = np.random.default_rng(seed).gamma(1.0, size=m)
    case = Case(np.full((m, 2), 7.5), scores, np.full((1, 2), 7.5))
    levels = np.linspace(0.013, 0.987, 99)  # no multiples of 1 / (m + 1), which rounding would decide
    masses = Masses(floor=floor)
    np.testing.assert_array_equal(
        engine_radius(case, levels, masses=masses)[0], conformal_quantile(scores, levels)
    )


@settings(max_examples=25)
@given(cases(max_rows=60), st.integers(0, 2**32 - 1))
def test_a_whole_weight_is_that_many_rows(case, seed):
    repeats = np.random.default_rng(seed).integers(1, 5, size=len(case.scores))
    longer = Case(case.points.repeat(repeats, axis=0), case.scores.repeat(repeats), case.queries)
    masses = Masses(ratios=repeats.astype(float))
    np.testing.assert_allclose(engine_radius(case, masses=masses), engine_radius(longer), rtol=0, atol=0)


@settings(max_examples=25)
@given(cases(), st.randoms(use_true_random=False))
def test_permuting_the_calibration_set_changes_nothing(case, random):
    order = random.sample(range(len(case.scores)), len(case.scores))
    permuted = Case(case.points[order], case.scores[order], case.queries)
    np.testing.assert_array_equal(engine_radius(permuted), engine_radius(case))


@settings(max_examples=25)
@given(cases())
def test_the_radius_grows_with_the_level(case):
    radius = engine_radius(case, np.linspace(0.02, 0.98, 25))
    assert (radius[:, 1:] >= radius[:, :-1]).all()


@settings(max_examples=25)
@given(cases(max_rows=100), st.floats(0.0, 10.0))
def test_a_row_without_weight_can_be_removed(case, score):
    far = case.queries.max(0) + 1e4 * (1.0 + np.abs(case.queries).max())
    longer = Case(np.vstack([case.points, far]), np.append(case.scores, score), case.queries)
    np.testing.assert_array_equal(engine_radius(longer), engine_radius(case))


@settings(max_examples=25)
@given(st.integers(0, 300), st.integers(0, 2**32 - 1), st.sampled_from([0, 1, 15]))
def test_a_constant_kernel_is_split_conformal(m, seed, digits):
    scores = np.round(np.random.default_rng(seed).gamma(1.0, size=m), digits)
    case = Case(np.full((m, 2), 7.5), scores, np.full((1, 2), 7.5))
    levels = np.linspace(0.01, 0.99, 99)
    np.testing.assert_array_equal(engine_radius(case, levels)[0], conformal_quantile(scores, levels))


@pytest.mark.parametrize("m", [0, 1, 127, 128, 129, 2047, 2048, 2049, 4500])
def test_sizes_around_blocks_and_tiles(m, rng):
    case = Case(rng.normal(size=(m, 3)), rng.gamma(1.0, size=m), rng.normal(size=(130, 3)))
    np.testing.assert_array_equal(engine_radius(case), oracle_radius(case))


class ManyQueries(NamedTuple):
    """100,000 queries at two levels, the cumulative shares of the weight, and the oracle's radii."""

    case: Case
    levels: np.ndarray
    shares: np.ndarray
    radius: np.ndarray


@pytest.fixture(scope="module")
def many():
    """The oracle's formula in numpy, for all queries of a chunk at once."""
    rng = np.random.default_rng(1)
    centre, levels = np.array([1e4, 0.0, -3.0, 20.0]), np.array([0.5, 0.9])
    points, queries = (0.6 * rng.normal(size=(n, 4)) + centre for n in (300, 100_000))
    case = Case(points, np.sort(rng.gamma(1.0, size=300)), queries)
    shares = np.empty((len(queries), len(points)))
    for rows in np.array_split(np.arange(len(queries)), 100):
        squared = sum(np.square(queries[rows, None, j] - points[:, j]) for j in range(4))
        cumulative = np.exp(-squared).cumsum(1)
        shares[rows] = cumulative / (1.0 + cumulative[:, -1:])
    ranks = np.stack([(shares < level).sum(1) for level in levels], axis=1)
    return ManyQueries(case, levels, shares, np.append(case.scores, np.inf)[ranks])


class TestManyQueries:
    def test_the_formula_here_is_the_oracle(self, many):
        few = replace(many.case, queries=many.case.queries[:200])
        np.testing.assert_array_equal(many.radius[:200], oracle_radius(few, many.levels))

    def test_equal_to_the_oracle(self, many):
        np.testing.assert_array_equal(engine_radius(many.case, many.levels), many.radius)

    def test_without_exact_rows_only_close_calls_differ(self, many, monkeypatch):
        monkeypatch.setattr(engine, "EXACT_ROWS", 0)
        few = replace(many.case, queries=many.case.queries[:40_000])
        radius, expected = engine_radius(few, many.levels), many.radius[:40_000]
        assert (radius >= expected).all()
        different = np.argwhere(radius != expected)
        assert 0 < len(different) < 0.01 * radius.size
        for query, column in different:
            passed = many.shares[query, many.case.scores < radius[query, column]].max()
            assert many.levels[column] <= passed <= many.levels[column] + 1e-5


class TestLevelsAtTheVeryEdge:
    """Levels a hair above the cumulative shares of one query: float32 alone cannot tell on which side they lie."""

    @pytest.fixture
    def case(self, rng):
        return Case(rng.normal(size=(60, 3)), np.sort(rng.gamma(1.0, size=60)), rng.normal(size=(1, 3)))

    @pytest.fixture
    def levels(self, case):
        cumulative = gaussian_weights(case.queries[0], case.points).cumsum()
        return cumulative / (1.0 + cumulative[-1]) + 1e-12

    def test_are_told_apart(self, case, levels):
        np.testing.assert_array_equal(engine_radius(case, levels), oracle_radius(case, levels))

    def test_cannot_be_told_apart_without_the_margin(self, case, levels, monkeypatch):
        monkeypatch.setattr(tiles, "relative_error", lambda left, prepared, dtype: left.new_zeros(len(left)))
        assert (engine_radius(case, levels) < oracle_radius(case, levels)).sum() > 10

    def test_are_passed_without_exact_rows(self, case, levels, monkeypatch):
        monkeypatch.setattr(engine, "EXACT_ROWS", 0)
        assert (engine_radius(case, levels) >= oracle_radius(case, levels)).all()


def float32_shares(queries, points):
    """Cumulative shares from float32 weights, their true values, and the promised bound on the difference."""
    prepared = tiles.prepare_points(torch.as_tensor(points))
    left = tiles.left_factor(torch.as_tensor(queries), prepared)
    single = torch.mm(left.float(), prepared.single).exp().numpy().astype(np.float64)[:, : len(points)]
    exact = np.stack([gaussian_weights(query, points) for query in queries])
    shares = [w.cumsum(1) / (1.0 + w.sum(1, keepdims=True)) for w in (single, exact)]
    return *shares, tiles.relative_error(left, prepared, torch.float32).numpy()


@pytest.mark.parametrize("k", [1, 2, 10, 12, 24, 100, 300])
def test_the_error_bound_holds_where_roundings_are_worst(k, rng):
    """Two clusters opposite each other, the query in one of them: long sums of products of one sign."""
    worst = 0.0
    for trial in range(60):
        m, distance = rng.choice([2, 3, 20]), rng.uniform(0.5, 3.9)
        direction = np.ones(k) if trial % 2 else np.abs(rng.normal(size=k))
        direction *= distance / np.linalg.norm(direction)
        jitter = 10.0 ** rng.uniform(-4, 0) / k**0.5
        points = rng.choice([-1.0, 1.0], size=(m, 1)) * direction + jitter * rng.normal(size=(m, k))
        queries = direction + jitter * rng.normal(size=(50, k))
        single, exact, bound = float32_shares(queries, points)
        worst = max(worst, (np.abs(single - exact).max(1) / bound).max())
    assert 0.05 < worst < 0.75


@pytest.mark.parametrize("spread", [0.01, 0.3, 1.0, 3.0])
def test_the_error_bound_holds_in_clouds(spread, rng):
    points, queries = spread * rng.normal(size=(1000, 10)), spread * rng.normal(size=(300, 10))
    single, exact, bound = float32_shares(queries, points)
    assert (np.abs(single - exact).max(1) < 0.75 * bound).all()


def test_far_queries_leave_float32():
    prepared = tiles.prepare_points(torch.zeros(3, 2, dtype=torch.float64))
    queries = torch.tensor([[0.0, 0.0], [3.0, 0.0], [10.0, 0.0]], dtype=torch.float64)
    assert tiles.float32_suffices(tiles.left_factor(queries, prepared), prepared).tolist() == [
        True,
        True,
        False,
    ]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_exponentials_that_would_underflow_are_0(dtype):
    least = tiles.LEAST_EXPONENTS[dtype]
    exponents = torch.tensor([0.0, -1.0, least + 1.0, least - 1.0, 3.0 * least, -torch.inf] * 9, dtype=dtype)
    expected = torch.where(exponents > least, exponents.exp(), 0.0)
    torch.testing.assert_close(tiles.exp_without_underflow(exponents.clone()), expected, rtol=1e-6, atol=0.0)


@pytest.mark.parametrize("own", [0.0, 1e-306, 1e-290, 1e-13, 1e-3])
@pytest.mark.parametrize("exact_rows", [0, engine.EXACT_ROWS])
def test_all_rows_so_far_that_their_weights_hardly_exist(own, exact_rows, rng, monkeypatch):
    monkeypatch.setattr(engine, "EXACT_ROWS", exact_rows)
    points, scores = rng.uniform(25.0, 27.5, size=(300, 1)), rng.exponential(size=300)
    calibration = engine.sort_calibration(torch.tensor(points), torch.tensor(scores))
    query = torch.zeros(1, 1, dtype=torch.float64)
    ours = engine.radius(query, calibration, LEVELS, torch.tensor([own], dtype=torch.float64))[0].numpy()
    weights = gaussian_weights(np.zeros(1), points)
    expected = np.array([weighted_quantile(scores, weights, own, level) for level in LEVELS])
    assert (ours == expected).all() if exact_rows else (ours >= expected).all()


class TestEffectiveSampleSize:
    @staticmethod
    def of(query, points):
        size = tiles.effective_sample_size(
            *(torch.tensor(rows, dtype=torch.float64) for rows in ([query], points))
        )
        return float(size[0])

    @pytest.mark.parametrize("m", [1, 7, 3000])
    def test_equal_weights_are_worth_their_number(self, m):
        assert self.of([2.0, 1.0], np.full((m, 2), [2.0, 1.0])) == m

    def test_equal_distances_are_worth_their_number(self):
        angles = np.linspace(0.0, 6.0, 40)
        circle = 1.5 * np.stack([np.cos(angles), np.sin(angles)], axis=1)
        assert self.of([0.0, 0.0], circle) == pytest.approx(40.0, rel=1e-5)

    def test_one_near_row_among_far_ones(self):
        assert self.of([0.0], [[0.1], [60.0], [-80.0]]) == pytest.approx(1.0, rel=1e-5)

    def test_two_weights_by_hand(self):
        first, second = np.exp(-0.25), np.exp(-1.0)
        expected = (first + second) ** 2 / (first**2 + second**2)
        assert self.of([0.0], [[0.5], [1.0]]) == pytest.approx(expected, rel=1e-5)

    @pytest.mark.parametrize("distance", [6.0, 6.5, 9.0, 12.0, 18.0])
    def test_weights_of_next_to_nothing_count_too(self, distance):
        assert self.of([0.0], [[distance]] * 100 + [[-distance]] * 100) == pytest.approx(200.0, rel=1e-4)

    def test_no_weight_at_all(self):
        assert self.of([0.0], [[1e3], [2e3]]) == 0.0
