"""The clustered index against the float64 oracle: never narrower, and exact where it says so."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lvd.quantiles import engine
from lvd.quantiles import index_search
from lvd.quantiles.index import make_clusters, partition
from lvd.quantiles.leaves import cut
from lvd.conformal.oracle import gaussian_weights, weighted_quantile

LEVELS = np.array([0.1, 0.5, 0.9, 0.95])


@pytest.fixture(autouse=True, scope="module")
def always_search():
    """However many clusters a query needs, they are used."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index_search, "WORTHWHILE", 1.0)
        yield


def calibrated(points, scores, weights=None, *, leaf_rows):
    calibration = engine.sort_calibration(
        torch.as_tensor(points),
        torch.as_tensor(scores),
        weights=None if weights is None else torch.as_tensor(weights),
    )
    leaves = cut(calibration.points, leaf_rows)
    vars(calibration)["clusters"] = make_clusters(calibration.points, calibration.weights, leaves)
    return calibration


def search(queries, calibration, own):
    radius, exact = index_search.search(torch.as_tensor(queries), calibration, LEVELS, torch.as_tensor(own))
    return radius.numpy(), exact.numpy()


def oracle(queries, points, scores, weights, own):
    return np.array(
        [
            [
                weighted_quantile(scores, weights * gaussian_weights(query, points), above, level, below)
                for level in LEVELS.tolist()
            ]
            for query, (above, below) in zip(queries, own, strict=True)
        ]
    )


