"""Local quantiles against the float64 oracle, bit for bit, and their moments against the plain definition."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lvd.engine import Queries, SortedRows, compiled, conformal_quantile, local_quantile, quantiles
from lvd.engine.oracle import gaussian_weights, weighted_quantile

LEVELS = np.array([0.1, 0.5, 0.75, 0.9, 0.95])
MASSES = [0.0, 1e-300, 1e-30, 1e-9, 0.3, 1.0, 50.0]


@dataclass(frozen=True)
class Case:
    """Calibration rows and queries; `above` and `below` are the masses at +inf and -inf."""

    points: np.ndarray
    scores: np.ndarray
    queries: np.ndarray
    ratios: np.ndarray | None = None
    row_bandwidths: np.ndarray | None = None
    query_bandwidths: np.ndarray | None = None
    above: float = 1.0
    below: float = 0.0


@st.composite
def cases(draw, max_rows=400):
    """Clouds of any spread, anywhere, with repeated rows and tied scores, and queries near and far."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    m, k = draw(st.integers(0, max_rows)), draw(st.integers(1, 12))
    spread = 10.0 ** draw(st.floats(-3.0, 3.0))
    offset = draw(st.sampled_from([0.0, 1e3, -1e4, 1e6, 1e10]))
    n_distinct = max(1, draw(st.sampled_from([1, m // 4, m])))
    cloud = offset + spread * rng.normal(size=(n_distinct, k))
    points = cloud[rng.integers(n_distinct, size=m)]
    scores = np.round(rng.gamma(1.0, size=m), draw(st.sampled_from([0, 1, 15])))
    near = cloud[rng.integers(n_distinct, size=4)]
    queries = np.concatenate(
        [near, near + 0.3 * rng.normal(size=near.shape), offset + spread * rng.normal(size=(4, k))]
    )
    return Case(points, scores, queries)


@st.composite
def rich_cases(draw, max_rows=300):
    """The same with likelihood ratios of any spread, masses at both ends, bandwidths, and rows very far out."""
    case = draw(cases(max_rows))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    m, n = len(case.scores), len(case.queries)
    spread = draw(st.sampled_from([None, 0.0, 1.0, 10.0, 100.0]))
    middle, digits = draw(st.sampled_from([-100.0, 0.0, 40.0])), draw(st.sampled_from([0, 15]))
    points, queries = case.points.copy(), case.queries.copy()
    out = draw(st.sampled_from([0.0, 1e10, 1e25, 1e200]))
    points[rng.random(m) < draw(st.sampled_from([0.0, 0.2, 0.7]))] += out
    queries[rng.random(n) < 0.3] += out
    return replace(
        case,
        points=points,
        queries=queries,
        ratios=None if spread is None else 2.0 ** np.round(middle + spread * rng.normal(size=m), digits),
        row_bandwidths=10.0 ** rng.uniform(-0.5, 2.0, size=m) if draw(st.booleans()) else None,
        query_bandwidths=10.0 ** rng.uniform(-0.5, 2.0, size=n) if draw(st.booleans()) else None,
        above=draw(st.sampled_from(MASSES)),
        below=draw(st.sampled_from(MASSES)),
    )


def tensor(array):
    return None if array is None else torch.as_tensor(array)


def ask(case, levels=LEVELS, **wanted):
    rows = SortedRows.of(
        tensor(case.points),
        tensor(case.scores),
        ratios=tensor(case.ratios),
        bandwidths=tensor(case.row_bandwidths),
    )
    above, below = (
        torch.full((len(case.queries),), mass, dtype=torch.float64) for mass in (case.above, case.below)
    )
    queries = Queries(tensor(case.queries), above, below, tensor(case.query_bandwidths))
    values = wanted.pop("values", None)
    values = None if values is None else tensor(values)[rows.order]
    return local_quantile(queries, rows, levels, values=values, **wanted)


def engine_radius(case, levels=LEVELS):
    found = ask(case, levels)
    assert found.exact.all()
    return found.radius.numpy()


def oracle_weights(case):
    """One row of weights after the other, as the definition reads."""
    own = 1.0 if case.row_bandwidths is None else 1.0 / case.row_bandwidths**2
    bandwidths = np.ones(len(case.queries)) if case.query_bandwidths is None else case.query_bandwidths
    ratios = 1.0 if case.ratios is None else case.ratios
    for query, h in zip(case.queries, bandwidths, strict=True):
        yield ratios * gaussian_weights(query, case.points, 1.0 / h**2 * own)


def oracle_radius(case, levels=LEVELS):
    return np.array(
        [
            [
                weighted_quantile(case.scores, weights, case.above, level, case.below)
                for level in levels.tolist()
            ]
            for weights in oracle_weights(case)
        ]
    )


class TestRadii:
    @given(cases())
    def test_are_the_oracles_bit_for_bit(self, case):
        np.testing.assert_array_equal(engine_radius(case), oracle_radius(case))

    @settings(max_examples=400)
    @given(rich_cases())
    def test_whatever_the_weights(self, case):
        np.testing.assert_array_equal(engine_radius(case), oracle_radius(case))

    @settings(max_examples=25)
    @given(rich_cases())
    def test_do_not_depend_on_where_float64_begins(self, case):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(quantiles, "SINGLE_ROWS", 0)
            np.testing.assert_array_equal(engine_radius(case), oracle_radius(case))

    @settings(max_examples=200)
    @given(rich_cases())
    def test_do_not_depend_on_whether_rows_or_queries_are_beside_each_other(self, case):
        assert len(case.queries) >= quantiles.LANE_QUERIES  # elsewhere queries are
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(quantiles, "LANE_ROWS", 0)
            np.testing.assert_array_equal(engine_radius(case), oracle_radius(case))

    @pytest.mark.parametrize("n", [8, 16, 511, 512, 513, 1100])
    def test_of_more_queries_than_there_are_lanes(self, n, rng):
        points, queries = rng.normal(size=(200, 3)), 1.5 * rng.normal(size=(n, 3))
        case = Case(points, rng.gamma(1.0, size=200), queries, query_bandwidths=rng.uniform(0.5, 3.0, size=n))
        assert compiled.KEPT // 208 >= compiled.MOST_LANES == 512  # so that the numbers here are at its edges
        np.testing.assert_array_equal(engine_radius(case), oracle_radius(case))

    def test_of_more_rows_than_any_cache_holds(self, rng):
        points, queries = 0.6 * rng.normal(size=(120_000, 10)), 0.6 * rng.normal(size=(140, 10))
        assert points.size > compiled.LARGE  # and more queries than are held against a block at a time
        case, some = Case(points, rng.exponential(size=120_000), queries), [0, 127, 128, 139]
        np.testing.assert_array_equal(
            engine_radius(case)[some], oracle_radius(replace(case, queries=queries[some]))
        )

    @settings(max_examples=25)
    @given(cases(max_rows=60), st.integers(0, 2**32 - 1))
    def test_a_whole_ratio_is_that_many_rows(self, case, seed):
        repeats = np.random.default_rng(seed).integers(1, 5, size=len(case.scores))
        longer = Case(case.points.repeat(repeats, axis=0), case.scores.repeat(repeats), case.queries)
        shorter = replace(case, ratios=repeats.astype(float))
        np.testing.assert_array_equal(engine_radius(shorter), engine_radius(longer))

    @settings(max_examples=25)
    @given(cases(), st.randoms(use_true_random=False))
    def test_permuting_the_rows_changes_nothing(self, case, random):
        order = random.sample(range(len(case.scores)), len(case.scores))
        permuted = Case(case.points[order], case.scores[order], case.queries)
        np.testing.assert_array_equal(engine_radius(permuted), engine_radius(case))

    @settings(max_examples=25)
    @given(rich_cases())
    def test_grow_with_the_level(self, case):
        radius = engine_radius(case, np.linspace(0.02, 0.98, 25))
        assert (radius[:, 1:] >= radius[:, :-1]).all()

    @settings(max_examples=25)
    @given(cases(max_rows=100), st.floats(0.0, 10.0))
    def test_a_row_without_weight_can_be_removed(self, case, score):
        far = case.queries.max(0) + 1e4 * (1.0 + np.abs(case.queries).max())
        longer = Case(np.vstack([case.points, far]), np.append(case.scores, score), case.queries)
        np.testing.assert_array_equal(engine_radius(longer), engine_radius(case))

    @settings(max_examples=25)
    @given(st.integers(0, 300), st.integers(0, 2**32 - 1), st.sampled_from([0, 1, 15]))
    def test_of_a_constant_kernel_are_those_of_split_conformal(self, m, seed, digits):
        scores = np.round(np.random.default_rng(seed).gamma(1.0, size=m), digits)
        case = Case(np.full((m, 2), 7.5), scores, np.full((1, 2), 7.5))
        levels = np.linspace(0.01, 0.99, 99)
        np.testing.assert_array_equal(engine_radius(case, levels)[0], conformal_quantile(scores, levels))

    @pytest.mark.parametrize("m", [0, 1, 15, 16, 17, 63, 64, 65, 511, 512, 513, 1024, 2047, 2048, 2049, 4500])
    @pytest.mark.parametrize(("k", "lane_rows"), [(1, 2048), (10, 2048), (1, 0), (10, 0), (11, 0)])
    def test_around_the_sizes_of_blocks_and_stretches(self, m, k, lane_rows, rng, monkeypatch):
        monkeypatch.setattr(quantiles, "LANE_ROWS", lane_rows)
        case = Case(rng.normal(size=(m, k)), rng.gamma(1.0, size=m), rng.normal(size=(40, k)))
        np.testing.assert_array_equal(engine_radius(case), oracle_radius(case))

    def test_on_threads(self, rng, monkeypatch):
        case = Case(rng.normal(size=(700, 2)), rng.gamma(1.0, size=700), rng.normal(size=(200, 2)))
        alone = engine_radius(case)
        monkeypatch.setattr("lvd._parallel.THREAD_PAIRS", 1000)
        monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
        np.testing.assert_array_equal(engine_radius(case), alone)

    @pytest.mark.parametrize("own", [0.0, 1e-306, 1e-290, 1e-13, 1e-3])
    def test_of_rows_so_far_that_their_weights_hardly_exist(self, own, rng):
        points, scores = rng.uniform(25.0, 27.5, size=(300, 1)), rng.exponential(size=300)
        case = Case(points, scores, np.zeros((1, 1)), above=own)
        np.testing.assert_array_equal(engine_radius(case), oracle_radius(case))

    def test_of_no_query(self):
        assert ask(Case(np.zeros((3, 2)), np.arange(3.0), np.empty((0, 2)))).radius.shape == (0, 5)


def oracle_of_many(case, levels):
    """The oracle's formula for all queries at once; scores ascending, no ratios, no bandwidths."""
    result = []
    for chunk in np.array_split(case.queries, max(1, len(case.queries) // 1000)):
        squared = np.zeros((len(chunk), len(case.points)))
        for column in range(case.points.shape[1]):
            squared += np.square(case.points[:, column] - chunk[:, column, None])
        cumulative = np.exp(-squared).cumsum(1)
        total = case.above + cumulative[:, -1:]
        ranks = np.stack([(cumulative < level * total).sum(1) for level in levels], 1)
        result.append(np.append(case.scores, np.inf)[ranks])
    return np.concatenate(result)


def many_queries(n, seed):
    rng = np.random.default_rng(seed)
    centre = np.array([1e3, 0.0, -3.0, 20.0])
    points, queries = (0.6 * rng.normal(size=(size, 4)) + centre for size in (300, n))
    return Case(points, np.sort(rng.gamma(1.0, size=300)), queries)


class TestManyQueries:
    levels = np.array([0.5, 0.9])

    def test_the_formula_here_is_the_oracle(self):
        case = many_queries(200, 1)
        np.testing.assert_array_equal(oracle_of_many(case, self.levels), oracle_radius(case, self.levels))

    @pytest.mark.parametrize("n", [20_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
    def test_not_one_is_different(self, n):
        case = many_queries(n, 2)
        np.testing.assert_array_equal(engine_radius(case, self.levels), oracle_of_many(case, self.levels))


class TestTheCertificate:
    """Levels a hair beside the cumulative shares of one query: float32 cannot tell on which side they are."""

    @pytest.fixture(params=[1, 12])
    def case(self, rng, request):
        """One query, or the same one in several lanes."""
        points, scores = rng.normal(size=(60, 3)), np.sort(rng.gamma(1.0, size=60))
        return Case(points, scores, rng.normal(size=(1, 3)).repeat(request.param, axis=0))

    @pytest.fixture(params=[-1e-12, 1e-12])
    def levels(self, case, request):
        cumulative = gaussian_weights(case.queries[0], case.points).cumsum()
        return cumulative / (1.0 + cumulative[-1]) + request.param

    def test_tells_them_apart(self, case, levels):
        np.testing.assert_array_equal(engine_radius(case, levels), oracle_radius(case, levels))

    def test_without_it_radii_are_different(self, case, levels, monkeypatch):
        monkeypatch.setitem(compiled.ROUNDING, np.dtype(np.float32), (0.0, 0.0))
        different = engine_radius(case, levels) != oracle_radius(case, levels)
        assert (different.sum(1) > 10).all()

    @pytest.mark.parametrize("k", [1, 3, 10, 11, 30])
    @pytest.mark.parametrize("spread", [0.1, 1.0, 20.0])
    @pytest.mark.parametrize("rich", [False, True])
    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_bounds_the_errors_of_weights(self, k, spread, rich, dtype, rng):
        points = spread * rng.normal(size=(200, k)) + 7.0
        queries = points[:40] + rng.normal(size=(40, k)) / k**0.5
        ratios, precisions = (
            (rng.gamma(2.0, size=200), rng.uniform(0.1, 1.0, size=200)) if rich else (None, None)
        )
        centre = np.median(points, axis=0) if dtype == np.float32 else None
        blocks = compiled.make_blocks(points, centre, ratios, precisions)
        weights, largest = np.empty((40, 200)), np.ones(2)
        compiled.sums_over_blocks(
            queries, np.ones(40), blocks, compiled.in_blocks(list(np.eye(200)), blocks), weights
        )
        errors = [compiled._errors(queries, i, 1.0, blocks, largest) for i in range(40)]
        c0, c1 = np.array(errors)[:, :2].T[:, :, None]
        exponents = np.square(queries[:, None].astype(np.longdouble) - points).sum(2)
        exponents *= 1.0 if precisions is None else precisions
        near = exponents < 80.0  # farther weights count as 0
        exact = (np.exp(-exponents) * (1.0 if ratios is None else ratios))[near]
        shares = np.abs(weights[near] / exact - 1.0) / (c0 + c1 * exponents)[near]
        assert shares.max() < 1.0
        if (
            dtype == np.float32
        ):  # of float64 nearly all is the polynomial's, and weights near 1 have none of it
            assert shares.max() > 0.05

    def test_far_from_the_centre_float32_is_certain_of_nothing(self):
        # Rounded to multiples of 16, the row beside the query is 16 bandwidths away and has no weight.
        far = 2.0**27 + 8.0
        case = Case(
            np.array([[far + 0.1], [0.0], [0.0]]), np.arange(3.0), np.array([[far - 0.1]]), above=1e-3
        )
        assert engine_radius(case)[0, -1] == 0.0

    def test_ratios_that_leave_the_range_of_float32(self):
        # 2^-100 times exp(-x) is rounded to a multiple of 2^-149.
        x = np.array([33.9, 33.3, 33.0])
        case = Case(
            x[:, None] ** 0.5, np.arange(3.0), np.zeros((1, 1)), ratios=np.full(3, 2.0**-100), above=0.0
        )
        shares = next(oracle_weights(case)).cumsum()
        levels = np.concatenate([shares / shares[-1] * (1.0 + sign * 1e-4) for sign in (-1.0, 1.0)])
        levels = levels[levels < 1.0]
        np.testing.assert_array_equal(engine_radius(case, levels), oracle_radius(case, levels))


class TestMoments:
    @settings(max_examples=200)
    @given(rich_cases(), st.integers(0, 2**32 - 1))
    def test_are_those_of_the_definition(self, case, seed):
        values = np.random.default_rng(seed).normal(size=len(case.scores))
        found = ask(case, values=values)
        if not len(values):
            assert (found.n_effective == 0.0).all()
            assert found.mean.isnan().all()
            return
        for size, mean, weights in zip(found.n_effective, found.mean, oracle_weights(case), strict=True):
            if not 1e-140 < weights.max() < np.inf:
                continue
            assert float(size) == pytest.approx(weights.sum() ** 2 / np.square(weights).sum(), rel=1e-4)
            assert float(mean) == pytest.approx(weights @ values / weights.sum(), abs=1e-4)

    @staticmethod
    def size(query, points):
        case = Case(np.asarray(points, float), np.arange(float(len(points))), np.array([query], float))
        return float(ask(case, moments=True).n_effective[0])

    @pytest.mark.parametrize("m", [1, 7, 3000])
    def test_equal_weights_are_worth_their_number(self, m):
        assert self.size([2.0, 1.0], np.full((m, 2), [2.0, 1.0])) == m

    def test_equal_distances_are_worth_their_number(self):
        angles = np.linspace(0.0, 6.0, 40)
        circle = 1.5 * np.stack([np.cos(angles), np.sin(angles)], axis=1)
        assert self.size([0.0, 0.0], circle) == pytest.approx(40.0, rel=1e-5)

    def test_one_near_row_among_far_ones(self):
        assert self.size([0.0], [[0.1], [60.0], [-80.0]]) == pytest.approx(1.0, rel=1e-5)

    def test_two_weights_by_hand(self):
        first, second = np.exp(-0.25), np.exp(-1.0)
        expected = (first + second) ** 2 / (first**2 + second**2)
        assert self.size([0.0], [[0.5], [1.0]]) == pytest.approx(expected, rel=1e-5)

    @pytest.mark.parametrize("distance", [6.0, 6.5, 9.0, 12.0, 18.0])
    def test_faint_weights_count_to_the_digits_of_float64(self, distance):
        points = [[distance]] * 100 + [[-distance - 0.01]] * 100
        weights = gaussian_weights(np.zeros(1), np.array(points))
        expected = weights.sum() ** 2 / np.square(weights).sum()
        rel = 1e-4 if distance < 6.6 else 1e-11
        assert self.size([0.0], points) == pytest.approx(expected, rel=rel)

    def test_no_weight_at_all(self):
        assert self.size([0.0], [[1e3], [2e3]]) == 0.0

    def test_are_not_known_unless_asked_for(self):
        case = Case(np.zeros((3, 1)), np.arange(3.0), np.zeros((1, 1)))
        assert ask(case).n_effective is None
        assert ask(case, moments=True).mean.isnan().all()
