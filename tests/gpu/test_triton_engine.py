"""The fused GPU engine against the oracle and against the CPU engine; skipped where torch sees no GPU."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

import lvd
from lvd.engine import Queries, SortedRows, gpu, local_quantile
from lvd.engine.oracle import gaussian_weights, weighted_quantile
from lvd.engine.quantiles import TrainingSample, adaptive_bandwidths

pytest.importorskip("triton")
from lvd.engine.triton_engine import Given

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU that torch sees")
LEVELS = np.array([0.5, 0.9, 0.99])


def case(n, m, k=10, *, spread=0.6, shift=0.0, seed=0):
    rng = np.random.default_rng(seed)
    scale = spread / k**0.5
    queries, points = rng.normal(size=(n, k)) * scale + shift, rng.normal(size=(m, k)) * scale + shift
    return queries, points, rng.exponential(size=m)


def sort(points, scores, device="cuda", *, weights=None):
    ratios = None if weights is None else torch.tensor(weights, device=device)
    return SortedRows.of(
        torch.tensor(points, device=device), torch.tensor(scores, device=device), ratios=ratios
    )


def radius(queries, calibration, own=1.0, below=None, levels=LEVELS):
    located = torch.tensor(queries, device=calibration.points.device)
    masses = [None if mass is None else located.new_full((len(queries),), mass) for mass in (own, below)]
    return local_quantile(Queries(located, *masses), calibration, levels).radius.cpu().numpy()


def by_oracle(queries, points, scores, own=1.0, below=0.0, *, weights=None, levels=LEVELS):
    weights = np.ones(len(points)) if weights is None else weights
    local = [weights * gaussian_weights(query, points) for query in queries]
    return np.array([[weighted_quantile(scores, w, own, level, below) for level in levels] for w in local])


@pytest.mark.parametrize("k", [1, 10, 15, 62])
@pytest.mark.parametrize("spread", [0.6, 5.0, 100.0])
def test_equals_the_oracle(k, spread):
    queries, points, scores = case(150, 2000, k, spread=spread)
    np.testing.assert_array_equal(radius(queries, sort(points, scores)), by_oracle(queries, points, scores))


@pytest.mark.parametrize("m", [1, 2, 127, 128, 129, 1023, 1025])
@pytest.mark.parametrize("n", [1, 63, 65])
def test_sizes_that_fill_no_tile(n, m):
    queries, points, scores = case(n, m)
    np.testing.assert_array_equal(radius(queries, sort(points, scores)), by_oracle(queries, points, scores))


def test_no_rows_and_no_queries():
    queries, points, scores = case(5, 20)
    assert (radius(queries, sort(points[:0], scores[:0])) == np.inf).all()
    assert radius(queries[:0], sort(points, scores)).shape == (0, 3)


@pytest.mark.parametrize("own", [0.0, 1e-9, 1e-3, 1.0, 50.0])
@pytest.mark.parametrize("spread", [0.6, 8.0])
def test_own_weights(own, spread):
    queries, points, scores = case(100, 1500, spread=spread)
    expected = by_oracle(queries, points, scores, own)
    np.testing.assert_array_equal(radius(queries, sort(points, scores), own), expected)


@pytest.mark.parametrize("k", [1, 10, 62])
@pytest.mark.parametrize("spread", [0.6, 8.0, 100.0])
def test_bandwidths_of_queries(k, spread):
    queries, points, scores = case(150, 2000, k, spread=spread)
    wide = np.random.default_rng(1).choice([1.0, 1.3, 4.0, 50.0], size=150)
    located = Queries(torch.tensor(queries, device="cuda"), bandwidths=torch.tensor(wide, device="cuda"))
    ours = local_quantile(located, sort(points, scores), LEVELS, moments=True)
    weights = [gaussian_weights(query, points, 1.0 / h**2) for query, h in zip(queries, wide, strict=True)]
    expected = [[weighted_quantile(scores, w, 1.0, level) for level in LEVELS] for w in weights]
    np.testing.assert_array_equal(ours.radius.cpu(), expected)
    squares = np.square(weights).sum(1)
    size = np.divide(np.sum(weights, 1) ** 2, squares, out=np.zeros(150), where=squares > 0.0)
    np.testing.assert_allclose(ours.n_effective.cpu(), size, rtol=1e-5)


@pytest.mark.parametrize("k", [1, 10, 40])
@pytest.mark.parametrize("n_rows", [30, 700, 4096])
def test_adaptive_bandwidths_are_those_of_the_cpu(k, n_rows):
    rng = np.random.default_rng(k)
    sample, queries = 2.0 * rng.normal(size=(n_rows, k)), 3.0 * rng.normal(size=(333, k))
    found = [
        adaptive_bandwidths(
            torch.tensor(queries, device=device),
            TrainingSample.of(torch.tensor(sample, device=device)),
            n_calib=500,
            level=0.9,
            mass=3.0,
        ).cpu()
        for device in ("cpu", "cuda")
    ]
    # Sums of float32 may decide otherwise where they meet what is wanted to the last digit.
    assert (found[0] != found[1]).double().mean() < 0.01


def test_a_single_row_is_answered_as_among_many():
    rng = np.random.default_rng(0)
    rows, scores = rng.normal(size=(5000, 12)), rng.exponential(size=5000)
    kernel = lvd.MahalanobisKernel.from_components(
        rng.normal(size=(4, 12)), mean=np.ones(12), scale=np.full(12, 0.7), device="cuda"
    )
    conformal = lvd.LocalConformal(kernel).conformalize(rows, scores)
    queries = torch.tensor(rng.normal(size=(300, 12)), dtype=torch.float32, device="cuda")
    together, alone = conformal.radius(queries, LEVELS), conformal.radius(queries[:1], LEVELS)
    assert alone.device == queries.device
    assert alone.dtype == torch.float32
    torch.testing.assert_close(alone, together[:1], rtol=0, atol=0)
    exact = conformal.radius(queries[:1].cpu().numpy(), LEVELS)
    torch.testing.assert_close(torch.as_tensor(exact, device="cuda"), alone.double(), rtol=1e-6, atol=0)
    assert (exact <= alone.double().cpu().numpy()).all()  # rounded up


@pytest.mark.parametrize("below", [0.5, 300.0, 5000.0])
def test_mass_at_minus_infinity(below):
    queries, points, scores = case(100, 1500)
    expected = by_oracle(queries, points, scores, 1.0, below)
    np.testing.assert_array_equal(radius(queries, sort(points, scores), 1.0, below), expected)


def test_likelihood_ratios():
    queries, points, scores = case(100, 1500, spread=2.0)
    weights = np.random.default_rng(1).exponential(size=1500)
    weights[::7] = 0.0
    ours = radius(queries, sort(points, scores, weights=weights))
    np.testing.assert_array_equal(ours, by_oracle(queries, points, scores, weights=weights))


@pytest.mark.parametrize("m", [99, 999, 2000])
def test_a_constant_kernel_is_full_of_exact_ties(m):
    queries, points, scores = case(20, m, spread=0.0)
    np.testing.assert_array_equal(radius(queries, sort(points, scores)), by_oracle(queries, points, scores))


def test_tied_scores():
    queries, points, scores = case(100, 1500)
    scores = np.round(scores, 1)
    np.testing.assert_array_equal(radius(queries, sort(points, scores)), by_oracle(queries, points, scores))


@pytest.mark.parametrize("shift", [1e3, 1e6])
def test_far_from_the_origin(shift):
    queries, points, scores = case(60, 1000, spread=2.0, shift=shift)
    np.testing.assert_array_equal(radius(queries, sort(points, scores)), by_oracle(queries, points, scores))


def test_two_clusters_far_apart_have_large_norms():
    queries, points, scores = case(60, 1000, spread=2.0)
    queries[::2] += 300.0
    points[::2] += 300.0
    np.testing.assert_array_equal(radius(queries, sort(points, scores)), by_oracle(queries, points, scores))


def test_queries_beyond_float32():
    queries, points, scores = case(4, 500)
    queries[0] = 1e30
    expected = by_oracle(queries, points, scores)
    assert np.isinf(expected[0]).all()
    np.testing.assert_array_equal(radius(queries, sort(points, scores)), expected)


@pytest.mark.parametrize(("n", "m"), [(1000, 9000), (3000, 16_000)])
def test_the_same_radii_as_on_the_cpu(n, m):
    queries, points, scores = case(n, m)
    on_cpu, on_gpu = (radius(queries, sort(points, scores, device)) for device in ("cpu", "cuda"))
    np.testing.assert_array_equal(on_gpu, on_cpu)


@pytest.mark.parametrize(("n", "m"), [(1000, 26_744), (300, 60_000)])
def test_many_rows_are_never_narrower_and_off_by_a_hundred_thousandth_of_the_weight(n, m):
    queries, points, scores = case(n, m)
    calibration = sort(points, scores)
    ours, exact, a_little_later = (
        radius(queries, *arguments)
        for arguments in (
            (calibration,),
            (sort(points, scores, "cpu"),),
            (sort(points, scores, "cpu"), 1.0, None, LEVELS + 1e-5),
        )
    )
    assert (exact <= ours).all()
    assert (ours <= a_little_later).all()


@pytest.mark.parametrize("spread", [0.6, 5.0])
def test_on_request_many_rows_give_the_radii_of_the_cpu(spread):
    queries, points, scores = case(300, 60_000, spread=spread)
    on_cpu, on_gpu = (
        conformal_on(device, points, scores, exact=True).summary(queries, LEVELS)
        for device in ("cpu", "cuda")
    )
    assert on_gpu.exact.all()
    np.testing.assert_array_equal(on_gpu.radius, on_cpu.radius)


def test_a_shape_seen_before_is_replayed_with_the_new_queries():
    queries, points, scores = case(400, 3000)
    calibration = sort(points, scores)
    for start in (0, 100, 200, 300):
        part = queries[start : start + 100]
        np.testing.assert_array_equal(radius(part, calibration), by_oracle(part, points, scores))
    again = radius(queries[:100], calibration)
    np.testing.assert_array_equal(radius(queries[:100], copy.deepcopy(calibration)), again)


@pytest.mark.parametrize("m", [200_000, 3_000_000])
def test_many_rows_are_never_narrower_and_at_most_1e_5_of_the_weight_later(m):
    queries, points, scores = case(200, m)
    calibration = sort(points, scores)
    ours = radius(queries, calibration)
    order = np.argsort(scores, kind="stable")
    for row in range(0, 200, 20):
        weights = gaussian_weights(queries[row], points)[order]
        cumulative = np.cumsum(weights) / (weights.sum() + 1.0)
        for column, level in enumerate(LEVELS):
            exact, later = np.searchsorted(cumulative, [level, level + 1e-5])
            assert scores[order[exact]] <= ours[row, column] <= scores[order[min(later, m - 1)]]


def test_queries_in_turn_equal_queries_at_once(monkeypatch):
    from lvd.engine import triton_engine

    queries, points, scores = case(500, 5000)
    at_once = radius(queries, sort(points, scores))
    monkeypatch.setattr(triton_engine, "WORKSPACE", 4 * 40 * 128)
    monkeypatch.setattr(triton_engine, "GRAPH_ELEMENTS", 0)
    np.testing.assert_array_equal(radius(queries, sort(points, scores)), at_once)


@pytest.mark.parametrize("spread", [0.6, 30.0])
def test_effective_sample_size_and_local_mean_from_the_same_pass(spread):
    queries, points, scores = case(100, 3000, spread=spread)
    order, rng = np.argsort(scores, kind="stable"), np.random.default_rng(2)
    values = rng.normal(size=3000)
    calibration = sort(points, scores)
    located = torch.tensor(queries, device="cuda")
    given = Given(located.new_ones(100), values=torch.tensor(values[order], device="cuda"))
    answer = calibration.on_gpu.answer(located, LEVELS, given)
    weights = np.array([gaussian_weights(query, points) for query in queries])
    squares = np.square(weights).sum(1)
    expected = np.divide(weights.sum(1) ** 2, squares, out=np.zeros(100), where=squares > 0.0)
    np.testing.assert_allclose(answer.n_effective.cpu(), expected, rtol=1e-5)
    np.testing.assert_allclose(answer.mean.cpu(), weights @ values / weights.sum(1), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(answer.radius.cpu(), by_oracle(queries, points, scores))


def run_and_errors(queries, calibration, own=1.0):
    """A run, and the relative errors of its cumulative block sums, the largest of each query."""
    from lvd.engine.triton_engine import Given, Launches

    located = torch.tensor(queries, device="cuda")
    run = Launches(calibration.on_gpu, len(queries), torch.tensor(LEVELS, device="cuda"))
    run.take(Given(located.new_full((len(queries),), own)))
    run.launch(located)
    distances = torch.cdist(located, calibration.points, compute_mode="donot_use_mm_for_euclid_dist")
    weights = calibration.weights * distances.square().neg().exp()
    blocks = torch.nn.functional.pad(weights, (0, -len(calibration) % 128)).view(len(queries), -1, 128)
    exact = blocks.sum(2).cumsum(1)
    errors = (run.sums.T.double().cumsum(1) - exact).abs() / (exact[:, -1:] + own)
    return run, errors.amax(1)


@pytest.mark.parametrize("own", [1e-5, 1.0, 1e4])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    ("k", "spread"), [(2, 0.6), (2, 3.0), (2, 30.0), (10, 0.6), (10, 3.0), (30, 0.6), (30, 3.0)]
)
def test_the_error_bound_holds_with_room_to_spare(k, spread, weighted, own):
    """The bound decides what is settled in float64, so it must never be passed; here by more than twice."""
    queries, points, scores = case(500, 20_000, k, spread=spread)
    weights = np.random.default_rng(1).lognormal(sigma=2.0, size=20_000) if weighted else None
    run, errors = run_and_errors(queries, sort(points, scores, weights=weights), own)
    worst = float((errors / run.margins).max())
    print(f"k={k} spread={spread}: error at most {float(errors.max()):.2e}, {worst:.3f} of its bound")
    assert worst < 0.5


def test_rows_far_apart_take_float64_products_and_need_them(monkeypatch):
    from lvd.engine import triton_engine

    queries, points, scores = case(500, 20_000, 2, spread=40.0)
    run, errors = run_and_errors(queries, sort(points, scores))
    assert run.calibration.double
    assert run.margins.isfinite().all()
    assert run.counters.tolist() == [0, 0]
    monkeypatch.setattr(triton_engine, "FEW_FAR", 1.0)
    broken, broken_errors = run_and_errors(queries, sort(points, scores))
    assert not broken.calibration.double
    assert errors.max() < 4e-6 < broken_errors.max()


@pytest.mark.parametrize("m", [2000, 17_000])
@pytest.mark.parametrize("distance", [1e30, 1e200])
def test_rows_beyond_all_bounds_do_not_disturb_the_others(distance, m):
    queries, points, scores = case(60, m, 2)
    points[:2] = [[distance, 0.0], [-distance, 0.0]]
    ours = radius(queries, sort(points, scores))
    with np.errstate(over="ignore"):
        exact, later = (by_oracle(queries, points, scores, levels=LEVELS + more) for more in (0.0, 1e-5))
    assert (exact <= ours).all()
    assert (ours <= later).all()


def test_where_triton_has_no_float64_products_the_float64_pass_serves(monkeypatch):
    queries, points, scores = case(60, 2000, 2, spread=40.0)
    monkeypatch.setattr(gpu, "multiplies_float64", lambda device: False)
    calibration = sort(points, scores)
    np.testing.assert_array_equal(radius(queries, calibration), by_oracle(queries, points, scores))
    assert not calibration.on_gpu.double


def test_own_weights_of_one_need_not_be_given_and_do_not_stay():
    queries, points, scores = case(100, 3000)
    calibration = sort(points, scores)
    heavy = by_oracle(queries, points, scores, 400.0)
    for _ in range(3):
        np.testing.assert_array_equal(radius(queries, calibration, 400.0), heavy)
        np.testing.assert_array_equal(radius(queries, calibration, None), by_oracle(queries, points, scores))


@pytest.mark.parametrize("moments", [False, True])
def test_unsettled_queries_are_exact_with_and_without_moments(moments):
    queries, points, scores = case(20, 99, spread=0.0)
    located = torch.tensor(queries, device="cuda")
    found = local_quantile(Queries(located), sort(points, scores), np.array([0.5, 0.9]), moments=moments)
    assert found.exact.all()
    assert (found.n_effective is None) == (not moments)


@pytest.mark.parametrize("guarantee", ["local", "randomized", "calibrated"])
def test_adaptive_bandwidths_give_the_radii_of_the_cpu(guarantee):
    queries, points, scores = case(100, 400, 2, spread=4.0)
    kernels = [
        lvd.MahalanobisKernel.from_components(
            np.eye(2), mean=np.zeros(2), scale=np.ones(2), embeddings=points, y=scores, device=device
        )
        for device in ("cpu", "cuda")
    ]
    on_cpu, on_gpu = (
        lvd.LocalConformal(kernel, bandwidth="adaptive").conformalize(points, scores) for kernel in kernels
    )
    np.testing.assert_array_equal(on_gpu.bandwidths(queries), on_cpu.bandwidths(queries))
    radii = [one.radius(queries, [0.5, 0.9], guarantee=guarantee) for one in (on_cpu, on_gpu)]
    np.testing.assert_array_equal(*radii)


LABELS = {
    "plain": ({}, {}),
    "groups": ({"groups": np.arange(2000) % 3}, {"groups": np.arange(151) % 4}),
    "weights": ({"weights": np.linspace(0.5, 2.0, 2000)}, {"weights": np.linspace(0.5, 2.0, 151)}),
}


def conformal_on(device, points, scores, *, exact=False, **labels):
    k = points.shape[1]
    kernel = lvd.MahalanobisKernel.from_components(
        np.eye(k), mean=np.zeros(k), scale=np.ones(k), distance="sum", device=device
    )
    return lvd.LocalConformal(kernel, exact=exact).conformalize(points, scores, **labels)


@pytest.mark.parametrize("labels", LABELS)
def test_the_summary_is_that_of_the_cpu_from_one_pass(labels, monkeypatch):
    from lvd.engine.triton_engine import Launches

    queries, points, scores = case(151, 2000, 4, spread=2.0)
    queries[-1] = 1e3
    of_rows, of_queries = LABELS[labels]
    values = np.random.default_rng(3).normal(size=2000) + 1e6
    n_launched, launch = [], Launches.launch
    monkeypatch.setattr(
        Launches, "launch", lambda run, *given: (n_launched.append(run.n), launch(run, *given))
    )
    on_cpu, on_gpu = (conformal_on(device, points, scores, **of_rows) for device in ("cpu", "cuda"))
    expected, ours = (one.summary(queries, LEVELS, values=values, **of_queries) for one in (on_cpu, on_gpu))
    assert n_launched == ([38, 38, 38] if labels == "groups" else [151])
    np.testing.assert_array_equal(ours.radius, expected.radius)
    np.testing.assert_allclose(ours.n_effective, expected.n_effective, rtol=5e-5)
    np.testing.assert_allclose(ours.mean, expected.mean, rtol=0.0, atol=1e-4)
    unknown = np.isnan(ours.mean)
    assert (ours.radius[unknown] == np.inf).all()
    assert (ours.n_effective[unknown] == 0.0).all()
    assert unknown[-1]


def test_without_values_and_levels_the_same_pass_gives_the_effective_sample_size():
    queries, points, scores = case(150, 2000, 4, spread=2.0)
    on_cpu, on_gpu = (conformal_on(device, points, scores) for device in ("cpu", "cuda"))
    expected = on_cpu.effective_sample_size(queries)
    without = on_gpu.summary(queries, LEVELS)
    assert without.mean is None
    np.testing.assert_array_equal(without.radius, on_gpu.radius(queries, LEVELS))
    for ours in (without.n_effective, on_gpu.effective_sample_size(queries)):
        np.testing.assert_allclose(ours, expected, rtol=5e-5)


@pytest.mark.parametrize("distance", [6.0, 6.5, 9.0, 18.0])
def test_weights_of_next_to_nothing_count_too(distance):
    points = np.repeat([[distance], [-distance]], 100, axis=0)
    summary = conformal_on("cuda", points, np.arange(200.0)).summary([[0.0]], 0.5, values=np.arange(200.0))
    np.testing.assert_allclose(summary.n_effective, [200.0], rtol=1e-4)
    np.testing.assert_allclose(summary.mean, [99.5], rtol=1e-4)


def test_the_effective_sample_size_of_large_weights():
    queries, points, scores = case(50, 2000, 2, spread=20.0)
    weights, own = np.full(2000, 3e19), np.full(50, 3e19)
    summary = conformal_on("cuda", points, scores, weights=weights).summary(queries, 0.9, weights=own)
    plain = conformal_on("cpu", points, scores).summary(queries, 0.9)
    np.testing.assert_allclose(summary.n_effective, plain.n_effective, rtol=5e-5)
    np.testing.assert_array_equal(summary.radius, plain.radius)


def test_many_rows_are_exact_where_they_are_certified_to_be():
    queries, points, scores = case(500, 60_000)
    on_cpu, on_gpu = (
        conformal_on(device, points, scores).summary(queries, 0.9) for device in ("cpu", "cuda")
    )
    assert on_cpu.exact.all()
    assert 0.5 < on_gpu.exact.mean() < 1.0
    np.testing.assert_array_equal(on_gpu.radius[on_gpu.exact], on_cpu.radius[on_gpu.exact])
    few = conformal_on("cuda", points[:9000], scores[:9000]).summary(queries, 0.9)
    assert few.exact.all()


def test_the_summary_of_many_rows():
    queries, points, scores = case(300, 20_000, spread=1.0)
    values = np.sin(scores)
    on_cpu, on_gpu = (
        conformal_on(device, points, scores).summary(queries, 0.9, values=values)
        for device in ("cpu", "cuda")
    )
    assert (on_cpu.radius <= on_gpu.radius).all()
    np.testing.assert_allclose(on_gpu.n_effective, on_cpu.n_effective, rtol=5e-5)
    np.testing.assert_allclose(on_gpu.mean, on_cpu.mean, rtol=0.0, atol=2e-5)
