"""What each method does on the datasets, in one line: the table to choose by."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import fmean, geometric_mean

from lvd.reproduction.collect import Measured
from lvd.reproduction.paper_methods import MAIN_VARIANT
from lvd.reproduction.emphasis import P_VALUE
from lvd.reproduction.features import FEATURED
from lvd.reproduction.grids import MISSING, Entry, Grid
from lvd.reproduction.layout import dataset_order, dataset_title, method_title
from lvd.reproduction.significance import Sample, p_above, p_below, sample_of

TAIL_METHODS = (MAIN_VARIANT, "DE", "CQR", "split")


class Figures:
    """The figures of one protocol by method, level and dataset."""

    def __init__(self, rows: Sequence[Measured], protocol: str) -> None:
        self._rows: dict[tuple[str, float], dict[str, list[Measured]]] = {}
        for row in rows:
            if row.protocol == protocol and not row.error:
                by_dataset = self._rows.setdefault((row.method, row.confidence_level), {})
                by_dataset.setdefault(row.dataset, []).append(row)

    def by_dataset(self, method: str, level: float, name: str) -> dict[str, list[float]]:
        """The values of one metric over the seeds, dataset by dataset; unknown ones are left out."""
        values = {
            dataset: [getattr(row, name) for row in members]
            for dataset, members in self._rows.get((method, level), {}).items()
        }
        known = {d: [v for v in members if not math.isnan(v)] for d, members in values.items()}
        return {dataset: members for dataset, members in known.items() if members}


def decision_grid(rows: Sequence[Measured], protocol: str) -> Grid:
    """One line per method: where its coverage holds, where its widths tell, how wide and how often finite it is."""
    figures = Figures(rows, protocol)
    return Grid(
        f"The methods at a glance ({protocol} protocol)",
        "MCR, TCR: datasets on which the rate at 90% is not significantly below the level. AUROC: those on which "
        "the width tells large errors from small ones (significantly above 50). Finite: share of rows, mean over "
        "datasets. Width: at level 90%, beside that of split conformal on the rows where LVD is finite, geometric "
        "mean over datasets; these are the rows LVD knows most about, so the comparison flatters it.",
        ("", "MCR holds", "TCR holds", "AUROC tells", "finite at 50%", "finite at 90%", "width beside split"),
        tuple(_line(figures, method) for method in FEATURED if figures.by_dataset(method, 0.9, "MCR")),
    )


def _line(figures: Figures, method: str) -> tuple[Entry, ...]:
    rates = [figures.by_dataset(method, 0.9, name) for name in ("MCR", "TCR")]
    holds = [[p >= P_VALUE for p in _tested(p_below, rate, 90.0)] for rate in rates]
    tells = [p < P_VALUE for p in _tested(p_above, figures.by_dataset(method, 0.5, "AUROC"), 50.0)]
    return (
        Entry(method_title(method, "decision")),
        *(Entry(f"{sum(found)} of {len(found)}") for found in (*holds, tells)),
        *(Entry(_finite(figures, method, level)) for level in (0.5, 0.9)),
        Entry(_width_beside_split(figures, method)),
    )


def _tested(
    test: Callable[[Sample, float], float], by_dataset: dict[str, list[float]], target: float
) -> list[float]:
    """The p-values of the datasets with seeds enough for a test."""
    p_values = (test(sample_of(values), target) for values in by_dataset.values())
    return [p for p in p_values if not math.isnan(p)]


def _finite(figures: Figures, method: str, level: float) -> str:
    counts, sizes = (figures.by_dataset(method, level, name) for name in ("finite_count", "n_test"))
    shares = [fmean(values) / fmean(sizes[dataset]) for dataset, values in counts.items()]
    return f"{fmean(shares):.0%}" if shares else MISSING


def _width_beside_split(figures: Figures, method: str) -> str:
    ours, split = (figures.by_dataset(name, 0.9, "width_lvd") for name in (method, "split"))
    ratios = [fmean(values) / fmean(split[dataset]) for dataset, values in ours.items() if dataset in split]
    return f"{geometric_mean(ratios):.2f}" if ratios else MISSING


def tails_grid(rows: Sequence[Measured], protocol: str, recounted: Sequence[Measured] = ()) -> Grid:
    """Coverage in the tails, and on how many tail rows it is that of a finite interval.

    `recounted` are runs whose `finite_tail` is known where that of `rows` is not.
    """
    figures, again = Figures(rows, protocol), Figures(recounted, protocol)
    shown = [method for method in TAIL_METHODS if figures.by_dataset(method, 0.9, "TCR")]
    datasets = sorted(
        figures.by_dataset(MAIN_VARIANT, 0.9, "TCR"), key=lambda name: dataset_order(dataset_title(name))
    )
    titles = [method_title(method, "decision") for method in shown]
    return Grid(
        f"Tails at level 90% ({protocol} protocol)",
        "TCR in percent, and the share of finite intervals among the rows it is about: an infinite interval covers "
        "its row without saying anything about it.",
        ("", *(heading for title in titles for heading in (f"{title}: TCR", f"{title}: finite"))),
        tuple(
            (Entry(dataset_title(name)), *(entry for m in shown for entry in _tail(figures, again, m, name)))
            for name in datasets
        ),
    )


def _tail(figures: Figures, again: Figures, method: str, dataset: str) -> tuple[Entry, Entry]:
    rates = figures.by_dataset(method, 0.9, "TCR").get(dataset)
    finite, sizes = (
        figures.by_dataset(method, 0.9, name).get(dataset) for name in ("finite_count", "n_test")
    )
    known = [source.by_dataset(method, 0.9, "finite_tail").get(dataset) for source in (figures, again)]
    share = next((fmean(values) for values in known if values), 100.0 if finite == sizes else math.nan)
    return (
        Entry(f"{fmean(rates):.1f}" if rates else MISSING),
        Entry(MISSING if math.isnan(share) else f"{share:.0f}%"),
    )
