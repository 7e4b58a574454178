"""Graph networks on a GPU: captured steps do what plain ones do, alone or side by side; skipped without a GPU."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest
import torch

import lvd

if not torch.cuda.is_available():
    pytest.skip("needs a GPU that torch sees", allow_module_level=True)
if importlib.util.find_spec("chemprop") is None:
    pytest.skip("needs chemprop", allow_module_level=True)

from lvd.models.losses import NormalLoss, PinballLoss, QuantilesLoss
from lvd.molecules import (
    NetworkJob,
    Recipe,
    inner_split,
    read_molecules,
    run,
    train_networks,
)
from lvd.molecules.run import TrainingRun

SMILES = [
    "C" * n + middle + "C" * k for n in range(1, 8) for middle in ("", "O", "N", "C(C)") for k in (1, 2, 3)
]
Y = np.array([[len(s), s.count("O") - s.count("N")] for s in SMILES], dtype=float)
TRAIN, VALID, _ = inner_split(len(SMILES))
RECIPE = Recipe(hidden_size=32, n_epochs=3, batch_size=16, warmup_epochs=1)
JOBS = [
    NetworkJob(Y, TRAIN, VALID),
    NetworkJob(Y, np.arange(37), VALID, seed=1),
    NetworkJob(np.concatenate([Y, Y], axis=1), TRAIN, VALID, PinballLoss(0.9)),
    NetworkJob(Y, TRAIN, VALID, NormalLoss(), scale_target=False),
    NetworkJob(Y, TRAIN, VALID, QuantilesLoss()),
]
GPU, CPU = torch.device("cuda"), torch.device("cpu")
N_STEPS = 9
"""As many as the smallest of these trainings has."""


@pytest.fixture(scope="module")
def molecules():
    return read_molecules(SMILES)


def weights(network):
    return torch.cat([parameter.detach().flatten().cpu() for parameter in network.parameters()])


def assert_alike(ours, theirs):
    """Sums in another order differ by rounding, of which Adam makes whole steps where a gradient is near zero.

    One step more or less would move the weights by 1e-4 and more on average.
    """
    torch.testing.assert_close(ours, theirs, rtol=0, atol=5e-3)
    assert float((ours - theirs).abs().mean()) < 2e-5


@pytest.mark.parametrize("number", range(len(JOBS)))
def test_replayed_steps_are_plain_steps(molecules, number, monkeypatch):
    runs = {}
    for name, n_plain in (("replayed", run.EAGER_STEPS), ("plain", 1000)):
        monkeypatch.setattr(run, "EAGER_STEPS", n_plain)
        runs[name] = TrainingRun(molecules, JOBS[number], RECIPE, GPU)
        for _ in range(N_STEPS):
            runs[name].advance()
        torch.cuda.synchronize()
    on_cpu = TrainingRun(molecules, JOBS[number], RECIPE, CPU)
    for _ in range(N_STEPS):
        on_cpu.advance()
    assert_alike(weights(runs["replayed"].module), weights(runs["plain"].module))
    assert_alike(weights(runs["replayed"].module), weights(on_cpu.module))


def test_networks_side_by_side_are_those_trained_alone(molecules):
    together = train_networks(molecules, JOBS, RECIPE, device="cuda")
    for network, job in zip(together, JOBS, strict=True):
        (alone,) = train_networks(molecules, [job], RECIPE, device="cuda")
        assert_alike(weights(network.module), weights(alone.module))
        np.testing.assert_allclose(network.validation, alone.validation, rtol=1e-3)


def test_the_gpu_learns_what_the_cpu_learns(molecules):
    ours, theirs = (train_networks(molecules, JOBS[:1], RECIPE, device=name)[0] for name in ("cuda", "cpu"))
    np.testing.assert_allclose(ours.validation, theirs.validation, rtol=1e-3)
    on_gpu, on_cpu = ours.evaluate(molecules), theirs.evaluate(molecules)
    np.testing.assert_allclose(on_gpu.y_pred, on_cpu.y_pred, rtol=0, atol=2e-2)
    np.testing.assert_allclose(on_gpu.embeddings, on_cpu.embeddings, rtol=0, atol=2e-2)


def test_intervals_from_a_network_on_the_gpu(tmp_path):
    net = lvd.ChempropEstimator(hidden_size=16, n_epochs=3, device="cuda", progress=False)
    regressor = lvd.SplitConformalRegressor(net, device="cuda", random_state=0).fit(SMILES, Y[:, 0])
    intervals = regressor.predict_interval(SMILES)[1]
    regressor.save(tmp_path / "model")
    np.testing.assert_allclose(lvd.load(tmp_path / "model").predict_interval(SMILES)[1], intervals, rtol=1e-4)
