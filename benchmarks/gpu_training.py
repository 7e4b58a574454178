"""Kernels and intervals of a QM9-sized split on a GPU: ``python -m benchmarks.gpu_training [--out training.csv]``.

78,394 training rows with 300 embedding dimensions, 26,744 calibration and 26,744 test rows, 12 targets; against the
leave-one-out loss one row at a time and in plain batched torch, both by autograd.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

import lvd
from benchmarks import rivals
from benchmarks.timing import median_seconds, timed
from lvd.engine import Queries, SortedRows, local_quantile
from lvd.kernels import training
from lvd.kernels.training import LeaveOneOut

N_TRAIN, N_CALIB, N_TEST, N_COLUMNS, N_TARGETS = 78_394, 26_744, 26_744, 300, 12
LEVELS = np.array([0.5, 0.9])


def make_data() -> tuple[torch.Tensor, np.ndarray]:
    """Embeddings on the GPU, and targets that each depend on a few directions of them, with noise."""
    generator = torch.Generator("cuda").manual_seed(0)
    n = N_TRAIN + N_CALIB + N_TEST
    latent = torch.randn(n, 20, generator=generator, device="cuda", dtype=torch.float64)
    mixing = torch.randn(20, N_COLUMNS, generator=generator, device="cuda", dtype=torch.float64)
    embeddings = torch.relu(latent @ mixing)
    directions = torch.randn(20, N_TARGETS, generator=generator, device="cuda", dtype=torch.float64) / 20**0.5
    noise = torch.randn(n, N_TARGETS, generator=generator, device="cuda", dtype=torch.float64)
    return embeddings, (torch.sin(latent @ directions) + 0.2 * noise).cpu().numpy()


def one_target(embeddings: torch.Tensor, y: np.ndarray) -> tuple[dict[str, float], lvd.MahalanobisKernel]:
    """Train the kernel, calibrate, and compute the radii of the test rows."""
    train, calib, test = embeddings.split([N_TRAIN, N_CALIB, N_TEST])
    kernel = lvd.MahalanobisKernel(device="cuda", random_state=0)
    fit, _ = timed(lambda: kernel.fit(train, y[:N_TRAIN]), "cuda")
    scores = torch.tensor(np.abs(y[N_TRAIN : N_TRAIN + N_CALIB]), device="cuda")
    sort, calibration = timed(lambda: SortedRows.of(kernel.coordinates(calib), scores), "cuda")
    predict, radius = timed(
        lambda: local_quantile(Queries(kernel.coordinates(test)), calibration, LEVELS), "cuda"
    )
    finite = float(radius.radius.isfinite().double().mean())
    return {
        "fit": fit,
        "calibrate": sort,
        "intervals": predict,
        "batches": kernel.n_iter_,
        "finite": finite,
    }, kernel


def step_milliseconds(
    embeddings: torch.Tensor, y: np.ndarray, kernel: lvd.MahalanobisKernel
) -> dict[str, float]:
    """One batch of 100: ours as a replayed graph, ours launched kernel by kernel, and the rivals."""
    rows = torch.as_tensor(
        (embeddings[:N_TRAIN] - embeddings[:N_TRAIN].mean(0)) / embeddings[:N_TRAIN].std(0)
    )
    rows, targets = rows.float(), torch.tensor(y[:N_TRAIN], device="cuda", dtype=torch.float32)
    components = torch.tensor(kernel.components_[:, : rows.shape[1]], device="cuda", dtype=torch.float32)
    problem = LeaveOneOut(rows, targets, 10.0, True, None)
    batch = torch.randperm(N_TRAIN, device="cuda")[:100]
    times = {"lvd, launched": median_ms(lambda: problem.loss_and_gradient(components, batch))}
    optimizer = torch.optim.Adam([parameter := components.clone()], lr=1e-2, capturable=True)
    _, graph = training._record_step(problem, parameter, batch.clone(), optimizer)
    times["lvd, replayed with its Adam step"] = median_ms(graph.replay)
    points = rows @ components.T
    times["of which projection"] = median_ms(lambda: rows @ components.T)
    times["of which gradient product"] = median_ms(lambda: points.T @ rows)
    rng = np.random.RandomState(0)
    times["drawing a batch on the CPU"] = median_ms(lambda: rng.choice(N_TRAIN, 100, replace=False))

    def by_autograd(loss: Callable[..., torch.Tensor], neighbors: int | None) -> None:
        parameter = components.clone().requires_grad_()
        loss(parameter, rows, targets, batch, neighbors).backward()

    times["plain torch, batched"] = median_ms(lambda: by_autograd(rivals.batched_loss, None), 5)
    times["one row at a time, 3000 neighbours"] = median_ms(
        lambda: by_autograd(rivals.row_by_row_loss, 3000), 3
    )
    return times


def median_ms(function: Callable[[], object], repeats: int = 20) -> float:
    return 1e3 * median_seconds(function, repeats, "cuda")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="also write the times of the targets to this csv file")
    arguments = parser.parse_args()
    console = Console(width=120)
    embeddings, y = make_data()
    first, kernel = one_target(embeddings, y[:, 0])
    console.print(
        "first target, compiling included:", {name: round(value, 3) for name, value in first.items()}
    )
    training._drawn.cache_clear()
    console.print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    table = Table(
        "target", "fit s", "calibrate s", "intervals s", "batches", "finite", title="kernels and intervals"
    )
    rows = []
    for target in range(N_TARGETS):
        result, _ = one_target(embeddings, y[:, target])
        rows.append(result)
        table.add_row(str(target), *(f"{value:.4g}" for value in result.values()))
    console.print(table)
    totals = [row["fit"] + row["calibrate"] + row["intervals"] for row in rows]
    console.print(
        f"12 targets: {sum(totals):.3f} s (wanted < 1.7); the first: {totals[0]:.3f} s (wanted < 0.2)"
    )
    steps = step_milliseconds(embeddings, y[:, 0], kernel)
    table = Table("one batch of 100", "milliseconds", "times lvd, replayed")
    for name, value in steps.items():
        table.add_row(name, f"{value:.3f}", f"{value / steps['lvd, replayed with its Adam step']:.1f}")
    console.print(table)
    if arguments.out:
        with arguments.out.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
