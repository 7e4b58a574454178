"""The cost of each contestant on its own, as measured by ``python -m benchmarks.arena``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from experiments.arena.contestants import CONTESTANTS
from experiments.paper.formats import Grid, figure_text
from experiments.paper.result_store import ResultTable


@dataclass(frozen=True)
class ArenaCost:
    """One contestant in its own process; `megabytes` is the rise in memory above that of the data.

    `error` is the reason for a failure; the figures are then NaN.
    """

    table: str
    model: str
    method: str
    train_rows: int = 0
    test_rows: int = 0
    fit_seconds: float = math.nan
    predict_seconds: float = math.nan
    megabytes: float = math.nan
    error: str = ""
    processor: str = ""


COSTS = ResultTable(ArenaCost, "a table of the arena's costs", "python -m benchmarks.arena", digits=4)


def costs_grid(costs: Sequence[ArenaCost], model: str) -> Grid:
    """Seconds and memory with a given model, sorted by the cost of a fit."""
    ran = sorted(
        (one for one in costs if one.model == model and not one.error), key=lambda one: one.fit_seconds
    )
    lines = [
        (
            CONTESTANTS[one.method].title,
            figure_text(one.fit_seconds, ".2f"),
            figure_text(1e6 * one.predict_seconds / one.test_rows, ".0f"),
            figure_text(one.megabytes, ".0f"),
        )
        for one in ran
    ]
    headings = ("method", "fit, s", "a row, µs", "memory, MB")
    return Grid(f"Costs alone, {model}", "", headings, lines)
