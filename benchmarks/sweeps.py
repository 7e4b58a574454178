"""The plan of the bench page: every contestant over growing calibration sets and growing numbers of queries."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import astuple
from importlib.util import find_spec
from typing import NamedTuple

from benchmarks.cell import NOTHING, Request
from benchmarks.contestants import CONTESTANTS
from benchmarks.growth import expected_seconds
from benchmarks.results import Cell, Environment
from benchmarks.worker import Worker

LEAST_STOP, STOP_FACTOR = 60.0, 4.0
"""A cell is stopped after this many seconds, or this many times the limit: more than it was expected to take."""


Sizes = tuple[tuple[int, int], ...]
"""Queries and rows, one of which grows."""


class Plan(NamedTuple):
    """The sweeps on a device, without cells expected to exceed `limit`; repeats take up to `budget` seconds."""

    device: str
    rows: Sizes
    queries: Sizes
    limit: float
    budget: float
    fresh: bool
    """Use a separate process per contestant: on a GPU, torch itself knows what each allocates."""


def plan(device: str, *, quick: bool, limit: float | None) -> Plan:
    """A thousand to a million rows (ten million on a GPU), and one to 100,000 queries at a fixed size."""
    if quick:
        rows = tuple((100, 10**d) for d in range(2, 5))
        queries = tuple((10**d, 1000) for d in range(1, 4))
        return Plan(device, rows, queries, limit or 1.5, 0.1, fresh=False)
    gpu = device == "cuda"
    rows = tuple((1000, 10**d) for d in range(3, 8 if gpu else 7))
    queries = tuple((10**d, 10**6 if gpu else 10**4) for d in range(6))
    return Plan(device, rows, queries, limit or (3.0 if gpu else 20.0), 0.3 if gpu else 1.0, fresh=not gpu)


def run(
    names: Sequence[str], plan: Plan, environment: Environment, stop_after: float = math.inf
) -> Iterator[Cell]:
    """Run all cells, with a note for those not measured; none starts after `stop_after` seconds."""
    worker, start = Worker(environment.threads), time.monotonic()
    try:
        for name in names:
            done: list[Cell] = []
            for sweep, sizes in (("rows", plan.rows), ("queries", plan.queries)):
                note = missing_package(name)
                for n, m in sizes:
                    if not note and time.monotonic() - start > stop_after:
                        note = "not reached before the run was stopped"
                    if not note and expected_cost(done, sweep, n, m) > plan.limit:
                        note = f"not run where it would take longer than {plan.limit:g} s"
                    device = plan.device if CONTESTANTS[name].on_gpu else "cpu"
                    measured = NOTHING
                    if not note:
                        request = Request(name, n, m, device, plan.budget)
                        measured, note = worker.ask(request, max(LEAST_STOP, STOP_FACTOR * plan.limit))
                    place = (sweep, name, device, n, m)
                    done.append(Cell(*astuple(environment), *place, *measured, note))
                    yield done[-1]
            if plan.fresh:
                worker.close()
    finally:
        worker.close()


def missing_package(name: str) -> str:
    """A note if a contestant's package is not installed."""
    missing = [package for package in CONTESTANTS[name].packages if find_spec(package) is None]
    return f"{' and '.join(missing)} not installed" if missing else ""


def expected_cost(done: Sequence[Cell], sweep: str, n: int, m: int) -> float:
    """The expected seconds of calibration and a first prediction, from the contestant's cells so far.

    More queries do not make calibration slower. Their first cell is estimated from the sweep over rows,
    assuming prediction time proportional to the queries.
    """
    known = [cell for cell in done if cell.measured]
    here = [cell for cell in known if cell.sweep == sweep]
    if sweep == "queries" and here:
        predicting = expected_seconds([cell.size for cell in here], [cell.first_seconds for cell in here], n)
        return here[-1].calibrate_seconds + predicting
    share = n / known[0].queries if known else 1.0
    sizes = [cell.rows for cell in known]
    calibrating = expected_seconds(sizes, [cell.calibrate_seconds for cell in known], m)
    return calibrating + share * expected_seconds(sizes, [cell.first_seconds for cell in known], m)
