"""The paper's protocol on Yacht, from the raw table: ten splits against the printed figures."""

from __future__ import annotations

import numpy as np
import pytest

import lvd
from lvd import data, metrics


def run_split(X, y, seed):
    """Finite intervals at 90%, AUROC at 50%, MAD and MCR (all but the count in percent) on the test rows."""
    train, calib, test = data.split_indices(len(y), seed)
    network = lvd.NetRegressor(
        hidden_sizes=(100,),
        n_batches=1000,
        batch_size=100,
        learning_rate=1e-2,
        scale_inputs=False,
        scale_target=False,
        device="cpu",
        random_state=seed,
    )
    kernel = lvd.MahalanobisKernel(max_neighbors=3000, min_scale=1e-3, device="cpu", random_state=seed)
    reg = lvd.LVDRegressor(
        network, preset="paper", kernel=kernel, calib_size=None, device="cpu", random_state=seed
    )
    reg.fit(X[train], y[train]).conformalize(X[calib], y[calib])
    y_pred, intervals = reg.predict_interval(X[test], [0.5, 0.9])
    return (
        metrics.finite_fraction(intervals[..., 1]) * len(test),
        100.0 * metrics.residual_auroc(y[test], y_pred, intervals[..., 0]),
        metrics.mean_absolute_deviation(y[test], y_pred),
        100.0 * metrics.marginal_coverage_rate(y[test], intervals[..., 1]),
    )


@pytest.mark.slow
def test_ten_splits_give_the_printed_figures(shared_dir):
    yacht = data.load_dataset("yacht", protocol="paper", data_dir=shared_dir / "data")
    finite, auroc, mad, mcr = np.mean([run_split(yacht.X, yacht.y, seed) for seed in range(10)], axis=0)
    assert finite == pytest.approx(40.9, abs=2.5)
    assert auroc == pytest.approx(83.5, abs=4.0)
    assert mad == pytest.approx(1.90, abs=0.35)
    assert mcr >= 94.0
