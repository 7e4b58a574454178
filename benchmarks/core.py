"""Inference and kernel training on the CPU against the plain versions: ``python -m benchmarks.core``."""

from __future__ import annotations

import resource

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from benchmarks import rivals
from benchmarks.timing import busy_cores, median_seconds
from lvd._parallel import workers
from lvd.kernels.leave_one_out import LeaveOneOut
from lvd.kernels.training import initial_components
from lvd.quantiles import Queries, SortedRows, local_quantile

LEVELS = np.array([0.5, 0.9])


def inference_case(n: int, m: int, k: int = 10, spread: float = 0.6) -> tuple[Queries, SortedRows]:
    """Projected points as in the paper's largest experiment, in scaled coordinates."""
    rng = np.random.default_rng(0)
    scale = spread / k**0.5
    queries = Queries.of(torch.tensor(rng.normal(size=(n, k)) * scale))
    calibration = SortedRows.of(
        torch.tensor(rng.normal(size=(m, k)) * scale), torch.tensor(rng.exponential(size=m))
    )
    return queries, calibration


def time_inference(n: int = 1000, m: int = 26_744) -> dict[str, float]:
    queries, calibration = inference_case(n, m)
    single, points = queries.points.float(), calibration.points.float()
    return {
        "lvd": median_seconds(lambda: local_quantile(queries, calibration, LEVELS)),
        "plain torch, full matrix": median_seconds(
            lambda: rivals.full_matrix_ranks(single, points, LEVELS.tolist())
        ),
        "one row at a time": median_seconds(
            lambda: rivals.row_by_row_ranks(single, points, LEVELS.tolist()), 3
        ),
    }


def time_training(n: int = 20_000, h: int = 100, batch_size: int = 100) -> dict[str, float]:
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(n, h, generator=generator)
    y = rows[:, 0] + 0.1 * torch.randn(n, generator=generator)
    batch = torch.randperm(n, generator=generator)[:batch_size]
    components = initial_components(10, h, 0)
    times = {}
    for name, neighbors in (("all rows", None), ("3000 neighbours", 3000)):
        problem = LeaveOneOut(rows, y, 10.0, True, neighbors)
        with workers() as run:
            times[f"lvd, {name}"] = median_seconds(lambda: problem.loss_and_gradient(components, batch, run))  # noqa: B023
    for name, loss, neighbors in (
        ("plain torch, all rows", rivals.batched_loss, None),
        ("plain torch, 3000 neighbours", rivals.batched_loss, 3000),
        ("one row at a time, 3000 neighbours", rivals.row_by_row_loss, 3000),
    ):
        parameter = components.clone().requires_grad_()

        def step(loss=loss, neighbors=neighbors, parameter=parameter) -> None:
            parameter.grad = None
            loss(parameter, rows, y, batch, neighbors).backward()

        times[name] = median_seconds(step, 3)
    return times


def added_memory(n: int = 1_000_000, m: int = 26_744) -> float:
    """Megabytes that a million queries add at their peak, beside the queries and the answer themselves."""
    queries, calibration = inference_case(n, m)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    local_quantile(queries, calibration, LEVELS)
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024


def show(console: Console, title: str, times: dict[str, float]) -> None:
    table = Table("what", "milliseconds", "times as long as lvd", title=title)
    ours = next(iter(times.values()))
    for name, seconds in times.items():
        table.add_row(name, f"{1e3 * seconds:.1f}", f"{seconds / ours:.1f}")
    console.print(table)


def main() -> None:
    console = Console()
    threads = f"{torch.get_num_threads()} threads, torch {torch.__version__}"
    console.print(f"1,000,000 queries x 26,744 rows add {added_memory():.0f} MB of memory")
    show(console, f"1,000 queries x 26,744 rows, k = 10, two levels ({threads})", time_inference())
    with busy_cores(torch.get_num_threads()):
        show(console, "the same while another job holds every core", time_inference())
    show(console, "one training batch of 100, n = 20,000, h = 100", time_training())
    with busy_cores(torch.get_num_threads()):
        show(console, "the same while another job holds every core", time_training())


if __name__ == "__main__":
    main()
