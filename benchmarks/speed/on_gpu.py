"""On a GPU: whole calls against plain torch, options beyond plain LVD, and how many radii are the wider
candidate."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import torch

from benchmarks import floors
from benchmarks.speed.cases import FAR, LEVELS, NEAR, Case, count_equal, race
from benchmarks.speed.figures import Recorder


class GpuSizes(NamedTuple):
    """The sizes of everything measured; above `most_past` rows only plain LVD is."""

    calls: tuple[tuple[int, int], ...]
    most_past: int
    most_checked: int
    table: int
    seconds: float


GPU_SIZES = GpuSizes(
    ((1, 26_744), (1_000, 26_744), (26_744, 26_744), (1_000, 1_000_000)), 26_744, 10_000_000, 10_000, 0.5
)
GPU_QUICK = GpuSizes(((1, 200), (20, 600)), 600, 10_000, 300, 0.02)
PAST: dict[str, tuple[dict[str, Any], str]] = {
    "adaptive bandwidth": ({"bandwidth": "adaptive"}, "local"),
    "transductive": ({}, "transductive"),
}


def radii(record: Recorder, sizes: GpuSizes, device: str) -> None:
    """Whole calls from embeddings to radii on the GPU, against plain torch, for near rows and rows far apart."""
    for n, m in sizes.calls:
        for kind in (NEAR, FAR):
            case = Case.of(n, m, kind, device)
            conformal, plain = case.conformal(), case.plain_torch()
            calls = {"lvd": lambda: conformal.radius(case.queries, LEVELS), "plain torch": plain}  # noqa: B023
            if m <= sizes.most_past:
                for name, (choices, guarantee) in PAST.items():
                    other = case.conformal(**choices)
                    calls[name] = partial(other.radius, case.queries, LEVELS, guarantee=guarantee)
            times = race(calls, sizes.seconds, device)
            expected = case.by_oracle(max(1, min(n, sizes.most_checked // m)))
            for name, call in calls.items():
                equal = count_equal(call(), expected) if name in {"lvd", "plain torch"} else {}
                record.note("radius", name, **case.size, seconds=times[name], **equal)
            floor = floors.exponentials(n, m, device)
            record.note("radius", "floor of the exponentials", **case.size, seconds=floor)
            settle(record, case, conformal, device)
            del conformal, plain, calls, case
            if device == "cuda":
                torch.cuda.empty_cache()


def settle(record: Recorder, case: Case, conformal: Any, device: str) -> None:
    """How many radii are not certified, how many are wider than in float64, and the time to settle them."""
    open_rows = torch.as_tensor(~conformal.summary(case.queries, LEVELS).exact)
    some = Case(case.kernel, case.rows, case.scores, case.queries[open_rows], case.kind)
    if not len(some.queries):
        record.note("settling", "lvd", **case.size, uncertified=0)
        return
    exact = case.conformal(exact=True)
    ways = {"plain": some.by_differences, "exact": lambda: exact.radius(case.queries, LEVELS)}
    seconds = race(ways, 0.2, device)
    expected, found = some.by_differences(), torch.as_tensor(conformal.radius(some.queries, LEVELS))
    counts = {
        "uncertified": int(open_rows.sum()),
        "compared": found.numel(),
        "wider": int((found > expected).sum()),
        "narrower": int((found < expected).sum()),
    }
    record.note(
        "settling", "lvd", **case.size, seconds=seconds["plain"], exact_seconds=seconds["exact"], **counts
    )
