"""Kernel training by the fused GPU kernels against the closed form on the CPU; skipped without a GPU."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import lvd
from lvd.kernels.training import LeaveOneOut, descend, draw_batches, initial_components

pytest.importorskip("triton")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU that torch sees")


def problem(n, h, k, smoothness=True, *, spread=1.0, device="cpu", dtype=torch.float64):
    generator = torch.Generator().manual_seed(n)
    rows = spread * torch.randn(n, h, generator=generator, dtype=torch.float64)
    y = torch.sin(2.0 * rows[:, 0]) + 0.1 * torch.randn(n, generator=generator, dtype=torch.float64)
    return LeaveOneOut(rows.to(device, dtype), y.to(device, dtype), float(k), smoothness, None)


@pytest.mark.parametrize("smoothness", [True, False])
@pytest.mark.parametrize(
    ("n", "h", "k", "b"),
    [
        (2, 1, 1, 2),
        (70, 5, 3, 70),
        (1000, 20, 10, 100),
        (3001, 30, 17, 130),
        (5000, 300, 10, 100),
        (700, 9, 40, 7),
    ],
)
def test_loss_and_gradient_equal_the_closed_form_in_float64(n, h, k, b, smoothness):
    batch = torch.randperm(n, generator=torch.Generator().manual_seed(0))[:b]
    components = initial_components(k, h, 0)
    losses, gradient = problem(n, h, k, smoothness).loss_and_gradient(components.double(), batch)
    on_gpu = problem(n, h, k, smoothness, device="cuda", dtype=torch.float32)
    assert on_gpu.fuses(k)
    ours = on_gpu.loss_and_gradient(components.cuda(), batch.cuda())
    torch.testing.assert_close(ours[0].cpu().double(), losses, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(
        ours[1].cpu().double(), gradient, rtol=1e-3, atol=1e-4 * float(gradient.abs().max()) + 1e-7
    )


def test_clamped_denominators():
    batch, components = torch.arange(40), initial_components(3, 5, 0)
    losses, _ = problem(60, 5, 3, False, spread=30.0).loss_and_gradient(components.double(), batch)
    ours = problem(60, 5, 3, False, spread=30.0, device="cuda", dtype=torch.float32).loss_and_gradient(
        components.cuda(), batch.cuda()
    )
    torch.testing.assert_close(ours[0].cpu().double(), losses, rtol=1e-3, atol=1e-4)
    assert ours[1].isfinite().all()


def test_the_steps_are_those_of_the_cpu():
    n, h, k = 3000, 20, 10
    batches = [next(draw_batches(n, 100, seed)) for seed in range(23)]
    start = initial_components(k, h, 0)
    single = problem(n, h, k, dtype=torch.float32)
    on_cpu = list(descend(single, start, batches, 0.01))
    on_gpu = list(descend(problem(n, h, k, device="cuda", dtype=torch.float32), start.cuda(), batches, 0.01))
    assert len(on_gpu) == len(on_cpu) == 23
    for (components, loss), (expected, expected_loss) in zip(on_gpu, on_cpu, strict=True):
        assert loss == pytest.approx(expected_loss, rel=1e-3)
        torch.testing.assert_close(components.cpu(), expected, rtol=0, atol=2e-3)


@pytest.mark.parametrize("smoothness", [True, False])
def test_the_trained_kernel_is_that_of_the_cpu(smoothness):
    rng = np.random.default_rng(0)
    embeddings = rng.normal(size=(2000, 8)) * np.arange(1, 9) + 3.0
    y = np.sin(embeddings[:, 2]) + 0.1 * rng.normal(size=2000)
    settings = {"n_components": 4, "smoothness": smoothness, "max_iter": 60, "random_state": 0}
    cpu, gpu = (
        lvd.MahalanobisKernel(device=device, **settings).fit(embeddings, y) for device in ("cpu", "cuda")
    )
    np.testing.assert_allclose(gpu.loss_curve_[:20], cpu.loss_curve_[:20], rtol=1e-2)
    assert min(gpu.loss_curve_) == pytest.approx(min(cpu.loss_curve_), rel=0.05)
    np.testing.assert_allclose(gpu.predict(embeddings[:50]), cpu.predict(embeddings[:50]), atol=0.05)


def test_tensors_on_the_gpu_train_the_same_kernel():
    rng = np.random.default_rng(1)
    embeddings, settings = rng.normal(size=(500, 6)), {"max_iter": 30, "random_state": 0, "device": "cuda"}
    y = embeddings[:, 0]
    from_numpy = lvd.MahalanobisKernel(**settings).fit(embeddings, y)
    on_gpu = torch.tensor(embeddings, device="cuda")
    from_tensor = lvd.MahalanobisKernel(**settings).fit(on_gpu, y)
    np.testing.assert_array_equal(from_tensor.components_, from_numpy.components_)
    torch.testing.assert_close(
        from_tensor.coordinates(on_gpu), from_numpy.coordinates(embeddings), rtol=0, atol=0
    )
    with pytest.raises(lvd.InputError, match="embeddings contains 1 NaN"):
        from_tensor.coordinates(torch.where(torch.arange(6, device="cuda") == 3, torch.nan, on_gpu[:1]))
    with pytest.raises(lvd.InputError, match="embeddings has 5 features, but lvd is expecting 6"):
        from_tensor.transform(on_gpu[:, :5])


@pytest.mark.parametrize("settings", [{"max_neighbors": 50}, {"max_rows": 200}])
def test_neighbours_and_sampled_rows_train_on_the_gpu_too(settings):
    rng = np.random.default_rng(2)
    embeddings = rng.normal(size=(1000, 6))
    kernel = lvd.MahalanobisKernel(2, max_iter=150, random_state=0, device="cuda", **settings)
    kernel.fit(embeddings, np.sin(2.0 * embeddings[:, 3]))
    strength = np.square(kernel.components_).sum(0)
    assert strength[3] > 0.8 * strength.sum()
