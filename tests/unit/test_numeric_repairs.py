"""Numbers at the edges of their range, and rows that must not feel their neighbours."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import lvd

SMALL_NET = lvd.NetRegressor(hidden_sizes=(30, 30), n_batches=60, random_state=0)
REGRESSORS = [
    SMALL_NET,
    lvd.NetRegressor(nn.Sequential(nn.Linear(40, 200), nn.Tanh(), nn.Linear(200, 1)), n_batches=60),
    lvd.LVDRegressor(SMALL_NET, confidence_level=0.5, random_state=0),
    lvd.SplitConformalRegressor(SMALL_NET, random_state=0),
    lvd.MADSplitRegressor(SMALL_NET, random_state=0),
    lvd.ConformalizedQuantileRegressor(SMALL_NET, random_state=0),
    lvd.JackknifePlusRegressor(SMALL_NET, cv=3, random_state=0),
    lvd.MCDropoutRegressor(hidden_sizes=(30,), epochs=3, random_state=0),
    lvd.DeepEnsembleRegressor(hidden_sizes=(30,), epochs=3, random_state=0),
    lvd.PBPRegressor(hidden_sizes=(10,), epochs=2, random_state=0),
    lvd.DiscriminativeJackknifeRegressor(
        lvd.NetRegressor(hidden_sizes=(5,), n_batches=60), damping=1e-2, random_state=0
    ),
]


class TestARowDoesNotFeelItsNeighbours:
    @pytest.mark.parametrize("regressor", REGRESSORS, ids=lambda r: type(r).__name__)
    def test_in_any_batch(self, regressor):
        rng = np.random.default_rng(0)
        X = rng.normal(size=(150, 40))
        regressor.fit(X, X[:, 0] + rng.normal(size=150))

        def ask(rows):
            found = [regressor.predict(rows)[:, None]]
            if hasattr(regressor, "embed"):
                found.append(regressor.embed(rows))
            if hasattr(regressor, "predict_interval"):
                found.append(
                    np.nan_to_num(regressor.predict_interval(rows)[1][..., 0], posinf=9.0, neginf=-9.0)
                )
            return np.concatenate(found, axis=1)

        whole = ask(X)
        for size in (1, 3, 37):
            parts = np.concatenate([ask(X[i : i + size]) for i in range(0, len(X), size)])
            np.testing.assert_allclose(parts, whole, rtol=1e-10, atol=1e-12)

    def test_a_prefit_module_is_left_in_its_own_precision(self):
        module = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1)).eval()
        X = np.random.default_rng(0).normal(size=(20, 4))
        net = lvd.NetRegressor(module, prefit=True, device="cpu").fit(X, X[:, 0])
        with torch.no_grad():
            expected = module(torch.as_tensor(X, dtype=torch.float32)).double().numpy()[:, 0]
        np.testing.assert_allclose(net.predict(X), expected, rtol=1e-5, atol=1e-6)
        assert net.predict(X[:1])[0] == pytest.approx(net.predict(X)[0], rel=1e-12)
        assert {p.dtype for p in module.parameters()} == {torch.float32}
        with torch.no_grad():
            module[3].bias += 1.0
        np.testing.assert_allclose(net.predict(X), expected + 1.0, rtol=1e-5, atol=1e-6)

    def test_a_module_that_knows_float32_alone_still_predicts(self):
        class Stubborn(nn.Module):
            def __init__(self):
                super().__init__()
                self.out = nn.Linear(3, 1)

            def forward(self, inputs):
                return self.out(inputs.float())

        X = np.random.default_rng(0).normal(size=(20, 3))
        net = lvd.NetRegressor(Stubborn(), n_batches=5, random_state=0).fit(X, X[:, 0])
        assert net.predict(X).shape == (20,)
