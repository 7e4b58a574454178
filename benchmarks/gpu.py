"""The GPU engine against plain implementations and the floor: ``python -m benchmarks.gpu [--out gpu.csv]``.

Times are end to end: from projected queries on the GPU to radii on the GPU, as a caller sees them. Rows form
one dense cloud, where products of float32 precision suffice, or a wide sheet, where products are float64. The
floor is the time of equally many exponentials at the rate measured in the same run.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import triton
import triton.language as tl
from rich.console import Console
from rich.table import Table

from benchmarks import rivals
from benchmarks.timing import median_seconds, timed
from lvd.engine import Queries, SortedRows, local_quantile
from lvd.engine.triton_engine import Launches

LEVELS = np.array([0.5, 0.9])
SIZES = ((1000, 26_744), (26_744, 26_744), (1000, 1_000_000), (1000, 10_000_000))
SIDE = 79.0
"""As in benchmarks.contestants: about a thousand of a million rows matter to a query."""
WANTED = (0.12, 0.5, 1.0, 7.0)
COLUMNS = (
    "queries",
    "rows",
    "lvd",
    "wanted",
    "lvd, far apart",
    "plain torch",
    "one row at a time",
    "floor",
    "pending",
    "unsettled",
)


def case(n: int, m: int, k: int = 10, *, side: float = 0.0) -> tuple[torch.Tensor, SortedRows]:
    """Queries and rows in a cloud or, with a `side`, on a sheet of this size."""
    generator = torch.Generator("cuda").manual_seed(0)

    def draw(n_rows: int) -> torch.Tensor:
        points = torch.randn(n_rows, k, generator=generator, device="cuda", dtype=torch.float64)
        if not side:
            return 0.6 / k**0.5 * points
        points *= 0.05
        points[:, :2] += side * torch.rand(n_rows, 2, generator=generator, device="cuda", dtype=torch.float64)
        return points

    points, queries = draw(m), draw(n)
    scores = torch.rand(m, generator=generator, device="cuda", dtype=torch.float64)
    return queries, SortedRows.of(points, scores)


def whole_milliseconds(function: Callable[[], object], repeats: int = 30) -> float:
    """Median host time of calls that end in synchronisation, after three warm-up calls."""
    for _ in range(2):
        function()
    return 1e3 * median_seconds(function, repeats, "cuda")


def stage_milliseconds(queries: torch.Tensor, calibration: SortedRows) -> tuple[dict, Launches]:
    """The launches of one run, each timed alone by events."""
    run = Launches(calibration.on_gpu, len(queries), torch.tensor(LEVELS, device="cuda"))
    run.launch(queries)
    torch.cuda.synchronize()
    times = {}
    for name, stage in run.stages(queries).items():
        if name != "crossing":  # it appends to the pending list: timed below, with a fresh list
            times[name] = triton.testing.do_bench(stage, warmup=10, rep=50, return_mode="median")
    stages = run.stages(queries)

    def first_three() -> None:
        for name in ("queries", "block sums", "crossing"):
            stages[name]()

    together = triton.testing.do_bench(first_three, warmup=10, rep=50, return_mode="median")
    times["crossing"] = together - times["queries"] - times["block sums"]
    run.launch(queries)
    torch.cuda.synchronize()
    return times, run


@triton.jit
def spin(out, rounds, SIZE: tl.constexpr):
    x = tl.arange(0, SIZE).to(tl.float32) * 1e-3 + tl.program_id(0) * 1e-6
    for _ in range(rounds):
        x = tl.exp2(-x)
    tl.store(out + tl.program_id(0) * SIZE + tl.arange(0, SIZE), x)


def exponentials_per_second() -> float:
    """The rate of exp2 on numbers that stay in registers."""
    programs, rounds, size = 132 * 16, 2000, 1024
    out = torch.empty(programs * size, device="cuda")
    milliseconds = triton.testing.do_bench(
        lambda: spin[(programs,)](out, rounds, SIZE=size, num_warps=4),
        warmup=10,
        rep=50,
        return_mode="median",
    )
    return programs * rounds * size / (1e-3 * milliseconds)


def measure(n: int, m: int, rate: float) -> tuple[dict[str, object], dict[str, float]]:
    queries, calibration = case(n, m)
    single, points = queries.float(), calibration.points.float()
    stages, run = stage_milliseconds(queries, calibration)
    chunk = max(1, int(2e9 // m))
    far_queries, far_rows = case(n, m, side=SIDE)
    result: dict[str, object] = {
        "queries": n,
        "rows": m,
        "lvd": whole_milliseconds(lambda: local_quantile(Queries(queries), calibration, LEVELS)),
        "lvd, far apart": whole_milliseconds(lambda: local_quantile(Queries(far_queries), far_rows, LEVELS)),
        "floor": 1e3 * n * m / rate,
        "pending": int(run.counters[0]),
        "unsettled": int(run.counters[1]),
    }
    if m <= 1_000_000:
        result["plain torch"] = whole_milliseconds(
            lambda: [rivals.full_matrix_ranks(part, points, LEVELS.tolist()) for part in single.split(chunk)],
            5,
        )
    if n * m <= 10**8:
        seconds, _ = timed(lambda: rivals.row_by_row_ranks(single[:100], points, LEVELS.tolist()), "cuda")
        result["one row at a time"] = 1e3 * seconds * n / 100
    return result, stages


def error_against_float64(n: int = 200, m: int = 26_744) -> float:
    """Largest relative error of a block sum."""
    queries, calibration = case(n, m)
    _, run = stage_milliseconds(queries, calibration)
    squared = torch.cdist(queries, calibration.points, compute_mode="donot_use_mm_for_euclid_dist").square()
    exact = torch.nn.functional.pad((-squared).exp(), (0, -m % 128)).view(n, -1, 128).sum(2)
    return float(((run.sums.T.double() - exact).abs() / exact).max())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="also write the table to this csv file")
    arguments = parser.parse_args()
    console = Console(width=150)
    rate = exponentials_per_second()
    name = torch.cuda.get_device_name()
    console.print(f"{name}, torch {torch.__version__}, triton {triton.__version__}: {rate:.2e} exp2 a second")
    console.print(f"largest relative error of a block sum: {error_against_float64():.1e}")
    table = Table(*COLUMNS, title="milliseconds, whole; k = 10, two levels")
    detail = Table("queries x rows", "stage", "milliseconds, alone")
    rows = []
    for (n, m), wanted in zip(SIZES, WANTED, strict=True):
        result, stages = measure(n, m, rate)
        result["wanted"] = wanted
        rows.append(result)
        table.add_row(*(_text(result.get(column)) for column in COLUMNS))
        for stage, milliseconds in stages.items():
            detail.add_row(f"{n:,} x {m:,}", stage, f"{milliseconds:.4f}")
        torch.cuda.empty_cache()
    console.print(detail)
    console.print(table)
    if arguments.out:
        with arguments.out.open("w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS)
            writer.writeheader()
            writer.writerows(rows)


def _text(value: object) -> str:
    return "-" if value is None else f"{value:.4g}" if isinstance(value, float) else f"{value:,}"


if __name__ == "__main__":
    main()
