"""What a method promises, does and costs: looked up or measured, nothing is typed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

from lvd import methods
from lvd.reproduction.collect import Measured
from lvd.reproduction.paper_methods import REGRESSORS
from lvd.reproduction.grids import MISSING, Entry, Grid
from lvd.reproduction.layout import MAIN, dataset_order, dataset_title, method_title
from lvd.reproduction.result_tables import Tables

FEATURED = (*MAIN, "split")


def features_grid(tables: Tables, rows: Sequence[Measured]) -> Grid:
    """The paper's table of features, with figures in place of judgements."""
    seconds = _seconds(rows, tables.protocol)
    shown = _present(FEATURED, seconds)
    return Grid(
        f"Features ({tables.protocol} protocol)",
        "Valid: the promise of coverage. Discriminative: datasets on which the AUROC is significantly above 50% "
        "(p = 0.05). Post hoc: works on a trained model, which it leaves as it is. Overhead: seconds a split takes "
        "beyond the base network, mean over datasets, and as a share of the network's own time.",
        ("", *(method_title(method, "features") for method in shown)),
        (
            (Entry("Valid"), *(Entry(_regressor(method).guarantee) for method in shown)),
            (Entry("Discriminative"), *(Entry(_discriminative(tables, method)) for method in shown)),
            (
                Entry("Post hoc"),
                *(Entry("yes" if _regressor(method).post_hoc else "no") for method in shown),
            ),
            (Entry("Overhead"), *(Entry(_overhead(seconds, method)) for method in shown)),
        ),
    )


def seconds_grid(tables: Tables, rows: Sequence[Measured]) -> Grid:
    """Where the time goes: seconds a split takes with one method alone."""
    seconds = _seconds(rows, tables.protocol)
    shown = _present((*FEATURED, "LVD-NN-nosmooth-base"), seconds)
    return Grid(
        f"Seconds per split ({tables.protocol} protocol)",
        "As if the method were run alone, both levels. Split conformal is the network and little else; MADSplit "
        "adds a second network; LVD adds its kernel. Methods of one split share these parts, so that a split takes "
        "less than the sum of its line. Seconds are those of the machine that each command ran on.",
        ("", *(method_title(method, "features") for method in shown)),
        tuple(
            (Entry(dataset), *(Entry(_text(by_method.get(method))) for method in shown))
            for dataset, by_method in sorted(seconds.items(), key=lambda item: dataset_order(item[0]))
        ),
    )


def _present(names: Sequence[str], seconds: dict[str, dict[str, float]]) -> list[str]:
    return [name for name in names if any(name in by_method for by_method in seconds.values())]


def _regressor(method: str) -> type[methods.IntervalRegressor]:
    regressor: type[methods.IntervalRegressor] = getattr(methods, REGRESSORS[method])
    return regressor


def _discriminative(tables: Tables, method: str) -> str:
    cells = [
        cell
        for cell in tables.cells
        if cell.table in ("discrimination", "split") and cell.metric == "AUROC" and cell.method == method
    ]
    known = [cell for cell in cells if cell.sample.n]
    return f"{sum(cell.emphasis == 'bold' for cell in known)} of {len(known)}" if known else MISSING


def _seconds(rows: Sequence[Measured], protocol: str) -> dict[str, dict[str, float]]:
    """Mean seconds of a run: dataset, then method. A run stands in several rows, once for each level.

    Runs whose time was not taken (NaN) are left out.
    """
    runs = {
        (dataset_title(row.dataset), row.method, row.seed): row.seconds
        for row in rows
        if row.protocol == protocol and not row.error and not math.isnan(row.seconds)
    }
    grouped: dict[str, dict[str, list[float]]] = {}
    for (dataset, method, _), seconds in runs.items():
        grouped.setdefault(dataset, {}).setdefault(method, []).append(seconds)
    return {d: {m: fmean(values) for m, values in by_method.items()} for d, by_method in grouped.items()}


def _overhead(seconds: dict[str, dict[str, float]], method: str) -> str:
    pairs = [(by["split"], by[method]) for by in seconds.values() if "split" in by and method in by]
    if not pairs:
        return MISSING
    network, whole = (sum(column) for column in zip(*pairs, strict=True))
    return f"{(whole - network) / len(pairs):.1f} s ({whole / network - 1:.0%})"


def _text(seconds: float | None) -> str:
    return MISSING if seconds is None else f"{seconds:.1f}"
