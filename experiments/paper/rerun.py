"""The same runs done twice: what changes if only rounding differs, as on another processor."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

from experiments.paper.collect import Measured
from experiments.paper.formats import Grid
from experiments.paper.layout import dataset_order, dataset_title, method_title
from experiments.paper.runs import grouped
from lvd import InputError

SAME = 0.1
"""Figures that differ by less than this percentage count as the same."""
Pair = tuple[Measured, Measured]


def pair_runs(first: Sequence[Measured], second: Sequence[Measured], protocol: str) -> list[Pair]:
    """The runs and levels of a protocol that succeeded in both."""
    known = {row.place: row for row in first if not row.error and row.protocol == protocol}
    pairs = [(known[row.place], row) for row in second if not row.error and row.place in known]
    if not pairs:
        raise InputError(
            f"the two have no runs of the {protocol} protocol in common; give results of the "
            "same datasets, methods and seeds"
        )
    return pairs


def rerun_grid(pairs: Sequence[Pair], protocol: str) -> Grid:
    """One line per method: on how many runs the figures agree, and the largest differences."""
    datasets = sorted({dataset_title(first.dataset) for first, _ in pairs}, key=dataset_order)
    return Grid(
        f"The same runs on another machine ({protocol} protocol)",
        f"Same: runs and levels whose MCR, TCR, MAD and width are all within {SAME:g}%, of how many. Then the "
        "largest differences on one seed, and of means over the seeds: rates and the share of finite intervals in "
        "points, MAD and width in percent, where both have one.",
        (
            *("", *(f"{name}: same" for name in datasets)),
            *("MCR", "TCR", "finite", "MAD", "width", "mean MCR", "mean TCR", "mean MAD", "mean width"),
        ),
        [
            _rerun_line(method, members, datasets)
            for method, members in grouped(pairs, lambda pair: pair[0].method).items()
        ],
    )


def _rerun_line(method: str, pairs: Sequence[Pair], datasets: Sequence[str]) -> list[str]:
    by_dataset = grouped(pairs, lambda pair: dataset_title(pair[0].dataset))
    same = [[_same(pair) for pair in by_dataset.get(name, [])] for name in datasets]
    finite = [(100.0 * a.finite_count / a.n_test, 100.0 * b.finite_count / b.n_test) for a, b in pairs]
    differences = (
        *(_points_apart(_values(pairs, name)) for name in ("MCR", "TCR")),
        _points_apart([pair for pair in finite if not any(map(math.isnan, pair))]),
        *(_percent_apart(_values(pairs, name)) for name in ("MAD", "width")),
        *(_points_apart(_means(pairs, name)) for name in ("MCR", "TCR")),
        *(_percent_apart(_means(pairs, name)) for name in ("MAD", "width")),
    )
    return [
        method_title(method, "rerun"),
        *(f"{sum(members)} of {len(members)}" for members in same),
        *(f"{value:.1f}" for value in differences),
    ]


def _same(pair: Pair) -> bool:
    """Whether both have the same figures, and lack the same ones."""
    figures = [tuple(getattr(row, name) for row in pair) for name in ("MCR", "TCR", "MAD", "width")]
    return all(
        a == b or (math.isnan(a) and math.isnan(b)) or _percent_apart([(a, b)]) < SAME for a, b in figures
    )


def _values(pairs: Sequence[Pair], name: str) -> list[tuple[float, float]]:
    """A figure from both, for runs where both have it."""
    values = [(getattr(first, name), getattr(second, name)) for first, second in pairs]
    return [pair for pair in values if not any(map(math.isnan, pair))]


def _means(pairs: Sequence[Pair], name: str) -> list[tuple[float, float]]:
    """The same for the means over the seeds, by dataset and level."""
    seeds = grouped(pairs, lambda pair: (pair[0].dataset, pair[0].confidence_level))
    columns = (list(zip(*_values(members, name), strict=True)) for members in seeds.values())
    return [(fmean(first), fmean(second)) for first, second in filter(None, columns)]


def _points_apart(values: Sequence[tuple[float, float]]) -> float:
    return max((abs(second - first) for first, second in values), default=0.0)


def _percent_apart(values: Sequence[tuple[float, float]]) -> float:
    return max(
        (100.0 * abs(second / first - 1.0) if first else math.inf for first, second in values), default=0.0
    )
