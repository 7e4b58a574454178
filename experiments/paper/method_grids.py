"""What each method guarantees, does and costs, in one line each: looked up or measured."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from statistics import fmean, geometric_mean

from experiments.paper.collect import Measured, values_by_dataset
from experiments.paper.formats import MISSING, Grid
from experiments.paper.layout import MAIN, dataset_order, dataset_title, method_title
from experiments.paper.methods import MAIN_VARIANT, REGRESSORS
from experiments.paper.result_tables import ResultTables
from experiments.paper.runs import grouped
from experiments.paper.significance import P_VALUE, Sample, p_above, p_below, sample_of

FEATURED = (*MAIN, "split")
Seconds = dict[tuple[str, str], float]


def features_grid(tables: ResultTables, rows: Sequence[Measured]) -> Grid:
    """The paper's table of features, with figures instead of verdicts."""
    seconds = _seconds(rows, tables.protocol)
    shown = _present(FEATURED, seconds)
    return Grid(
        f"Features ({tables.protocol} protocol)",
        "Valid: the promise of coverage. Discriminative: datasets on which the AUROC is significantly above 50% "
        "(p = 0.05). Post hoc: works on a trained model, which it leaves as it is. Overhead: seconds a split takes "
        "beyond the base network, mean over datasets, and as a share of the network's own time.",
        ("", *(method_title(method, "features") for method in shown)),
        [
            ("Valid", *(REGRESSORS[method].guarantee for method in shown)),
            ("Discriminative", *(_discriminative(tables, method) for method in shown)),
            ("Post hoc", *("yes" if REGRESSORS[method].post_hoc else "no" for method in shown)),
            ("Overhead", *(_overhead(seconds, method) for method in shown)),
        ],
    )


def seconds_grid(tables: ResultTables, rows: Sequence[Measured]) -> Grid:
    """Where the time goes: the seconds per split of each method alone."""
    seconds = _seconds(rows, tables.protocol)
    shown = _present((*FEATURED, "LVD-NN-nosmooth-base"), seconds)
    return Grid(
        f"Seconds per split ({tables.protocol} protocol)",
        "As if the method were run alone, both levels. Split conformal is the network and little else; MADSplit "
        "adds a second network; LVD adds its kernel. Methods of one split share these parts, so that a split takes "
        "less than the sum of its line. Seconds are those of the machine that each command ran on.",
        ("", *(method_title(method, "features") for method in shown)),
        [
            (name, *(f"{seconds[name, one]:.1f}" if (name, one) in seconds else MISSING for one in shown))
            for name in sorted({dataset for dataset, _ in seconds}, key=dataset_order)
        ],
    )


def _present(names: Sequence[str], seconds: Seconds) -> list[str]:
    return [name for name in names if any(method == name for _, method in seconds)]


def _discriminative(tables: ResultTables, method: str) -> str:
    cells = [
        cell
        for cell in tables.cells
        if cell.table in ("discrimination", "split") and cell.metric == "AUROC" and cell.method == method
    ]
    known = [cell for cell in cells if cell.sample.n]
    return f"{sum(cell.emphasis == 'bold' for cell in known)} of {len(known)}" if known else MISSING


def _seconds(rows: Sequence[Measured], protocol: str) -> Seconds:
    """Mean seconds of a run by dataset and method. A run has one row per level.

    Runs without a recorded time (NaN) are dropped.
    """
    seconds = {
        (dataset_title(row.dataset), row.method, row.seed): row.seconds
        for row in rows
        if row.protocol == protocol and not row.error and not math.isnan(row.seconds)
    }
    return {
        key: fmean(seconds[run] for run in same)
        for key, same in grouped(seconds, lambda run: run[:2]).items()
    }


def _overhead(seconds: Seconds, method: str) -> str:
    datasets = [name for name, one in seconds if one == "split" and (name, method) in seconds]
    if not datasets:
        return MISSING
    network, whole = (sum(seconds[name, one] for name in datasets) for one in ("split", method))
    return f"{(whole - network) / len(datasets):.1f} s ({whole / network - 1:.0%})"


TAIL_METHODS = (MAIN_VARIANT, "DE", "CQR", "split")


