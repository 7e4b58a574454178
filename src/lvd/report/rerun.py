"""The same runs done twice: what moves where only the rounding differs, as on another processor."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

from lvd._validation import InputError
from lvd.experiments.collect import Measured
from lvd.report.grids import Entry, Grid
from lvd.report.layout import method_title

SAME = 1e-5
"""Figures that differ by fewer percent than this are the same: tables keep nine digits."""
Pair = tuple[Measured, Measured]


def pair_runs(first: Sequence[Measured], second: Sequence[Measured], protocol: str) -> list[Pair]:
    """The runs and levels of a protocol that went well in both."""
    known = {_place(row): row for row in first if not row.error and row.protocol == protocol}
    pairs = [(known[_place(row)], row) for row in second if not row.error and _place(row) in known]
    if not pairs:
        raise InputError(
            f"the two must have runs of the {protocol} protocol in common, they have none; give results of the "
            "same datasets, methods and seeds"
        )
    return pairs


def rerun_grid(pairs: Sequence[Pair], protocol: str) -> Grid:
    """One line per method: the largest difference that a figure shows on one seed, and of the means over seeds."""
    methods = dict.fromkeys(pair[0].method for pair in pairs)
    rows = [(method, [pair for pair in pairs if pair[0].method == method]) for method in methods]
    return Grid(
        f"The same runs on another machine ({protocol} protocol)",
        "Largest differences over datasets, seeds and levels: MCR and TCR in points, the others in percent of the "
        "first. Same: MCR, TCR, MAD and width are equal.",
        (
            *(
                "",
                "runs and levels",
                "same",
                "MCR",
                "MCR, mean over seeds",
                "TCR",
                "# finite",
                "MAD",
                "width",
            ),
            "width, mean over seeds",
        ),
        tuple(_line(method, members) for method, members in rows),
    )


def _line(method: str, pairs: Sequence[Pair]) -> tuple[Entry, ...]:
    figures = (
        _points(_values(pairs, "MCR")),
        _points(_means(pairs, "MCR")),
        _points(_values(pairs, "TCR")),
        *(_percent(_values(pairs, name)) for name in ("finite_count", "MAD", "width")),
        _percent(_means(pairs, "width")),
    )
    same = sum(
        all(_percent(_values([pair], name)) < SAME for name in ("MCR", "TCR", "MAD", "width"))
        for pair in pairs
    )
    counts = (Entry(str(len(pairs))), Entry(str(same)))
    return (Entry(method_title(method, "rerun")), *counts, *(Entry(f"{value:.1f}") for value in figures))


def _values(pairs: Sequence[Pair], name: str) -> list[tuple[float, float]]:
    """A figure in both; left out where neither has one."""
    values = [(getattr(first, name), getattr(second, name)) for first, second in pairs]
    return [pair for pair in values if not all(map(math.isnan, pair))]


def _means(pairs: Sequence[Pair], name: str) -> list[tuple[float, float]]:
    """The same for the means over the seeds, dataset by dataset and level by level."""
    seeds: dict[tuple[str, float], list[Pair]] = {}
    for pair in pairs:
        seeds.setdefault((pair[0].dataset, pair[0].confidence_level), []).append(pair)
    columns = (list(zip(*_values(members, name), strict=True)) for members in seeds.values())
    return [(fmean(first), fmean(second)) for first, second in filter(None, columns)]


def _points(values: Sequence[tuple[float, float]]) -> float:
    return max((_unless_missing(second - first) for first, second in values), default=0.0)


def _percent(values: Sequence[tuple[float, float]]) -> float:
    return max((_share(first, second) for first, second in values), default=0.0)


def _share(first: float, second: float) -> float:
    if first == second:
        return 0.0
    return _unless_missing(100.0 * (second / first - 1.0)) if first else math.inf


def _unless_missing(difference: float) -> float:
    """The absolute difference; that of a figure which only one of the two has is infinite."""
    return math.inf if math.isnan(difference) else abs(difference)


def _place(row: Measured) -> tuple[str, str, str, int, float]:
    return row.protocol, row.dataset, row.method, row.seed, row.confidence_level
