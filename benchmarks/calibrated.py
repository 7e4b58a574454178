"""The calibrated guarantee on the CPU: ``python -m benchmarks.calibrated``.

5,000 calibration rows and 1,000 queries at two levels, in one go: the O(m^2) that is done once, then O(m log m) for
each query. Beside it plain LVD, and the definition read literally on a few queries of a small calibration set.
"""

from __future__ import annotations

import time

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from benchmarks.core import LEVELS, inference_case
from benchmarks.timing import median_seconds
from lvd.conformal.guarantees import calibrated_radius, standing
from lvd.quantiles import SortedRows, local_quantile


def time_calibrated(n: int = 1000, m: int = 5000, *, weighted: bool = False) -> dict[str, float]:
    """Seconds of the two steps, and of plain LVD on the same rows."""
    queries, plain = inference_case(n, m)
    ratios = torch.exp(plain.points[:, 0]) if weighted else None
    calibration = SortedRows.of(plain.points, plain.scores, ratios=ratios)
    known = standing(calibration)
    return {
        "once": median_seconds(lambda: standing(calibration), 3),
        "queries": median_seconds(lambda: calibrated_radius(queries, calibration, known, LEVELS), 3),
        "plain LVD": median_seconds(lambda: local_quantile(queries, calibration, LEVELS), 3),
    }


def brute_force_seconds(m: int = 100) -> float:
    """One query by the definition: every row is ranked again for each place the new score could take."""
    queries, calibration = inference_case(1, m)
    start = time.perf_counter()
    everyone = torch.cat([calibration.points, queries.points])
    kernel = torch.exp(-torch.cdist(everyone, everyone).square()).numpy()
    scores = calibration.scores.numpy()
    for place in (scores[1:] + scores[:-1]) / 2:
        v = np.append(scores, place)
        for row in range(m + 1):
            kernel[row][v < v[row]].sum() / kernel[row].sum()
    return time.perf_counter() - start


def main() -> None:
    console = Console()
    title = f"1,000 queries x 5,000 rows, two levels ({torch.get_num_threads()} threads, torch {torch.__version__})"
    table = Table("calibration", "once, s", "queries, s", "in all, s", "plain LVD, s", title=title)
    for name, weighted in (("plain", False), ("likelihood ratios", True)):
        times = time_calibrated(weighted=weighted)
        seconds = (times["once"], times["queries"], times["once"] + times["queries"], times["plain LVD"])
        table.add_row(name, *(f"{second:.2f}" for second in seconds))
    console.print(table)
    console.print(f"the definition read literally: {brute_force_seconds():.2f} s for one query x 100 rows")


if __name__ == "__main__":
    main()