Values = Callable[[str, float, str], dict[str, list[float]]]
"""Maps a method, a level and a metric to its values over the seeds, by dataset."""


def decision_grid(rows: Sequence[Measured], protocol: str) -> Grid:
    """One line per method: where its coverage holds, where its widths discriminate, and how wide they are."""
    values = partial(values_by_dataset, rows, protocol)
    return Grid(
        f"The methods at a glance ({protocol} protocol)",
        "MCR, TCR: datasets on which the rate at 90% is not significantly below the level. AUROC: those on which "
        "the width tells large errors from small ones (significantly above 50). Finite: share of rows, mean over "
        "datasets. Width: at level 90%, relative to split conformal's on the rows where LVD is finite, geometric "
        "mean over datasets; these are the rows LVD knows most about, so the comparison flatters it.",
        ("", "MCR holds", "TCR holds", "AUROC tells", "finite at 50%", "finite at 90%", "width / split"),
        [_decision_line(values, method) for method in FEATURED if values(method, 0.9, "MCR")],
    )


def _decision_line(values: Values, method: str) -> list[str]:
    holds = [
        [p >= P_VALUE for p in _tested(p_below, values(method, 0.9, name), 90.0)] for name in ("MCR", "TCR")
    ]
    tells = [p < P_VALUE for p in _tested(p_above, values(method, 0.5, "AUROC"), 50.0)]
    ours, split = (values(name, 0.9, "width_lvd") for name in (method, "split"))
    ratios = [fmean(ours[dataset]) / fmean(split[dataset]) for dataset in ours if dataset in split]
    return [
        method_title(method, "decision"),
        *(f"{sum(found)} of {len(found)}" for found in (*holds, tells)),
        *(_finite(values, method, level) for level in (0.5, 0.9)),
        f"{geometric_mean(ratios):.2f}" if ratios else MISSING,
    ]


def _tested(
    test: Callable[[Sample, float], float], by_dataset: dict[str, list[float]], target: float
) -> list[float]:
    """The p-values of the datasets with enough seeds for a test."""
    p_values = (test(sample_of(values), target) for values in by_dataset.values())
    return [p for p in p_values if not math.isnan(p)]


def _finite(values: Values, method: str, level: float) -> str:
    counts, sizes = (values(method, level, name) for name in ("finite_count", "n_test"))
    shares = [fmean(found) / fmean(sizes[dataset]) for dataset, found in counts.items()]
    return f"{fmean(shares):.0%}" if shares else MISSING


def tails_grid(rows: Sequence[Measured], protocol: str, recounted: Sequence[Measured] = ()) -> Grid:
    """Coverage in the tails, and the share of tail rows with a finite interval.

    `recounted` holds runs whose `finite_tail` is known although it is missing in `rows`.
    """
    values, again = (partial(values_by_dataset, source, protocol) for source in (rows, recounted))
    shown = [method for method in TAIL_METHODS if values(method, 0.9, "TCR")]
    datasets = sorted(values(MAIN_VARIANT, 0.9, "TCR"), key=lambda name: dataset_order(dataset_title(name)))
    titles = [method_title(method, "decision") for method in shown]
    return Grid(
        f"Tails at level 90% ({protocol} protocol)",
        "TCR in percent, and the share of finite intervals among the rows it is about: an infinite interval covers "
        "its row without saying anything about it.",
        ("", *(heading for title in titles for heading in (f"{title}: TCR", f"{title}: finite"))),
        [
            (dataset_title(name), *(text for method in shown for text in _tail(values, again, method, name)))
            for name in datasets
        ],
    )


def _tail(values: Values, again: Values, method: str, dataset: str) -> tuple[str, str]:
    """TCR of a method on a dataset, and the share of finite intervals."""
    rates, finite, sizes, share = (
        values(method, 0.9, name).get(dataset, [])
        for name in ("TCR", "finite_count", "n_test", "finite_tail")
    )
    share = share or again(method, 0.9, "finite_tail").get(dataset, [])
    if not share and finite == sizes:
        share = [100.0]
    return f"{fmean(rates):.1f}" if rates else MISSING, f"{fmean(share):.0f}%" if share else MISSING