@st.composite
def cases(draw):
    """Clumps of any spread with repeated rows and tied scores, likelihood ratios, and queries near and far."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    m, k = draw(st.integers(1, 300)), draw(st.integers(1, 12))
    n_clumps = draw(st.integers(1, 8))
    clumps = draw(st.sampled_from([0.0, 1e6])) + 10.0 ** draw(st.floats(-2, 2)) * rng.normal(
        size=(n_clumps, k)
    )
    spread = 10.0 ** draw(st.floats(-3.0, 1.0))
    n_distinct = max(1, draw(st.sampled_from([1, m // 4, m])))
    cloud = clumps[rng.integers(n_clumps, size=n_distinct)] + spread * rng.normal(size=(n_distinct, k))
    points = cloud[rng.integers(n_distinct, size=m)]
    scores = np.round(rng.gamma(1.0, size=m), draw(st.sampled_from([0, 1, 15])))
    near = cloud[rng.integers(n_distinct, size=20)] + 0.3 * spread * rng.normal(size=(20, k))
    queries = np.concatenate([near, clumps, cloud[:2], clumps[:1] + 1e3])
    ratios = 2.0 ** (draw(st.sampled_from([0.0, 1.0, 20.0])) * rng.normal(size=m))
    masses = [0.0, 1e-300, 1e-9, 0.3, 1.0, 50.0]
    own = np.tile([draw(st.sampled_from(masses)), draw(st.sampled_from(masses))], (len(queries), 1))
    return queries, points, scores, ratios, own


@settings(max_examples=60)
@given(cases(), st.sampled_from([1, 4, 40]))
def test_never_narrower_and_exact_where_it_says_so(case, leaf_rows):
    queries, points, scores, ratios, own = case
    radius, exact = search(queries, calibrated(points, scores, ratios, leaf_rows=leaf_rows), own)
    expected = oracle(*case)
    assert (radius >= expected).all()
    np.testing.assert_array_equal(radius[exact], expected[exact])


@pytest.fixture(scope="module")
def clumps():
    """Forty clumps of a hundred rows, of which each query needs a few."""
    rng = np.random.default_rng(0)
    centres = 4.0 * rng.normal(size=(40, 4))
    points = np.repeat(centres, 100, axis=0) + 0.8 * rng.normal(size=(4000, 4))
    queries = centres[rng.integers(40, size=300)] + 0.8 * rng.normal(size=(300, 4))
    scores = rng.gamma(1.0, size=4000)
    own = np.tile([1.0, 0.0], (300, 1))
    expected = oracle(queries, points, scores, np.ones(4000), own)
    return queries, calibrated(points, scores, leaf_rows=50), own, expected


def test_most_rows_are_skipped_and_the_answer_is_exact(clumps):
    queries, calibration, own, expected = clumps
    radius, exact = search(queries, calibration, own)
    assert exact.all()
    np.testing.assert_array_equal(radius, expected)
    problem = index_search.Search(*map(torch.as_tensor, (queries, own, LEVELS)), calibration)
    near = list(problem.find_near([torch.tensor([row]) for row in range(300)], 5e-7))
    assert np.mean([len(one.chosen) for one in near]) < 0.3 * len(calibration.clusters.masses)


class TestWithMuchLeftOut:
    """A share that changes many radii: the bound on what is missing keeps them valid."""

    @pytest.fixture(autouse=True)
    def careless(self, monkeypatch):
        monkeypatch.setattr(index_search, "MOST_QUERIES", 1)
        for name in ("FIRST", "SECOND"):
            look = getattr(index_search, name)
            monkeypatch.setattr(index_search, name, replace(look, share=0.5))

    @pytest.fixture
    def cloud(self):
        rng = np.random.default_rng(1)
        points, queries = 2.0 * rng.normal(size=(2000, 2)), rng.normal(size=(100, 2))
        scores, own = rng.gamma(1.0, size=2000), np.tile([1.0, 0.0], (100, 1))
        expected = oracle(queries, points, scores, np.ones(2000), own)
        return queries, calibrated(points, scores, leaf_rows=8), own, expected

    def test_never_narrower_and_still_exact_where_it_says_so(self, cloud):
        queries, calibration, own, expected = cloud
        radius, exact = search(queries, calibration, own)
        assert (radius >= expected).all()
        assert (radius > expected).mean() > 0.5
        np.testing.assert_array_equal(radius[exact], expected[exact])

    def test_narrower_without_the_bound(self, cloud, monkeypatch):
        queries, calibration, own, expected = cloud
        find = index_search.Search.find_near
        monkeypatch.setattr(
            index_search.Search,
            "find_near",
            lambda *arguments: [near._replace(left_out=0.0 * near.left_out) for near in find(*arguments)],
        )
        radius, _ = search(queries, calibration, own)
        assert (radius < expected).mean() > 0.1


def cluster_weights(calibration, queries):
    """What each cluster weighs for each query, (c, n)."""
    rows, ordered = calibration.clusters.rows.numpy(), calibration.points.numpy()
    weights = np.stack([calibration.weights.numpy() * gaussian_weights(query, ordered) for query in queries])
    return np.pad(weights, ((0, 0), (0, 1)))[:, rows].sum(2).T


def within(weights, least, most):
    """Whether weights lie between bounds, but for rounding and for what underflows."""
    least, most = least.numpy(), most.numpy()
    return bool((weights <= most * (1 + 1e-6) + 1e-290).all() and (weights >= least * (1 - 1e-6)).all())


@settings(max_examples=30)
@given(cases(), st.sampled_from([1, 4, 40]))
def test_the_bounds_hold(case, leaf_rows):
    queries, points, scores, ratios, _ = case
    calibration = calibrated(points, scores, ratios, leaf_rows=leaf_rows)
    clusters, weights = calibration.clusters, cluster_weights(calibration, queries)
    assert sorted(clusters.rows[clusters.rows < len(points)].tolist()) == list(range(len(points)))
    centre = torch.as_tensor(queries.mean(0))
    radius = torch.as_tensor(np.linalg.norm(queries - queries.mean(0), axis=1).max())
    least, most = clusters.ball_bounds(centre[None], radius[None])
    assert within(weights, least.T, most.T)
    some = torch.arange(0, len(clusters.masses), 2)
    assert within(weights[::2], *clusters.point_bounds(torch.as_tensor(queries), some))


@pytest.fixture(scope="module")
def flat():
    """Clumps with three directions of variation in eight."""
    rng = np.random.default_rng(3)
    centres, axes = 5.0 * rng.normal(size=(30, 8)), rng.normal(size=(30, 3, 8))
    which = np.repeat(np.arange(30), 60)
    points = centres[which] + np.einsum("nd,ndk->nk", rng.normal(size=(1800, 3)), axes[which])
    points += 0.3 * rng.normal(size=points.shape)
    calibration = calibrated(points, rng.gamma(1.0, size=1800), leaf_rows=30)
    queries = points[::40] + 0.01 * rng.normal(size=(45, 8))
    return calibration, torch.tensor(queries), cluster_weights(calibration, queries)


class TestTheBoundsOfFlatClumps:
    """Bounds along axes are far tighter than those of balls, and still bounds."""

    def test_hold_and_are_tighter_than_those_of_balls(self, flat):
        calibration, queries, weights = flat
        clusters = calibration.clusters
        least, most = clusters.point_bounds(queries, torch.arange(len(clusters.masses)))
        assert within(weights, least, most)
        of_balls = clusters.ball_bounds(queries, torch.zeros(len(queries), dtype=torch.float64))[1].T
        assert (most > 1e-8).sum() < 0.6 * (of_balls > 1e-8).sum()

    @pytest.mark.parametrize("entry", range(4))
    def test_extents_that_are_too_small_are_no_bounds(self, flat, entry):
        calibration, queries, weights = flat
        extents = calibration.clusters.extents.clone()
        extents[:, entry] *= 0.7
        broken = replace(calibration.clusters, extents=extents)
        assert not within(weights, *broken.point_bounds(queries, torch.arange(len(extents))))

    def test_axes_that_are_not_at_right_angles_are_no_bounds(self, flat):
        calibration, queries, weights = flat
        broken = replace(calibration.clusters, axes=1.2 * calibration.clusters.axes)
        assert not within(weights, *broken.point_bounds(queries, torch.arange(len(broken.masses))))

    def test_a_spread_that_is_too_small_is_no_bound(self, flat):
        calibration, queries, weights = flat
        broken = replace(calibration.clusters, spreads=0.5 * calibration.clusters.spreads)
        assert not within(weights, *broken.point_bounds(queries, torch.arange(len(broken.masses))))


@pytest.mark.parametrize("regular", [False, True])
def test_equal_rows_are_cut_into_full_sets(regular):
    sets = list(partition(torch.full((2000, 3), 0.7, dtype=torch.float64), 100, 3.0, regular=regular))
    assert len(sets) <= (20 if regular else 32)


@settings(max_examples=30)
@given(cases(), st.sampled_from([1, 7, 100]), st.sampled_from([0.01, 1.0, 100.0]), st.booleans())
def test_a_partition_holds_every_row_once(case, most, radius, regular):
    points = torch.as_tensor(case[1])
    sets = list(partition(points, most, radius, regular=regular))
    assert sorted(torch.cat(sets).tolist()) == list(range(len(points)))
    assert max(map(len, sets)) <= most
    if not regular:
        spans = [(points[rows] - points[rows].mean(0)).norm(dim=1).max() for rows in sets if len(rows) > 1]
        assert all(span <= 1.01 * radius for span in spans)


class TestWhenTheIndexIsUsed:
    @pytest.fixture(autouse=True)
    def small(self, monkeypatch):
        monkeypatch.setattr(index_search, "INDEX_ROWS", 3000)
        monkeypatch.setattr(index_search, "LEAST_QUERIES", 200)
        monkeypatch.setattr(index_search, "WORTHWHILE", 0.25)

    @staticmethod
    def rows(spread, n, seed, k=3):
        return torch.tensor(spread * np.random.default_rng(seed).normal(size=(n, k)))

    def built(self, spread, n_queries, **options):
        scores = torch.tensor(np.random.default_rng(2).gamma(1.0, size=4000))
        calibration = engine.sort_calibration(self.rows(spread, 4000, 0), scores, **options)
        queries = self.rows(spread, n_queries, 1)
        radius = engine.radius(queries, calibration, LEVELS, queries.new_ones(len(queries)))
        expected, _ = engine.from_all_rows(
            queries, calibration, LEVELS, torch.tensor([[1.0, 0.0]] * n_queries, dtype=torch.float64)
        )
        np.testing.assert_array_equal(radius, expected)
        return "clusters" in vars(calibration)

    def test_for_a_local_kernel(self):
        assert self.built(30.0, 300)

    def test_not_for_a_kernel_that_sees_all_rows(self):
        assert not self.built(1.0, 300)

    def test_not_for_a_few_queries(self):
        assert not self.built(30.0, 199)

    def test_not_with_a_floor(self):
        assert not self.built(30.0, 300, floor=0.1)

    def test_built_once(self):
        queries, scores = self.rows(30.0, 300, 1), torch.rand(4000, dtype=torch.float64)
        calibration = engine.sort_calibration(self.rows(30.0, 4000, 0), scores)
        engine.radius(queries, calibration, LEVELS, queries.new_ones(300))
        first = calibration.clusters
        engine.radius(queries[:1], calibration, LEVELS, queries.new_ones(1))
        assert calibration.clusters is first
