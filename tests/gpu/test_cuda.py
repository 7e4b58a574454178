"""The same results on a GPU as on the CPU; skipped where torch sees none."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import lvd
from lvd.calibration.guarantees import calibrated_radius, standing
from lvd.engine import Queries, SortedRows, local_quantile, quantiles
from lvd.engine.oracle import gaussian_weights, weighted_quantile

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU that torch sees")
LEVELS = np.array([0.5, 0.9])


def case(n, m, k=10, spread=0.6, seed=0):
    rng = np.random.default_rng(seed)
    points, queries = rng.normal(size=(m, k)) * spread / k**0.5, rng.normal(size=(n, k)) * spread / k**0.5
    return queries, points, rng.exponential(size=m)


@pytest.mark.parametrize("spread", [0.6, 5.0, 100.0])
def test_the_engine_equals_the_oracle(spread):
    queries, points, scores = case(300, 2000, spread=spread)
    calibration = SortedRows.of(torch.tensor(points).cuda(), torch.tensor(scores).cuda())
    on_gpu = torch.tensor(queries).cuda()
    ours = local_quantile(Queries(on_gpu), calibration, LEVELS).radius.cpu().numpy()
    for row, query in enumerate(queries):
        weights = gaussian_weights(query, points)
        assert list(ours[row]) == [weighted_quantile(scores, weights, 1.0, level) for level in LEVELS]


def test_the_engine_equals_the_cpu_engine_on_many_rows():
    queries, points, scores = case(3000, quantiles.GPU_EXACT_ROWS)
    radii = []
    for device in ("cpu", "cuda"):
        calibration = SortedRows.of(torch.tensor(points, device=device), torch.tensor(scores, device=device))
        located = torch.tensor(queries, device=device)
        radii.append(local_quantile(Queries(located), calibration, LEVELS).radius.cpu())
    torch.testing.assert_close(*radii, rtol=0, atol=0)


def test_the_calibrated_level_equals_that_of_the_cpu():
    queries, points, scores = case(200, 500)
    radii = []
    for device in ("cpu", "cuda"):
        calibration = SortedRows.of(torch.tensor(points, device=device), torch.tensor(scores, device=device))
        asked = Queries(torch.tensor(queries, device=device))
        found = calibrated_radius(asked, calibration, standing(calibration), LEVELS)
        assert found.device.type == device
        radii.append(found.cpu())
    torch.testing.assert_close(*radii, rtol=0, atol=0)


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(900, 4))
    return X, X[:, 0] + rng.normal(size=900) * np.abs(X[:, 1])


@pytest.mark.parametrize("choices", [{}, {"conformity_score": "normalized"}, {"bandwidth": "adaptive"}])
def test_the_regressor_runs_on_the_gpu(rows, choices, tmp_path):
    X, y = rows
    reg = lvd.LVDRegressor(device="cuda", random_state=0, **choices).fit(X[:600], y[:600])
    assert next(reg.model_.module_.parameters()).is_cuda
    y_pred, intervals = reg.predict_interval(X[600:], [0.5, 0.9])
    assert np.mean((intervals[:, 0, 1] <= y[600:]) & (y[600:] <= intervals[:, 1, 1])) > 0.85
    assert np.mean(np.isfinite(intervals[:, 1, 0])) > 0.8
    reg.save(tmp_path / "model")
    again = lvd.load(tmp_path / "model").predict_interval(X[600:], [0.5, 0.9])
    np.testing.assert_array_equal(again[0], y_pred)
    np.testing.assert_array_equal(again[1], intervals)


def test_tensors_on_the_gpu_give_tensors_on_the_gpu(rows):
    X, y = (torch.tensor(part, dtype=torch.float32, device="cuda") for part in rows)
    module = torch.nn.Sequential(torch.nn.Linear(4, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1)).cuda()
    reg = lvd.LVDRegressor(module, prefit=True, random_state=0)
    reg.fit(X[:300], y[:300]).conformalize(X[300:], y[300:])
    y_pred, intervals = reg.predict_interval(X[:10])
    assert y_pred.is_cuda
    assert intervals.is_cuda
    assert intervals.dtype == torch.float32
    torch.testing.assert_close(y_pred, module(X[:10])[:, 0].detach(), rtol=1e-5, atol=1e-5)
