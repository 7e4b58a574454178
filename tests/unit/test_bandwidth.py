"""Adaptive bandwidths: how far a row looks for calibration rows, told by the training rows alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import lvd
from lvd.calibration.guarantees import draw_centres
from lvd.engine import quantiles as module
from lvd.engine.oracle import gaussian_weights, weighted_quantile
from lvd.engine.quantiles import LEAST_LEVEL, TrainingSample, adaptive_bandwidths

LEVELS = [0.5, 0.8]


def by_brute_force(queries, training, n_calib, level, mass):
    """The first of the grid at which the expected weight is enough; the largest where none is."""
    needed = mass * max(level, LEAST_LEVEL) / (1.0 - max(level, LEAST_LEVEL))
    squared = np.square(queries[:, None] - training[None]).sum(-1)
    for h in module.GRID[::-1]:
        enough = n_calib / len(training) * np.exp(-squared / h**2).sum(1) >= needed
        result = np.where(enough, h, result) if h < module.GRID[-1] else np.full(len(queries), h)
    return result


@pytest.fixture
def clouds(rng):
    """Training rows, and queries among them, at their edge and far away."""
    training = 2.0 * rng.normal(size=(700, 3))
    return torch.tensor(
        np.vstack([training[:40] + 0.1, 4.0 * rng.normal(size=(40, 3)), [[1e3] * 3]])
    ), torch.tensor(training)


@pytest.mark.parametrize("n_calib", [30, 200, 5000])
@pytest.mark.parametrize(("level", "mass"), [(0.5, 1.0), (0.9, 2.0), (0.95, 1.2)])
def test_equal_brute_force(clouds, n_calib, level, mass):
    queries, training = clouds
    expected = by_brute_force(queries.numpy(), training.numpy(), n_calib, level, mass)
    found = adaptive_bandwidths(queries, TrainingSample.of(training), n_calib=n_calib, level=level, mass=mass)
    np.testing.assert_array_equal(found.numpy(), expected)
    assert len(np.unique(expected)) > 3


@pytest.mark.parametrize("n_calib", [30, 200, 5000])
def test_sums_over_whole_rows_give_the_same(clouds, n_calib):
    queries, training = clouds
    wanted = 18.0 * len(training) / n_calib
    by_halves = module._by_bisection(queries, training, wanted)
    compiled = adaptive_bandwidths(queries, TrainingSample.of(training), n_calib=n_calib, level=0.9, mass=2.0)
    torch.testing.assert_close(compiled, by_halves, rtol=0, atol=0)


@pytest.mark.parametrize("n_rows", [1100, 2300, 2700, 3500])
def test_also_where_the_rows_fill_many_blocks_and_are_sorted(rng, n_rows):
    """The guess comes from a part of the blocks, whose rows may be unlike the others."""
    training = np.sort(3.0 * rng.normal(size=(n_rows, 2)), axis=0)
    queries = 4.0 * rng.normal(size=(50, 2))
    sample = TrainingSample.of(torch.tensor(training))
    found = adaptive_bandwidths(torch.tensor(queries), sample, n_calib=500, level=0.9, mass=3.0)
    np.testing.assert_array_equal(found.numpy(), by_brute_force(queries, training, 500, 0.9, 3.0))


def test_of_many_training_rows_some_serve(rng, monkeypatch):
    queries, training = torch.tensor(rng.normal(size=(20, 2))), torch.tensor(rng.normal(size=(900, 2)))
    monkeypatch.setattr(module, "MOST_TRAINING_ROWS", 300)
    found = adaptive_bandwidths(queries, TrainingSample.of(training), n_calib=40, level=0.9, mass=2.0)
    alone = adaptive_bandwidths(queries, TrainingSample.of(training[::3]), n_calib=40, level=0.9, mass=2.0)
    torch.testing.assert_close(found, alone, rtol=0, atol=0)


def test_grow_with_mass_and_level_and_shrink_with_rows(clouds):
    queries, sample = clouds[0], TrainingSample.of(clouds[1])

    def bandwidths(n_calib=100, level=0.9, mass=2.0):
        return adaptive_bandwidths(queries, sample, n_calib=n_calib, level=level, mass=mass)

    for wider in (bandwidths(mass=4.0), bandwidths(level=0.95), bandwidths(n_calib=50)):
        assert (wider >= bandwidths()).all()
        assert (wider > bandwidths()).any()


@pytest.fixture(scope="module")
def kernel():
    training = 3.0 * np.random.default_rng(5).normal(size=(300, 2))
    return lvd.MahalanobisKernel.from_components(
        np.eye(2),
        mean=np.zeros(2),
        scale=np.ones(2),
        distance="sum",
        embeddings=training,
        y=training[:, 0],
        device="cpu",
    )


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(6)
    return 3.0 * rng.normal(size=(60, 2)), rng.gamma(1.0, size=60), 3.0 * rng.normal(size=(25, 2))


def adaptive(kernel, **choices):
    return lvd.LocalConformal(kernel, bandwidth="adaptive", confidence_level=0.8, **choices)


class TestLocalConformal:
    def test_bandwidths_of_rows(self, kernel, rows):
        points, scores, queries = rows
        conformal = adaptive(kernel, mass=3.0).conformalize(points, scores)
        expected = by_brute_force(queries, kernel.train_points_, 60, 0.8, 3.0)
        np.testing.assert_array_equal(conformal.bandwidths(queries), expected)
        assert conformal.bandwidths(torch.tensor(queries)).dtype == torch.float64
        fixed = lvd.LocalConformal(kernel, bandwidth=1.5).conformalize(points, scores)
        np.testing.assert_array_equal(fixed.bandwidths(queries), 1.5)

    def test_the_highest_level_of_the_constructor_decides(self, kernel, rows):
        points, scores, queries = rows
        several = lvd.LocalConformal(kernel, bandwidth="adaptive", confidence_level=[0.5, 0.95, 0.9])
        expected = by_brute_force(queries, kernel.train_points_, 60, 0.95, 2.0)
        np.testing.assert_array_equal(several.conformalize(points, scores).bandwidths(queries), expected)
        radius = several.radius(queries)
        assert (np.diff(radius[:, [0, 2, 1]], axis=1) >= 0.0).all()

    def test_update_keeps_them_and_a_new_calibration_does_not(self, kernel, rows):
        points, scores, queries = rows
        conformal = adaptive(kernel).conformalize(points[:20], scores[:20])
        before = conformal.bandwidths(queries)
        conformal.update(points[20:], scores[20:])
        np.testing.assert_array_equal(conformal.bandwidths(queries), before)
        assert (conformal.conformalize(points, scores).bandwidths(queries) < before).any()

    def test_groups_share_them(self, kernel, rows):
        points, scores, queries = rows
        grouped = adaptive(kernel).conformalize(points, scores, groups=np.arange(60) % 3)
        expected = by_brute_force(queries, kernel.train_points_, 20, 0.8, 2.0)
        np.testing.assert_array_equal(grouped.bandwidths(queries), expected)

    def test_the_scores_and_places_of_calibration_rows_do_not_matter(self, kernel, rows):
        points, scores, queries = rows
        one, other = (
            adaptive(kernel).conformalize(points, scores),
            adaptive(kernel).conformalize(-5.0 * points, 9.0 * scores),
        )
        np.testing.assert_array_equal(one.bandwidths(queries), other.bandwidths(queries))

    def test_a_kernel_without_training_rows_is_refused(self, rows):
        bare = lvd.MahalanobisKernel.from_components(np.eye(2), mean=np.zeros(2), scale=np.ones(2))
        with pytest.raises(
            lvd.InputError, match='bandwidth="adaptive" needs a kernel that knows its training rows'
        ):
            adaptive(bare).conformalize(*rows[:2])

    @pytest.mark.parametrize(
        ("choices", "message"),
        [
            ({"bandwidth": "auto"}, "bandwidth must be a positive number or \"adaptive\", got 'auto'"),
            ({"bandwidth": 0}, "bandwidth must be a positive number, got 0"),
            ({"bandwidth": np.inf}, "bandwidth must be finite, got inf"),
            ({"bandwidth": "adaptive", "mass": -1.0}, "mass must be a positive number, got -1"),
        ],
    )
    def test_refused_choices(self, kernel, rows, choices, message):
        with pytest.raises(lvd.InputError, match=message):
            lvd.LocalConformal(kernel, **choices).conformalize(*rows[:2])


class TestGuarantees:
    """Each guarantee with a bandwidth for each row, against its definition."""

    @pytest.fixture(params=[False, True], ids=["plain", "weighted"])
    def problem(self, kernel, rows, request):
        points, scores, queries = rows
        rng = np.random.default_rng(7)
        ratios, own = rng.gamma(2.0, size=60) + 0.1, rng.gamma(2.0, size=25) + 0.1
        labels = {"weights": ratios} if request.param else {}
        conformal = adaptive(kernel).conformalize(points, scores, **labels)
        if not request.param:
            ratios, own = np.ones(60), np.ones(25)
        asked = {"weights": own} if request.param else {}
        return conformal, points, scores, queries, ratios, own, asked

    def test_local_has_the_bandwidth_of_the_query(self, problem):
        conformal, points, scores, queries, ratios, own, asked = problem
        largest = np.maximum(own, ratios.max()) if asked else own
        expected = [
            [
                weighted_quantile(scores, ratios * gaussian_weights(q, points, 1.0 / h**2), mass, level)
                for level in LEVELS
            ]
            for q, h, mass in zip(queries, conformal.bandwidths(queries), largest, strict=True)
        ]
        np.testing.assert_array_equal(conformal.radius(queries, LEVELS, **asked), expected)

    def test_randomized_has_the_bandwidth_of_each_row(self, problem):
        conformal, points, scores, queries, ratios, own, asked = problem
        h, h_rows = conformal.bandwidths(queries), conformal.bandwidths(points)
        centres = draw_centres(torch.tensor(queries), 3, bandwidths=torch.tensor(h)).numpy()
        expected = []
        for q, centre, width, mass in zip(queries, centres, h, own, strict=True):
            weights = ratios * h_rows**-2.0 * gaussian_weights(centre, points, 1.0 / h_rows**2)
            at_infinity = mass * width**-2.0 * gaussian_weights(centre, q[None], width**-2.0)[0]
            expected.append([weighted_quantile(scores, weights, at_infinity, level) for level in LEVELS])
        found = conformal.radius(queries, LEVELS, guarantee="randomized", random_state=3, **asked)
        np.testing.assert_array_equal(found, expected)
        assert len(np.unique(h_rows)) > 3

    def test_the_centre_is_drawn_as_wide_as_the_kernel(self):
        rows, h = (
            torch.zeros(20_000, 2, dtype=torch.float64),
            torch.tensor([1.0, 5.0]).repeat(10_000).double(),
        )
        centres = draw_centres(rows, 0, np.arange(20_000, dtype=np.uint64), h).numpy()
        assert centres[::2].std() == pytest.approx(0.5**0.5, rel=0.03)
        assert centres[1::2].std() == pytest.approx(5.0 * 0.5**0.5, rel=0.03)

    def test_calibrated_has_the_bandwidth_of_the_centre(self, problem):
        conformal, points, scores, queries, ratios, own, asked = problem
        found = conformal.radius(queries, LEVELS, guarantee="calibrated", **asked)
        h_rows = conformal.bandwidths(points)
        for q, width, mass, radius in zip(queries, conformal.bandwidths(queries), own, found, strict=True):
            expected = calibrated_by_definition(
                np.vstack([points, q]), scores, np.append(h_rows, width), np.append(ratios, mass), LEVELS
            )
            np.testing.assert_array_equal(radius, expected)


def calibrated_by_definition(everyone, scores, bandwidths, masses, levels):
    """All m + 1 rows are ranked with every candidate v between two scores; the last row is the query."""
    squared = np.square(everyone[:, None] - everyone[None]).sum(-1)
    weights = masses * np.exp(-squared / bandwidths[:, None] ** 2)
    ordered = np.sort(scores)
    between = np.concatenate([[ordered[0] - 1.0], (ordered[1:] + ordered[:-1]) / 2.0, [ordered[-1] + 1.0]])
    kept = np.full(len(levels), -np.inf)
    for v, radius in zip(between, np.append(ordered, np.inf), strict=True):
        all_scores = np.append(scores, v)
        below = (weights * (all_scores[None] < all_scores[:, None])).sum(1) / weights.sum(1)
        share = masses[below < below[-1]].sum() / masses.sum()
        kept[share < np.array(levels)] = radius
    return kept


class TestRegressor:
    def test_takes_the_kernels_training_rows(self, rng):
        X = rng.normal(size=(400, 3))
        y = X[:, 0] + rng.normal(size=400)
        net = lvd.NetRegressor(hidden_sizes=(20,), n_batches=50, random_state=0)
        reg = lvd.LVDRegressor(net, preset="paper", bandwidth="adaptive", random_state=0).fit(X, y)
        far = 50.0 * X[:20]
        learned = lvd.LVDRegressor(net, preset="paper", random_state=0).fit(X, y)
        for guarantee in ("local", "calibrated"):
            finite = [
                np.isfinite(r.predict_interval(X, guarantee=guarantee)[1]).mean() for r in (learned, reg)
            ]
            assert finite[0] < 0.95 < finite[1]
        assert (reg.calibrators_[0].bandwidths(reg.embed(far)) > 1.0).all()
        with pytest.raises(lvd.InputError, match="bandwidth must be a positive number, got 0"):
            lvd.LVDRegressor(net, bandwidth=0, random_state=0).fit(X, X[:, 0])
