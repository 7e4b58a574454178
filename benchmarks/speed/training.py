"""Training the kernel on the CPU: one step against plain torch and tiles, and whole fits."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import torch

import lvd
from benchmarks import rivals
from benchmarks.cell import with_peak_memory
from benchmarks.speed.cases import race
from benchmarks.speed.figures import Recorder
from benchmarks.timing import timed
from lvd._parallel import workers
from lvd.kernels import training
from lvd.kernels.training import LeaveOneOut, initial_components

N_COLUMNS, BATCH, N_LATENT, NOISE, N_TEST = 100, 100, 8, 0.2, 2_000
TILES = f"lvd, in tiles, as up to {training.FEW_ROWS:,} rows"


def one_step(record: Recorder, n: int, seconds: float) -> None:
    """The loss of a batch and its gradient, each row predicted from all others; errors relative to float64."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(n, N_COLUMNS, generator=generator)
    y = rows[:, 0] + 0.1 * torch.randn(n, generator=generator)
    batch = torch.randperm(n, generator=generator)[:BATCH]
    components = initial_components(10, N_COLUMNS, 0)
    problem = LeaveOneOut(rows, y, 10.0, True, None)
    parameter = components.clone().requires_grad_()

    def by_autograd() -> torch.Tensor:
        parameter.grad = None
        rivals.batched_loss(parameter, rows, y, batch, None).backward()
        assert parameter.grad is not None
        return parameter.grad

    def compiled_from(few_rows: int) -> torch.Tensor:
        with patch.object(training, "FEW_ROWS", few_rows):
            return problem.loss_and_gradient(components, batch, run)[1]

    errors = {}
    times = race({"plain torch": by_autograd}, seconds)
    exact = LeaveOneOut(rows.double(), y.double(), 10.0, True, None)
    with workers() as run:  # torch is single-threaded meanwhile: threads are for tiles and blocks
        gradients = {
            "lvd": lambda: compiled_from(0),
            TILES: lambda: compiled_from(n),
        }
        gradients["lvd"]()  # compiles
        times |= race(gradients, seconds)
        gradients["plain torch"] = by_autograd
        expected = exact.loss_and_gradient(components.double(), batch, run)[1]
        for name, gradient in gradients.items():
            errors[name] = float((gradient() - expected).abs().max() / expected.abs().max())
    for name in ("lvd", TILES, "plain torch"):
        record.note("step", name, queries=BATCH, rows=n, seconds=times[name], error=errors[name])


def whole_fit(record: Recorder, n: int) -> None:
    """A fit until it stops by itself, and the share of variance that its kernel regression explains."""
    embeddings, y = make_embeddings(n + N_TEST)
    kernel = lvd.MahalanobisKernel(device="cpu", random_state=0)
    seconds, (_, peak) = timed(lambda: with_peak_memory(lambda: kernel.fit(embeddings[:n], y[:n]), "cpu"))
    test = y[n:]
    explained = 1.0 - (test - kernel.predict(embeddings[n:])).var() / test.var()
    record.note(
        "kernel fit", "lvd", rows=n, seconds=seconds, peak_mb=peak, batches=kernel.n_iter_,
        explained=explained, explainable=1.0 - NOISE**2 / test.var(),
    )  # fmt: skip


def make_embeddings(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Embeddings like a ReLU layer's, of rows with 8 hidden directions; each target depends on one of these."""
    rng = np.random.default_rng(0)
    latent = rng.normal(size=(n, N_LATENT)).astype(np.float32)
    mixing = rng.normal(size=(N_LATENT, N_COLUMNS)).astype(np.float32)
    return np.maximum(latent @ mixing, 0.0), np.sin(2.0 * latent[:, 0]) + NOISE * rng.normal(size=n)
